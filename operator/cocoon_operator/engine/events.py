"""Events on both kinds (core/v1, contract 7.2): fire and forget, folded and limited as ``engine.correlation`` says.

Sending is somebody else's task: a slow API server does not slow a pass. What does not fit into the queue is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
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
from cocoon_operator.engine.correlation import Correlator, Similar, Thread
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.ports import Clock

log = structlog.get_logger(__name__)

Object = dict[str, Any]

CREATED: Final = "created"
COUNTED: Final = "counted"
DROPPED: Final = "dropped"
FAILED: Final = "failed"

# People alert on error lines of what else would go unnoticed (contract 7.3).
_ALERTED: Final = frozenset({"KeepSnapshotFailed"})

_WAITING: Final = 1000
_MESSAGE_LIMIT: Final = 1024
_NAME_LIMIT: Final = 230


class Involved(NamedTuple):
    """The object that an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class _Note:
    """That something is to be sent of a thread."""

    involved: Involved
    kind: str
    reason: str
    thread: Thread


class EventRecorder:
    """Implements :class:`cocoon_operator.reconcile.ports.Recorder`. ``run`` sends until it is cancelled.

    ``observe`` is told what became of every event: ``created``, ``counted``, ``dropped`` or ``failed``.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        timer: Callable[[], float] = elapsed,
        observe: Callable[[str], None] | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._observe = observe or (lambda _: None)
        self._correlator = Correlator(timer)
        self._notes: asyncio.Queue[_Note] = asyncio.Queue(_WAITING)

    def event(self, target: SetObject | Hibernation, kind: str, reason: str, message: str) -> None:
        """Record an event on one of our objects; ``kind`` is ``Normal`` or ``Warning``."""
        what = keys.KIND_SET if isinstance(target, SetObject) else keys.KIND_HIBERNATION
        involved = Involved(what, target.namespace, target.name, target.uid, target.resource_version)
        self.record(involved, kind, reason, message)

    def record(self, involved: Involved, kind: str, reason: str, message: str) -> None:
        """Record an event on any of our kinds. It is dropped when the object or the API server is over its limit."""
        _log(involved, kind, reason, message[:_MESSAGE_LIMIT])
        at = rfc3339(self._clock.now())
        thread = self._correlator.take(Similar(involved.uid, kind, reason), message[:_MESSAGE_LIMIT], at)
        if thread is None:
            log.debug("event dropped: too many of this object", reason=reason, object=involved.name)
            self._observe(DROPPED)
            return
        try:
            self._notes.put_nowait(_Note(involved, kind, reason, thread))
        except asyncio.QueueFull:
            log.warning("event dropped: the API server does not take them fast enough", reason=reason)
            self._observe(DROPPED)

    async def run(self) -> None:
        """Send what is recorded, one after another."""
        while True:
            note = await self._notes.get()
            try:
                self._observe(await self._send(note))
            except KubeError as error:
                log.warning("event not recorded", reason=note.reason, object=note.involved.name, error=str(error))
                self._observe(FAILED)
            finally:
                self._notes.task_done()

    async def flush(self, seconds: float) -> None:
        """Wait until everything is sent, at most ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._notes.join()
        except TimeoutError:
            log.warning("events left unsent at the end", count=self._notes.qsize())

    async def _send(self, note: _Note) -> str:
        thread = note.thread
        if thread.name and thread.sent < thread.count:
            try:
                await self._count(note)
            except NotFoundError:
                # The API server lets events expire, after an hour by default.
                thread.lost()
        if thread.name:
            return COUNTED
        count, name = thread.count, f"{note.involved.name[:_NAME_LIMIT]}.{secrets.token_hex(8)}"
        await self._client.create(EVENTS, note.involved.namespace, _event(note, name), Object)
        thread.name, thread.sent = name, count
        return CREATED

    async def _count(self, note: _Note) -> None:
        thread = note.thread
        count = thread.count
        body = {"count": count, "lastTimestamp": thread.last, "message": thread.message[:_MESSAGE_LIMIT]}
        await self._client.merge_patch(EVENTS, note.involved.namespace, thread.name, body, Object)
        thread.sent = count


def _log(involved: Involved, kind: str, reason: str, message: str) -> None:
    level = logging.ERROR if reason in _ALERTED else logging.WARNING if kind == "Warning" else logging.INFO
    log.log(level, "event", kind=involved.kind, object=involved.name, reason=reason, text=message)


def _event(note: _Note, name: str) -> Object:
    involved, thread = note.involved, note.thread
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
        "message": thread.message[:_MESSAGE_LIMIT],
        "source": {"component": keys.EVENT_COMPONENT},
        "reportingComponent": keys.EVENT_COMPONENT,
        "firstTimestamp": thread.first,
        "lastTimestamp": thread.last,
        "count": thread.count,
    }
