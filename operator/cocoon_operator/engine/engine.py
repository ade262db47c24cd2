"""The engine as a whole: what has to run, in which order it starts, and how it ends.

A replica without the Lease keeps its cache warm and its queue filled, and writes nothing (S312). One that loses the Lease
cancels its work at once and ends: a process that cannot tell whether it leads must not go on (I9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from cocoon_operator.api import keys
from cocoon_operator.api.hibernation import hibernation_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.claims import VmNameIndex
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.controller import Controller, PassObserver, SetReconciler
from cocoon_operator.engine.events import EventRecorder
from cocoon_operator.engine.lease import Elector
from cocoon_operator.engine.podinformer import PodInformer
from cocoon_operator.engine.queue import QueueMeasures, WorkQueue
from cocoon_operator.engine.resync import Resync
from cocoon_operator.engine.world import World
from cocoon_operator.reconcile.objects import set_from_object
from cocoon_operator.reconcile.ports import Claims, Clock, Cluster, Recorder

log = structlog.get_logger(__name__)


class LeaseLostError(Exception):
    """Another replica may lead by now; this one has stopped working."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What a reconciler gets from the engine."""

    cluster: Cluster
    recorder: Recorder
    claims: Claims
    clock: Clock


class EngineMeasures(QueueMeasures, Protocol):
    """What the engine tells about itself."""

    def leads(self, leading: bool) -> None:
        """Leadership was won or lost."""

    def passed(self, result: str, seconds: float) -> None:
        """A pass over a set ended."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Seconds and counts. ``namespace`` restricts everything to one namespace."""

    workers: int = 4
    resync_interval: float = 300.0
    namespace: str | None = None
    drain: float = 20.0
    stale_after: float = 180.0


class Engine:
    """Cache, queue, workers, events and the Lease of one process."""

    def __init__(
        self,
        client: KubeClient,
        build: Callable[[Ports], SetReconciler],
        *,
        settings: EngineSettings,
        measures: EngineMeasures | None = None,
        elector: Elector | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self._settings = settings
        self._elector = elector
        self._measures = measures
        self.queue = WorkQueue(measures=measures)
        self.cache = Cache(self.queue.add)
        self.recorder = EventRecorder(client, clock)
        self._informer = PodInformer(client, self.cache, namespace=settings.namespace)
        self._resync = Resync(
            client, self.cache, self.queue.add, interval=settings.resync_interval, namespace=settings.namespace
        )
        world = World(client, self.cache)
        claims = VmNameIndex(self.cache, clusterwide=settings.namespace is None)
        self.controller = Controller(
            cache=self.cache,
            queue=self.queue,
            world=world,
            reconciler=build(Ports(world, self.recorder, claims, clock)),
            clock=clock,
            workers=settings.workers,
            observe=_observer(measures),
        )
        if elector is not None:
            client.set_fence(elector.remaining)
        self._tasks: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- what Kopf's handlers call ---------------------------------------------------------------------------------

    def see(self, plural: str, kind: str | None, obj: dict[str, Any]) -> None:
        """Take an event of Kopf's watch of one of the two kinds."""
        wanted = self._settings.namespace
        if wanted is not None and obj["metadata"].get("namespace") != wanted:
            return
        deleted = kind == "DELETED"
        if plural == keys.PLURAL_SETS:
            target = set_from_object(obj)
            (self.cache.lose_set if deleted else self.cache.see_set)(target)
        else:
            hibernation = hibernation_from_object(obj)
            (self.cache.lose_hibernation if deleted else self.cache.see_hibernation)(hibernation)

    def watching(self) -> None:
        """Kopf has started to watch: list again, so that nothing of the time before is missing."""
        self._resync.hurry()

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything. ``ended`` is resolved, with an error, when a part ends that must not."""
        self._begin("pod informer", self._informer.run())
        self._begin("resync", self._resync.run())
        self._begin("events", self.recorder.run())
        self._begin("leader", self._lead())

    async def stop(self) -> None:
        """Stop gracefully: let running passes end, send the events, give the Lease back, stop the rest.

        After a pass that had to be cancelled the Lease is left to run out: its last write may still arrive (I9).
        """
        drained = await self.controller.drain(self._settings.drain)
        await self.recorder.flush(2.0)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._elector is not None and drained:
            await self._elector.release()
        if not self.ended.done():
            self.ended.set_result(None)

    async def _lead(self) -> None:
        await self.cache.synced.wait()
        if self._elector is None:
            self._work()
            await asyncio.Event().wait()
            return
        await self._elector.acquire()
        self._work()
        try:
            await self._elector.hold()
        finally:
            self._told(leading=False)
        await self.controller.cancel()
        raise LeaseLostError("the Lease was lost, another replica may lead now")

    def _work(self) -> None:
        self._told(leading=True)
        self.controller.start()

    def _told(self, *, leading: bool) -> None:
        if self._measures is not None:
            self._measures.leads(leading)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.ended.done():
            return
        error = task.exception() or RuntimeError(f"{task.get_name()} ended by itself")
        self.ended.set_exception(error)

    # -- health ----------------------------------------------------------------------------------------------------

    def unready(self) -> list[str]:
        """Return why this replica does not see the cluster as it is; nothing when it does."""
        reasons = [f"{name} not listed yet" for name in self.cache.synced.missing()]
        if not reasons and self._informer.freshness.age > self._settings.stale_after:
            reasons.append(f"pods not heard of for {self._informer.freshness.age:.0f} s")
        limit = self._settings.resync_interval * 1.5 + self._settings.stale_after
        if not reasons and self._resync.freshness.age > limit:
            reasons.append(f"CocoonSets not listed for {self._resync.freshness.age:.0f} s")
        return reasons


def _observer(measures: EngineMeasures | None) -> PassObserver | None:
    return measures.passed if measures is not None else None
