"""The pod status that the agent reports (1.7): Pending and bare without a VM, Running with one container with a VM."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.kube import KubeStatusError
from cocoon_devkit.agent.podapi import PodApi
from cocoon_devkit.agent.settings import Windows
from cocoon_devkit.agent.tracked import Tracked
from cocoon_devkit.agent.wire import Obj

_ATTEMPTS = 3


class PodStatuses:
    """Composes and writes pod statuses; what is already persisted is not written again."""

    def __init__(self, api: PodApi, windows: Windows) -> None:
        self._api = api
        self._windows = windows

    async def push(self, tracked: Tracked, *, force: bool = False) -> bool:
        """Persist the status as the agent sees it now, three attempts. Returns whether it is persisted."""
        status = compose(tracked)
        if status == tracked.pushed_status and not force:
            return True
        return await self._write(tracked, status)

    async def push_evicted(self, tracked: Tracked, reason: str) -> bool:
        """Report a lost VM: phase Failed, the container terminated with exit code 1 (R1.28)."""
        state = {"terminated": {"exitCode": 1, "reason": reason, "finishedAt": _now()}}
        container = {**_container(tracked, ready=False), "started": False, "state": state}
        status = {"phase": "Failed", "reason": reason, "conditions": None, "containerStatuses": [container]}
        return await self._write(tracked, status)

    async def push_succeeded(self, tracked: Tracked) -> bool:
        """Report the end of a delete (R4.1 step 10)."""
        return await self._write(tracked, {"phase": "Succeeded"})

    async def push_provider_failed(self, pod: Obj, message: str) -> None:
        """Report what the framework reports of a provider error (R1.18)."""
        never = (pod.get("spec") or {}).get("restartPolicy") == "Never"
        status = {"phase": "Failed" if never else "Pending", "reason": "ProviderFailed", "message": message[:1024]}
        try:
            await self._api.set_status(pod, status)
        except KubeStatusError:
            return

    async def _write(self, tracked: Tracked, status: Obj) -> bool:
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._windows.of(self._windows.patch_pause))
            try:
                answer = await self._api.set_status(tracked.pod, status)
            except KubeStatusError as error:
                if error.replaced:
                    return False
                continue
            tracked.pushed_status = status
            tracked.pushed_at = podview.version_of(answer)
            return True
        return False

    def adopt(self, tracked: Tracked) -> None:
        """Start from what the pod's status says, so that a restart does not make Ready flap (N186)."""
        status = tracked.pod.get("status") or {}
        tracked.start_time = status.get("startTime") or ""
        ready = next((each for each in status.get("conditions") or [] if each["type"] == "Ready"), None)
        if ready is not None:
            tracked.ready_since = (ready["status"], ready.get("lastTransitionTime") or "")
        if not differs(compose(tracked), status):
            tracked.pushed_status = compose(tracked)


def is_ready(tracked: Tracked) -> bool:
    """The probe succeeded and the lifecycle is, or is about to be, ``ready`` (R1.22, N021)."""
    state = tracked.intent.state if tracked.intent is not None else ""
    return tracked.probe_ok and (tracked.promoting or state == wire.READY)


def compose(tracked: Tracked) -> Obj:
    """Return the status as a merge patch; None removes a field."""
    if not tracked.has_vm:
        return {
            "phase": "Pending",
            "reason": None,
            "message": None,
            "podIP": None,
            "podIPs": None,
            "conditions": None,
            "containerStatuses": None,
        }
    ready = is_ready(tracked)
    text = "True" if ready else "False"
    tracked.start_time = tracked.start_time or _now()
    if tracked.ready_since[0] != text:
        tracked.ready_since = (text, _now())
    since = tracked.ready_since[1]
    return {
        "phase": "Running",
        "reason": None,
        "message": None,
        "podIP": tracked.ip or None,
        "podIPs": [{"ip": tracked.ip}] if tracked.ip else None,
        "startTime": tracked.start_time,
        "conditions": [
            {"type": "Ready", "status": text, "lastTransitionTime": since},
            {"type": "Initialized", "status": "True", "lastTransitionTime": tracked.start_time},
        ],
        "containerStatuses": [_container(tracked, ready=ready)],
    }


def differs(wanted: Obj, seen: Obj) -> bool:
    """Whether a persisted status is not what the agent reports: phase, address, conditions, container (R1.25)."""
    if wanted["phase"] != seen.get("phase") or wanted["podIP"] != seen.get("podIP"):
        return True
    return _conditions(wanted) != _conditions(seen) or _containers(wanted) != _containers(seen)


def _conditions(status: Obj) -> dict[str, str]:
    conditions: list[Obj] = status.get("conditions") or []
    return {each["type"]: each["status"] for each in conditions if each["type"] in {"Ready", "Initialized"}}


def _containers(status: Obj) -> list[tuple[str, bool, list[str]]]:
    containers: list[Obj] = status.get("containerStatuses") or []
    return [(each["name"], each["ready"], sorted(each.get("state") or {})) for each in containers]


def _container(tracked: Tracked, *, ready: bool) -> Obj:
    containers = (tracked.pod.get("spec") or {}).get("containers") or [{}]
    return {
        "name": "agent",
        "image": containers[0].get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": tracked.start_time or _now()}},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
