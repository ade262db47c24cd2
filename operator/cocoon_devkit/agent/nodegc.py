"""The node's own garbage collection of local snapshots, as the engine's command line does it (R4.11)."""

from __future__ import annotations

import time

from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.records import SnapshotRecord


def collect(
    engine: Engine,
    *,
    snapshot: bool = True,
    keep: int | None = None,
    age: float | None = None,
    size: int | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Evict local snapshots; returns the names, which a dry run only reports.

    ``keep`` is a number of snapshots, ``age`` seconds since the last access, ``size`` bytes in total; without any of them
    everything evictable goes. Pending and leased snapshots stay. Raises :class:`ValueError` for a qualifier without
    ``snapshot`` or below zero.
    """
    qualifiers = [each for each in (keep, age, size) if each is not None]
    if qualifiers and not snapshot:
        raise ValueError("a limit on snapshots needs the snapshot switch")
    if any(each < 0 for each in qualifiers):
        raise ValueError("a limit on snapshots cannot be negative")
    if not snapshot:
        return []
    victims = _victims(engine.snapshots(), keep, age, size)
    if not dry_run:
        for name in victims:
            engine.forget_snapshot(name)
    return victims


def _victims(snapshots: list[SnapshotRecord], keep: int | None, age: float | None, size: int | None) -> list[str]:
    """Return the union of what each limit wants gone, least recently used first."""
    oldest_first = sorted(snapshots, key=lambda each: each.last_accessed_at)
    evictable = [each for each in oldest_first if not each.pending and not each.leased]
    if keep is None and age is None and size is None:
        return [each.name for each in evictable]
    wanted: set[str] = set()
    if keep is not None:
        kept = {each.name for each in oldest_first[max(0, len(oldest_first) - keep) :]}
        wanted |= {each.name for each in evictable} - kept
    if age is not None:
        limit = time.time() - age
        wanted |= {each.name for each in evictable if each.last_accessed_at < limit}
    if size is not None:
        wanted |= _over_size(oldest_first, evictable, size)
    return [each.name for each in evictable if each.name in wanted]


def _over_size(snapshots: list[SnapshotRecord], evictable: list[SnapshotRecord], size: int) -> set[str]:
    total = sum(each.size for each in snapshots)
    victims: set[str] = set()
    for each in evictable:
        if total <= size:
            break
        victims.add(each.name)
        total -= each.size
    return victims
