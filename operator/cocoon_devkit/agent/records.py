"""What a node keeps on disk: VM records and local snapshots, each one JSON file (R0.1).

The files survive the agent, also its SIGKILL: they are replaced atomically and never cached past a restart.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"


def new_id() -> str:
    """Return a fresh 26-character base32 id, never used before (R0.3)."""
    return "".join(secrets.choice(_BASE32) for _ in range(26))


@dataclass(slots=True)
class Memory:
    """What stands for a guest's memory and disk: it travels with a snapshot and comes back with a restore.

    ``boot_id`` is drawn at a fresh boot, a fork, and a restart after a crash, so a VM that lost its state shows another one.
    ``work`` is what a test wrote into the VM. ``ticks`` counts tenths of seconds of running time and never goes back.
    ``history`` tells every boot, save and restore of this memory, oldest first.
    """

    boot_id: str = ""
    work: list[str] = field(default_factory=list)
    ticks: int = 0
    history: list[str] = field(default_factory=list)

    def copy(self) -> Memory:
        return Memory(self.boot_id, list(self.work), self.ticks, list(self.history))


@dataclass(slots=True)
class VMRecord:
    """One VM. ``state`` is creating, created, running, stopped or error; sizes are bytes; ``resumed_at`` Unix seconds.

    ``restored_from`` is the id of the saved state it was made from (the id that the tag names, also for a pulled copy).
    """

    id: str
    name: str
    state: str
    ip: str
    mac: str
    image: str
    backend: str
    os: str
    cpu: int
    memory_bytes: int
    storage_bytes: int
    overlay_bytes: int
    memory: Memory
    created_at: float
    resumed_at: float
    restored_from: str = ""
    restored_digest: str = ""
    restored_via: str = ""
    cloned_from: str = ""
    nic: bool = True

    def live_memory(self) -> Memory:
        """Return the memory as of now: a running VM goes on ticking."""
        memory = self.memory.copy()
        if self.state == "running":
            memory.ticks += max(0, int((time.time() - self.resumed_at) * 10))
        return memory


@dataclass(slots=True)
class SnapshotRecord:
    """One local snapshot. ``id`` is fresh for a save and for an import; ``origin`` is the id that the saved state was given.

    Times are Unix seconds, ``size`` bytes. ``base`` marks a published image rather than a VM's saved state.
    """

    name: str
    id: str
    origin: str
    size: int
    created_at: float
    last_accessed_at: float
    hypervisor: str
    image: str
    cpu: int
    memory_bytes: int
    storage_bytes: int
    memory: Memory
    nics: int = 1
    digest: str = ""
    pending: bool = False
    leased: bool = False
    base: bool = False


RecordT = TypeVar("RecordT", VMRecord, SnapshotRecord)


class Store(Generic[RecordT]):
    """Records of one kind by name, written through to a folder."""

    def __init__(self, folder: Path, kind: type[RecordT]) -> None:
        self._folder = folder
        self._kind: type[RecordT] = kind
        self._records: dict[str, RecordT] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            record = self._read(json.loads(path.read_text()))
            self._records[record.name] = record

    def _read(self, body: dict[str, Any]) -> RecordT:
        return self._kind(**{**body, "memory": Memory(**body["memory"])})

    def get(self, name: str) -> RecordT | None:
        return self._records.get(name)

    def __iter__(self) -> Iterator[RecordT]:
        return iter(list(self._records.values()))

    def put(self, record: RecordT) -> None:
        """Store a record, and have it on disk before returning."""
        self._records[record.name] = record
        path = self._path(record.name)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(record)))
        os.replace(temporary, path)  # noqa: PTH105  (one call, atomic on every platform)

    def drop(self, name: str) -> None:
        self._records.pop(name, None)
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{quote(name, safe='')}.json"
