"""The agent's writes to pods: annotation patches with the pod's UID, status patches, deletes, events (R0.6, R0.9-R0.12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.faults import FaultError, Faults
from cocoon_devkit.agent.journal import NodeJournal
from cocoon_devkit.agent.kube import MERGE, STRATEGIC, Kube, KubeStatusError
from cocoon_devkit.agent.wire import Obj

_EVENT_LIMIT = 512
_EVENT_FOLD = 10.0
_KINDS = ((wire.VM_ID, "runtime"), (wire.VM_IP, "runtime"), (wire.LIFECYCLE_STATE, "lifecycle"))


class PodApi:
    """Every write carries ``metadata.uid``: one for a pod that was replaced fails instead of landing on its namesake (R0.10)."""

    def __init__(self, kube: Kube, node: str, faults: Faults, journal: NodeJournal) -> None:
        self._kube = kube
        self._node = node
        self._faults = faults
        self._journal = journal
        self._posted: dict[str, dict[tuple[str, str], float]] = {}
        self._posts: set[asyncio.Task[None]] = set()

    async def annotate(self, pod: Obj, changes: Mapping[str, str | None], patch_type: str = STRATEGIC) -> Obj:
        """Patch annotations of exactly this pod. Raises :class:`KubeStatusError`."""
        foreign = set(changes) - wire.AGENT_KEYS
        if foreign:
            raise ValueError(f"not the agent's keys: {sorted(foreign)}")
        body: Obj = {"metadata": {"uid": podview.uid_of(pod), "annotations": dict(changes)}}
        kind = next((kind for key, kind in _KINDS if key in changes), "other")
        await self._suffer(f"patch.annotations.{kind}", pod)
        answer = await self._kube.patch(_path(pod), body, patch_type)
        self._note("annotate", pod, answer, changes=dict(changes))
        return answer

    async def set_status(self, pod: Obj, status: Obj) -> Obj:
        """Merge-patch the status, and nothing else, of exactly this pod (R0.11). Raises :class:`KubeStatusError`."""
        body: Obj = {"metadata": {"uid": podview.uid_of(pod)}, "status": status}
        await self._suffer("patch.status", pod)
        answer = await self._kube.patch(f"{_path(pod)}/status", body, MERGE)
        self._note("status", pod, answer, phase=status.get("phase"), ready=_ready(status))
        return answer

    async def overwrite_status(self, pod: Obj) -> Obj:
        """Update the whole status from this copy of the pod, as the framework does (R0.11, F-12).

        Without a resourceVersion to check, labels and annotations of an old copy replace the present ones. Raises
        :class:`KubeStatusError`.
        """
        body = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "0"}}
        answer = await self._kube.put(f"{_path(pod)}/status", body)
        self._note("overwrite-status", pod, answer)
        return answer

    async def delete(self, pod: Obj, *, grace: int | None) -> None:
        """Delete exactly this pod; gone already is success. ``grace`` in seconds, None the pod's own."""
        body: Obj = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": podview.uid_of(pod)}}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        await self._suffer("pod.delete", pod)
        try:
            answer = await self._kube.delete(_path(pod), body)
        except KubeStatusError as error:
            if error.status not in {404, 409}:
                raise
            answer = {}
        self._note("delete", pod, answer, grace=grace)

    def event(self, pod: Obj, kind: str, reason: str, message: str) -> None:
        """Post an event in the background, Normal or Warning; a repetition within 10 s is folded into the first."""
        self._journal.api("event", pod=podview.key_of(pod), uid=podview.uid_of(pod), type=kind, reason=reason)
        if self._is_news(podview.uid_of(pod), (reason, message)):
            task = asyncio.get_running_loop().create_task(self._post_event(pod, kind, reason, message))
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    def _is_news(self, uid: str, event: tuple[str, str]) -> bool:
        now = time.monotonic()
        posted = self._posted.setdefault(uid, {})
        news = now - posted.get(event, float("-inf")) > _EVENT_FOLD
        if news:
            posted[event] = now
        return news

    def forget(self, uid: str) -> None:
        """Drop what is remembered of the events of a pod that is gone."""
        self._posted.pop(uid, None)

    async def _post_event(self, pod: Obj, kind: str, reason: str, message: str) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Obj = {
            "metadata": {"generateName": f"{name}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace,
                "name": name,
                "uid": podview.uid_of(pod),
            },
            "type": kind,
            "reason": reason,
            "message": message[:_EVENT_LIMIT],
            "source": {"component": f"{self._node}/pod-controller"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._kube.post(f"/api/v1/namespaces/{namespace}/events", body)
        except KubeStatusError as error:
            self._journal.api("event-lost", reason=reason, error=str(error))

    async def settle(self) -> None:
        """Wait briefly for events on their way."""
        if self._posts:
            await asyncio.wait(set(self._posts), timeout=2)

    async def _suffer(self, point: str, pod: Obj) -> None:
        try:
            await self._faults.hit(point, podview.annotation(pod, wire.VM_NAME))
        except FaultError as fault:
            raise KubeStatusError(fault.status, "Fault", str(fault)) from fault

    def _note(self, op: str, pod: Obj, answer: Obj, **details: object) -> None:
        version = (answer.get("metadata") or {}).get("resourceVersion", "")
        self._journal.api(op, pod=podview.key_of(pod), uid=podview.uid_of(pod), resourceVersion=version, **details)


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _ready(status: Obj) -> str:
    conditions: list[Obj] = status.get("conditions") or []
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "")
