"""Events on both kinds (core/v1, contract 7.2): fire and forget, folded, and limited like client-go's recorder.

Identical events of one object are one Event with a count. One object may cause 25 requests in a burst, then one every five
minutes; what is over is dropped, never queued. Sending is somebody else's task: a slow API server does not slow a pass.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError, NotFoundError
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.clients.kubernetes.resources import EVENTS
from cocoon_operator.engine.clock import elapsed, rfc3339
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.ports import Clock

log = structlog.get_logger(__name__)

Object = dict[str, Any]

_WAITING: Final = 1000
_REMEMBERED: Final = 4096
_BURST: Final = 25.0
_REFILL_SECONDS: Final = 300.0
_MESSAGE_LIMIT: Final = 1024
_NAME_LIMIT: Final = 230


class Involved(NamedTuple):
    """The object that an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


class _Same(NamedTuple):
    uid: str
    kind: str
    reason: str
    message: str


@dataclass(slots=True)
class _Sent:
    name: str
    count: int


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(frozen=True, slots=True)
class _Note:
    involved: Involved
    kind: str
    reason: str
    message: str
    at: str

    @property
    def same(self) -> _Same:
        return _Same(self.involved.uid, self.kind, self.reason, self.message)


class EventRecorder:
    """Implements :class:`cocoon_operator.reconcile.ports.Recorder`. ``run`` sends until it is cancelled."""

    def __init__(self, client: KubeClient, clock: Clock, *, timer: Callable[[], float] = elapsed) -> None:
        self._client = client
        self._clock = clock
        self._timer = timer
        self._notes: asyncio.Queue[_Note] = asyncio.Queue(_WAITING)
        self._sent: OrderedDict[_Same, _Sent] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def event(self, target: SetObject | Hibernation, kind: str, reason: str, message: str) -> None:
        """Record an event on one of our objects; ``kind`` is ``Normal`` or ``Warning``."""
        what = keys.KIND_SET if isinstance(target, SetObject) else keys.KIND_HIBERNATION
        involved = Involved(what, target.namespace, target.name, target.uid, target.resource_version)
        self.record(involved, kind, reason, message)

    def record(self, involved: Involved, kind: str, reason: str, message: str) -> None:
        """Record an event on any of our kinds. It is dropped when the object or the API server is over its limit."""
        if not self._allowed(involved.uid):
            log.info("event dropped: too many of this object", reason=reason, object=involved.name)
            return
        note = _Note(involved, kind, reason, message[:_MESSAGE_LIMIT], rfc3339(self._clock.now()))
        try:
            self._notes.put_nowait(note)
        except asyncio.QueueFull:
            log.warning("event dropped: the API server does not take them fast enough", reason=reason)

    async def run(self) -> None:
        """Send what is recorded, one after another."""
        while True:
            note = await self._notes.get()
            try:
                await self._send(note)
            except KubeError as error:
                log.warning("event not recorded", reason=note.reason, object=note.involved.name, error=str(error))
            finally:
                self._notes.task_done()

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._notes.join()
        except TimeoutError:
            log.warning("events left unsent at the end", count=self._notes.qsize())

    async def _send(self, note: _Note) -> None:
        sent = self._sent.get(note.same)
        if sent is not None:
            try:
                await self._count(note, sent)
            except NotFoundError:
                # The API server lets events expire, after an hour by default.
                del self._sent[note.same]
            else:
                return
        name = f"{note.involved.name[:_NAME_LIMIT]}.{secrets.token_hex(8)}"
        await self._client.create(EVENTS, note.involved.namespace, _event(note, name), Object)
        self._sent[note.same] = _Sent(name, 1)
        if len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    async def _count(self, note: _Note, sent: _Sent) -> None:
        body = {"count": sent.count + 1, "lastTimestamp": note.at}
        await self._client.merge_patch(EVENTS, note.involved.namespace, sent.name, body, Object)
        sent.count += 1
        self._sent.move_to_end(note.same)

    def _allowed(self, uid: str) -> bool:
        now = self._timer()
        bucket = self._buckets.pop(uid, None) or _Bucket(_BURST, now)
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.at) / _REFILL_SECONDS)
        bucket.at = now
        self._buckets[uid] = bucket
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _event(note: _Note, name: str) -> Object:
    involved = note.involved
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": involved.namespace},
        "involvedObject": {
            "apiVersion": keys.API_VERSION,
            "kind": involved.kind,
            "namespace": involved.namespace,
            "name": involved.name,
            "uid": involved.uid,
            "resourceVersion": involved.resource_version,
        },
        "type": note.kind,
        "reason": note.reason,
        "message": note.message,
        "source": {"component": keys.EVENT_COMPONENT},
        "reportingComponent": keys.EVENT_COMPONENT,
        "firstTimestamp": note.at,
        "lastTimestamp": note.at,
        "count": 1,
    }
