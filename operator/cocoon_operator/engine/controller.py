"""Workers: take a key, build its view, let the reconciler decide, and do as it says about the next run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from cocoon_operator.api.errors import ConflictError, KubeError
from cocoon_operator.api.names import object_key
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.ending import end
from cocoon_operator.engine.queue import WorkQueue
from cocoon_operator.engine.store import Key
from cocoon_operator.reconcile.ports import Clock
from cocoon_operator.reconcile.view import Outcome, View

log = structlog.get_logger(__name__)


class SetReconciler(Protocol):
    """What decides (``reconcile.reconciler``)."""

    async def reconcile(self, view: View) -> Outcome:
        """Run one pass over one set."""
        ...

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered of a set that is gone."""
        ...


class Settler(Protocol):
    """Who resolves doubts before a view is built (``world.World``)."""

    async def settle(self, key: Key) -> None:
        """Read live what the next view may not take from the cache."""
        ...


PassObserver = Callable[[str, float], None]
"""Called after every pass with its result (success, error, requeue_after) and its seconds."""


class Controller:
    """Workers over one queue. Nothing of a key's run is shared with another key's: one that hangs delays no other."""

    def __init__(
        self,
        name: str,
        *,
        cache: Cache,
        queue: WorkQueue,
        world: Settler,
        reconciler: SetReconciler,
        clock: Clock,
        workers: int,
        observe: PassObserver | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"{name} concurrency must be at least 1, got {workers}")
        self._name = name
        self._cache = cache
        self._queue = queue
        self._world = world
        self._reconciler = reconciler
        self._clock = clock
        self._count = workers
        self._observe = observe
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the workers; the cache must be synced."""
        self._workers = [
            asyncio.create_task(self._work(), name=f"{self._name} worker {number}") for number in range(self._count)
        ]

    async def drain(self, seconds: float) -> bool:
        """Take no more keys, let the running passes end, and stop the workers. False: some had to be cancelled."""
        self._queue.close()
        try:
            async with asyncio.timeout(seconds):
                await self._queue.still()
        except TimeoutError:
            log.warning("passes are cancelled, they took too long to end", count=len(self._queue.running))
            return False
        finally:
            await self.cancel()
        return True

    async def cancel(self) -> None:
        """Stop at once, in the middle of whatever runs (I9: the Lease is lost)."""
        self._queue.close()
        workers, self._workers = self._workers, []
        await end(workers)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            outcome = Outcome()
            try:
                outcome = await self._pass(key)
            finally:
                self._queue.done(key, requeue_after=outcome.requeue_after, failed=outcome.error is not None)

    async def _pass(self, key: Key) -> Outcome:
        with structlog.contextvars.bound_contextvars(cocoonset=object_key(*key), generation=self._generation(key)):
            started = time.monotonic()
            outcome = await self._guarded(key)
            if self._observe is not None:
                self._observe(_result(outcome), time.monotonic() - started)
            if outcome.error is not None:
                _report(outcome.error)
            return outcome

    def _generation(self, key: Key) -> int | None:
        obj = self._cache.sets.get(key)
        return obj.generation if obj is not None else None

    async def _guarded(self, key: Key) -> Outcome:
        try:
            await self._world.settle(key)
            view = self._cache.view(key, self._clock.now())
            outcome = await self._reconciler.reconcile(view)
        except KubeError as error:
            return Outcome(error=error)
        except Exception as error:
            # A worker must not die of a mistake in a decision: the key runs again with back-off.
            log.exception("the pass broke off")
            return Outcome(error=error)
        if self._cache.sets.get(key) is None:
            self._reconciler.forget(*key)
            if outcome == Outcome():
                self._queue.forget(key)
        return outcome


def _result(outcome: Outcome) -> str:
    if outcome.error is not None:
        return "error"
    return "success" if outcome.requeue_after is None else "requeue_after"


def _report(error: Exception) -> None:
    if isinstance(error, ConflictError):
        log.info("the view was behind, running again", reason=str(error))
    else:
        log.warning("the pass did not get through, running again with back-off", error=str(error))
