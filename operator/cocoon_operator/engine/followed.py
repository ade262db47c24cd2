"""Pods outside every set that a CocoonHibernation names: followed one by one, since no label selects them (design 3, S271).

They are few. One that cannot be followed is still looked at from time to time by its own passes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Final

import msgspec
import structlog

from cocoon_operator.api.errors import KubeError
from cocoon_operator.api.pod import decode_pod
from cocoon_operator.clients.kubernetes.client import KubeClient, WatchEvent
from cocoon_operator.clients.kubernetes.resources import PODS
from cocoon_operator.engine.ending import end
from cocoon_operator.engine.queue import Backoff
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import lone_pod, pod_fingerprint

log = structlog.get_logger(__name__)

LIMIT: Final = 100
"""How many pods are followed at once; each costs a watch."""
_WATCH_SECONDS: Final = 300


class FollowedPods:
    """One watch a pod for as long as ``wanted`` says so; what matters of a change enqueues its key."""

    def __init__(
        self,
        client: KubeClient,
        enqueue: Callable[[Key], None],
        wanted: Callable[[Key], bool],
        *,
        backoff: Backoff | None = None,
        watch_seconds: int = _WATCH_SECONDS,
    ) -> None:
        self._client = client
        self._enqueue = enqueue
        self._wanted = wanted
        self._backoff = backoff or Backoff(first=0.5, longest=30.0)
        self._watch_seconds = watch_seconds
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    @property
    def keys(self) -> list[Key]:
        """The keys whose pods are followed now."""
        return sorted(self._tasks)

    def follow(self, key: Key) -> None:
        """Begin to follow the pod of a key, unless that is done already, not wanted, or more than can be followed."""
        if key in self._tasks or len(self._tasks) >= LIMIT or not self._wanted(key):
            return
        task = asyncio.create_task(self._run(key), name=f"pod of {key.namespace}/{key.name}")
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def stop(self) -> None:
        """Stop following."""
        await end(list(self._tasks.values()))

    async def _run(self, key: Key) -> None:
        failures = 0
        last: Hashable = None
        while self._wanted(key):
            try:
                async for event in self._watch(key):
                    failures = 0
                    if not self._wanted(key):
                        return
                    seen = _seen(event, last)
                    if seen != last:
                        last = seen
                        self._enqueue(key)
            except (KubeError, msgspec.MsgspecError) as error:
                failures += 1
                log.info("following a pod broke off, going on", pod=key.name, reason=str(error))
                await asyncio.sleep(self._backoff.delay(failures))

    def _watch(self, key: Key) -> AsyncIterator[WatchEvent]:
        """Watch from the present state on: what is there comes as an event too, so that nothing is missed in between."""
        return self._client.watch(
            PODS,
            namespace=key.namespace,
            fields=f"metadata.name={lone_pod(key)}",
            resource_version="",
            seconds=int(self._watch_seconds * (1 + 0.2 * random.random())),  # noqa: S311 - no secret
        )


def _seen(event: WatchEvent, last: Hashable) -> Hashable:
    if event.type == "BOOKMARK":
        return last
    return None if event.type == "DELETED" else pod_fingerprint(decode_pod(bytes(event.object)))
