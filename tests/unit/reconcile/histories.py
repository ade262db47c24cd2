"""Rebuild histories and what is told of rebuilds, shared by their scenario tests."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    events,
)

REBUILT = "subagent_rebuild_total{cocoonset=demo,namespace=ns}"

GIVEN_UP = "subagent_dead_letter_total{cocoonset=demo,namespace=ns}"


def history(world: World, key: str = keys.REBUILD_HISTORY) -> Any:
    """The stored history, without the UID that tells for which pod an attempt was counted."""
    stored = json.loads(world.annotation(key) or "null")
    for entry in (stored or {}).values():
        entry.pop("uid", None)
    return stored


def remember(world: World, key: str = keys.REBUILD_HISTORY, *, ago: float = 3600, **counts: int) -> None:
    """Write a history for slots, given as ``s1=4``."""
    when = (world.clock.now() - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
    stored = {slot.removeprefix("s"): {"count": count, "lastDeleted": when} for slot, count in counts.items()}
    world.annotate({key: json.dumps(stored)})


def rebuild_events(world: World) -> list[tuple[str, str, str]]:
    return [event for event in events(world) if "Rebuilding" in event[1] or "DeadLetter" in event[1]]
