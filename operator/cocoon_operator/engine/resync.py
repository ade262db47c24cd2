"""The safety net under the watches: both kinds are listed whole every few minutes, and every key runs, slowly.

Kopf's watch does not tell of a deletion that it missed, and a CocoonHibernation whose deletion was missed must not keep a
VM asleep for ever. So the lists *replace* what the cache holds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

import structlog

from cocoon_operator.api.errors import KubeError
from cocoon_operator.api.hibernation import hibernation_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.clients.kubernetes.resources import HIBERNATIONS, SETS
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.podinformer import Freshness
from cocoon_operator.engine.queue import Backoff
from cocoon_operator.engine.store import Key
from cocoon_operator.reconcile.objects import set_from_object

log = structlog.get_logger(__name__)

Object = dict[str, Any]

_SPREAD: Final = 0.5
"""The share of an interval over which the keys are spread."""


class Resync:
    """Lists CocoonSets and CocoonHibernations every ``interval`` seconds. ``run`` never ends by itself."""

    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        enqueue: Callable[[Key], None],
        *,
        interval: float,
        namespace: str | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._enqueue = enqueue
        self._interval = interval
        self._namespace = namespace
        self._backoff = backoff or Backoff(first=1.0, longest=60.0)
        self._soon = asyncio.Event()
        self.freshness = Freshness()

    def hurry(self) -> None:
        """List again now: something may have been missed."""
        self._soon.set()

    async def run(self) -> None:
        """List at once, then every interval; after an error, with back-off."""
        failures = 0
        while True:
            try:
                await self.replace()
                failures = 0
            except KubeError as error:
                failures += 1
                log.warning("CocoonSets and CocoonHibernations cannot be listed", error=str(error))
                await asyncio.sleep(self._backoff.delay(failures))
                continue
            await self._spread()

    async def replace(self) -> None:
        """Replace both kinds in the cache. Raises :class:`KubeError`."""
        hibernations, version = await self._client.list_objects(HIBERNATIONS, Object, namespace=self._namespace)
        self._cache.replace_hibernations(map(hibernation_from_object, hibernations), version)
        sets, version = await self._client.list_objects(SETS, Object, namespace=self._namespace)
        self._cache.replace_sets([set_from_object(obj) for obj in sets], version)
        self.freshness.touch()

    async def _spread(self) -> None:
        """Let every known key run within half an interval, one after another, then wait for the next list."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._interval * (1 + 0.1 * random.random())  # noqa: S311 - no secret
        known = self._cache.known_keys()
        pause = self._interval * _SPREAD / (len(known) + 1)
        for key in known:
            if await self._hurried(pause):
                return
            self._enqueue(key)
        await self._hurried(end - loop.time())

    async def _hurried(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._soon.wait()
        except TimeoutError:
            return False
        self._soon.clear()
        return True
