"""The engine as a whole: what has to run, in which order it starts, and how it ends.

A replica without the Lease keeps its cache warm and its queue filled, and writes nothing (S312). One that loses the Lease
cancels its work at once and ends: a process that cannot tell whether it leads must not go on (I9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog

from cocoon_operator.api import keys
from cocoon_operator.api.hibernation import hibernation_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.claims import VmNameIndex
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.controller import Controller, SetReconciler
from cocoon_operator.engine.ending import end
from cocoon_operator.engine.events import EventRecorder
from cocoon_operator.engine.followed import FollowedPods
from cocoon_operator.engine.lease import Elector
from cocoon_operator.engine.podinformer import Freshness, PodInformer
from cocoon_operator.engine.queue import QueueMeasures, WorkQueue
from cocoon_operator.engine.resync import Resync
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import lone_pod
from cocoon_operator.engine.world import World
from cocoon_operator.reconcile.objects import set_from_object
from cocoon_operator.reconcile.ports import Claims, Clock, Cluster, Recorder

log = structlog.get_logger(__name__)

SETS: Final = "cocoonset"
LONE: Final = "cocoonhibernation"
"""The names of the controllers in metrics (contract 7.1): of sets with all that belongs to them, and of
CocoonHibernations whose pod is no set's."""


class LeaseLostError(Exception):
    """Another replica may lead by now; this one has stopped working."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What a reconciler gets from the engine."""

    cluster: Cluster
    recorder: Recorder
    claims: Claims
    clock: Clock


class ControllerMeasures(QueueMeasures, Protocol):
    """What one controller and its queue tell about themselves."""

    def passed(self, result: str, seconds: float) -> None:
        """A pass ended."""


class EngineMeasures(Protocol):
    """What the engine tells about itself."""

    def controller(self, name: str, workers: int) -> ControllerMeasures:
        """Return the measures of a controller."""
        ...

    def leads(self, leading: bool) -> None:
        """Leadership was won or lost."""

    def event(self, result: str) -> None:
        """An event was created, counted, dropped, or could not be sent (``failed``)."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Seconds and counts. ``namespace`` restricts everything to one namespace."""

    workers: int = 4
    lone_workers: int = 4
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
        self.cache = Cache(self._enqueue)
        self.recorder = EventRecorder(client, clock, observe=measures.event if measures is not None else None)
        self._informer = PodInformer(client, self.cache, namespace=settings.namespace)
        self._resync = Resync(
            client, self.cache, self._enqueue, interval=settings.resync_interval, namespace=settings.namespace
        )
        world = World(client, self.cache)
        claims = VmNameIndex(self.cache, clusterwide=settings.namespace is None)
        self._followed = FollowedPods(client, self._enqueue, self.cache.is_home)
        reconciler = build(Ports(world, self.recorder, claims, clock))
        self._controllers: list[Controller] = []
        self.queues: dict[str, WorkQueue] = {}
        for name, workers in ((SETS, settings.workers), (LONE, settings.lone_workers)):
            told = measures.controller(name, workers) if measures is not None else None
            queue = self.queues[name] = WorkQueue(measures=told)
            self._controllers.append(
                Controller(
                    name,
                    cache=self.cache,
                    queue=queue,
                    world=world,
                    reconciler=reconciler,
                    clock=clock,
                    workers=workers,
                    observe=told.passed if told is not None else None,
                )
            )
        if elector is not None:
            client.set_fence(elector.remaining)
        self._watched = {plural: Freshness() for plural in (keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS)}
        self._tasks: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- what Kopf's handlers call ---------------------------------------------------------------------------------

    def see(self, plural: str, kind: str | None, obj: dict[str, Any]) -> None:
        """Take an event of Kopf's watch of one of the two kinds."""
        self._watched[plural].touch()
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
        drained = all(await asyncio.gather(*(each.drain(self._settings.drain) for each in self._controllers)))
        await self.recorder.flush(2.0)
        tasks, self._tasks = self._tasks, []
        await end(tasks)
        await self._followed.stop()
        if self._elector is not None and drained:
            await self._elector.release()
        if not self.ended.done():
            self.ended.set_result(None)

    async def _lead(self) -> None:
        await self.cache.synced.wait()
        if self._elector is not None:
            await self._elector.acquire()
        self._work()
        try:
            await (asyncio.Event().wait() if self._elector is None else self._elector.hold())
        finally:
            self._told(leading=False)
        await asyncio.gather(*(each.cancel() for each in self._controllers))
        raise LeaseLostError("the Lease was lost, another replica may lead now")

    def _work(self) -> None:
        self._told(leading=True)
        for controller in self._controllers:
            controller.start()

    def _enqueue(self, key: Key) -> None:
        if lone_pod(key) is None:
            self.queues[SETS].add(key)
            return
        self.queues[LONE].add(key)
        self._followed.follow(key)

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

    # -- what a scrape of the metrics reads ------------------------------------------------------------------------

    def silence(self) -> dict[str, float]:
        """Return the seconds since each resource was last heard of (a list, an event or a bookmark); infinite: never."""
        listed = self._resync.freshness.age
        watched = {plural: min(listed, freshness.age) for plural, freshness in self._watched.items()}
        return {"pods": self._informer.freshness.age, **watched}

    def running(self) -> dict[str, list[float]]:
        """Return for each controller the seconds that its running passes have taken so far."""
        return {name: queue.ages() for name, queue in self.queues.items()}

    def set_statuses(self) -> Iterator[Mapping[str, Any]]:
        """Return the stored status of every CocoonSet."""
        return (obj.status for obj in self.cache.sets)

    def hibernation_statuses(self) -> Iterator[Mapping[str, Any]]:
        """Return the stored status of every CocoonHibernation."""
        return ({"phase": obj.phase, "conditions": obj.conditions} for obj in self.cache.hibernations)

    def pod_count(self) -> int:
        """Return how many pods of CocoonSets there are."""
        return len(self.cache.pods)
