"""Which key runs next, and when: at most one run of a key at a time, and as few runs as possible.

A key that is asked for while it waits runs once; one that is asked for while it runs, runs once more. Ready keys are served
in the order in which they came. Every key has at most one timer, and a run replaces it. A key that fails waits longer
each time; an event does not let it wait (something changed), but does not forgive it either: only a success does.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from cocoon_operator.engine.store import Key

_MAX_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds that a key waits after its n-th failure in a row: ``first`` doubled up to ``longest``, less some jitter."""

    first: float = 0.5
    longest: float = 300.0
    jitter: float = 0.25

    def delay(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Return the wait after ``failures`` failures (1 or more)."""
        full = min(self.longest, math.ldexp(self.first, min(failures - 1, _MAX_DOUBLINGS)))
        return full * (1 - self.jitter * draw())


class QueueMeasures(Protocol):
    """What the queue tells about itself; the meaning is that of client-go's workqueue metrics."""

    def queued(self, depth: int) -> None:
        """A key was added; ``depth`` keys are waiting."""

    def taken(self, depth: int, waited: float) -> None:
        """A key was taken after ``waited`` seconds."""

    def finished(self, took: float) -> None:
        """A run ended after ``took`` seconds."""

    def retried(self) -> None:
        """A key was added again since its run failed."""


class WorkQueue:
    """The queue of one controller. It holds each known key at most once, so that it is bounded by their number."""

    def __init__(self, *, backoff: Backoff | None = None, measures: QueueMeasures | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._measures = measures
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._since: dict[Key, float] = {}
        self._running: dict[Key, float] = {}
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._still = asyncio.Event()
        self._still.set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._since)

    @property
    def running(self) -> frozenset[Key]:
        """The keys that run now."""
        return frozenset(self._running)

    def ages(self) -> list[float]:
        """Return the seconds since each running key was taken."""
        return [_now() - taken for taken in self._running.values()]

    def add(self, key: Key) -> None:
        """Let a key run as soon as a worker is free."""
        if self._closed:
            return
        if key in self._running:
            self._again.add(key)
        elif key not in self._since:
            self._since[key] = _now()
            self._ready.put_nowait(key)
            if self._measures is not None:
                self._measures.queued(len(self._since))

    def add_after(self, key: Key, seconds: float) -> None:
        """Let a key run in ``seconds`` at the latest; a shorter timer that it has already stays."""
        if self._closed:
            return
        due = _now() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_at(due, self._ring, key)

    def _ring(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def get(self) -> Key:
        """Wait for a key; its run has to end with :meth:`done`."""
        key = await self._ready.get()
        now = _now()
        waited = now - self._since.pop(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._running[key] = now
        self._still.clear()
        if self._measures is not None:
            self._measures.taken(len(self._since), waited)
        return key

    def done(self, key: Key, *, requeue_after: float | None = None, failed: bool = False) -> None:
        """End a run; the next comes at the latest in ``requeue_after`` seconds, or after its back-off when it ``failed``."""
        took = _now() - self._running.pop(key)
        if not self._running:
            self._still.set()
        if self._measures is not None:
            self._measures.finished(took)
        delays = [] if requeue_after is None else [requeue_after]
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            delays.append(self._backoff.delay(self._failures[key]))
            if self._measures is not None:
                self._measures.retried()
        else:
            self._failures.pop(key, None)
        if delays:
            self.add_after(key, min(delays))
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def still(self) -> None:
        """Wait until no key runs."""
        await self._still.wait()

    def forget(self, key: Key) -> None:
        """Drop the timer and the failures of a key that does not exist any more."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Take no more keys and drop those that wait; runs go on and may end."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._again.clear()
        self._since.clear()
        while not self._ready.empty():
            self._ready.get_nowait()


def _now() -> float:
    return asyncio.get_running_loop().time()
