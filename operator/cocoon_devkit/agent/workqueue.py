"""A queue of keys: one key is worked on by one worker at a time, a failed one again with back-off (R1.15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cocoon_devkit.agent.settings import Windows

MAX_ATTEMPTS: Final = 20


class RetryForeverError(Exception):
    """Work that is never given up, such as a delete that kept its VM (R1.34, R4.3)."""


class WorkQueue:
    """Calls ``handler(key)``. An exception means again, at most 20 times unless it is :class:`RetryForeverError`."""

    def __init__(self, handler: Callable[[str], Awaitable[None]], workers: int, windows: Windows) -> None:
        self._handler = handler
        self._workers = workers
        self._windows = windows
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: set[str] = set()
        self._active: set[str] = set()
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work()) for _ in range(self._workers)]

    async def stop(self) -> None:
        """Cancel the workers where they are; what they had in hand is not finished."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def add(self, key: str) -> None:
        """Ask for work on a key; a key that waits already is not queued twice, one in work is worked on again after."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._ready.put_nowait(key)

    def add_later(self, key: str, seconds: float) -> None:
        """Ask for work on a key in so many real seconds; the earlier of two requests counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        waiting = self._timers.get(key)
        if waiting is not None:
            if waiting.when() <= due:
                return
            waiting.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def forget(self, key: str) -> None:
        """Drop the failures and a waiting retry of a key."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            self._dirty.discard(key)
            self._active.add(key)
            try:
                await self._handler(key)
                self._failures.pop(key, None)
            except RetryForeverError:
                self._again(key, limited=False)
            except Exception:  # noqa: BLE001  (the framework retries whatever went wrong)
                self._again(key, limited=True)
            finally:
                self._active.discard(key)
                if key in self._dirty:
                    self._ready.put_nowait(key)

    def _again(self, key: str, *, limited: bool) -> None:
        failures = self._failures.get(key, 0) + 1
        if limited and failures > MAX_ATTEMPTS:
            self._failures.pop(key, None)
            return
        self._failures[key] = failures
        pause = min(self._windows.queue_base * 2 ** (failures - 1), self._windows.queue_max)
        self.add_later(key, self._windows.of(pause))
