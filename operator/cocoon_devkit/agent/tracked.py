"""What the agent knows about the pods of its node; volatile, rebuilt at a start (R0.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.podview import VMRequest, request_of
from cocoon_devkit.agent.wire import Obj


@dataclass(slots=True)
class Intent:
    """The lifecycle triple that the agent wants published (R3.3). ``published_at`` is the resourceVersion it was written with."""

    state: str
    generation: int
    message: str = ""
    written: bool = False
    published_at: int = 0


@dataclass(slots=True)
class Tracked:
    """One pod as the agent tracks it, with its VM if it has one.

    ``work`` serialises everything that changes the VM or the lifecycle. ``resumed`` is set while work owed after a restart
    runs (R1.31). ``promoting`` says that the Ready condition may already say what the lifecycle will say next (R1.24).
    ``answer`` is the last answer to a live snapshot request that got through, ``answered_at`` the resourceVersion it made;
    ``answers`` are all answers by request, which only a strict agent remembers (R3.22).
    """

    pod: Obj
    request: VMRequest
    vm_id: str = ""
    ip: str = ""
    intent: Intent | None = None
    probe_ok: bool = False
    promoting: bool = False
    hibernating: bool = False
    deleting: bool = False
    resumed: bool = False
    ready_owed: str = ""
    start_time: str = ""
    ready_since: tuple[str, str] = ("", "")
    pushed_status: Obj | None = None
    pushed_at: int = 0
    retry_inputs: Any = None
    retry_pause: float = 0.0
    restarted_at: float = float("-inf")
    answer: str = ""
    answered_at: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    work: asyncio.Lock = field(default_factory=asyncio.Lock)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        return podview.uid_of(self.pod)

    @property
    def key(self) -> str:
        return podview.key_of(self.pod)

    @property
    def vm_name(self) -> str:
        return self.request.vm_name

    @property
    def has_vm(self) -> bool:
        return self.vm_id != ""

    @property
    def hibernate_asked(self) -> bool:
        return podview.flag(self.pod, wire.HIBERNATE)

    def replace_pod(self, pod: Obj) -> None:
        """Take over a newer copy of the same pod. What the agent itself published stays its own view."""
        self.pod = pod

    def remember(self, changes: dict[str, str | None]) -> None:
        """Apply the agent's own annotation writes to its copy, so that they do not come back as updates (R1.16)."""
        notes = dict(podview.notes(self.pod))
        for key, value in changes.items():
            if value is None:
                notes.pop(key, None)
            else:
                notes[key] = value
        self.pod = {**self.pod, "metadata": {**self.pod["metadata"], "annotations": notes}}

    def start(self, name: str, task: asyncio.Task[None]) -> None:
        """Keep a background task under a name; one that had the name is cancelled."""
        self.stop(name)
        self.tasks[name] = task
        task.add_done_callback(lambda done: self._finished(name, done))

    def stop(self, name: str) -> None:
        task = self.tasks.pop(name, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def stop_all(self) -> None:
        for name in list(self.tasks):
            self.stop(name)

    def _finished(self, name: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(name) is task:
            del self.tasks[name]


class Table:
    """Tracked pods by ``namespace/name``."""

    def __init__(self) -> None:
        self._pods: dict[str, Tracked] = {}

    def get(self, key: str) -> Tracked | None:
        return self._pods.get(key)

    def track(self, pod: Obj) -> Tracked:
        tracked = Tracked(pod, request_of(pod))
        self._pods[tracked.key] = tracked
        return tracked

    def forget(self, tracked: Tracked) -> None:
        """Drop a record and end its background work; a newer record under the same key stays."""
        if self._pods.get(tracked.key) is tracked:
            self._pods.pop(tracked.key)
        tracked.stop_all()

    def current(self, tracked: Tracked) -> bool:
        return self._pods.get(tracked.key) is tracked

    def by_vm_name(self, name: str) -> Tracked | None:
        return next((each for each in self if each.vm_name == name), None)

    def __iter__(self) -> Iterator[Tracked]:
        return iter(list(self._pods.values()))
