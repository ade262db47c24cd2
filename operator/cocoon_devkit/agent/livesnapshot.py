"""Live snapshots: a push of the running VM that a user asks for on its pod, and the one answer to it (R3.16-R3.29).

A reference gets one answer. Whether it has got it is read from the pod; with the switch ``strict`` the agent also remembers
its answers for as long as the pod lives (R3.22, R3.24).
"""

from __future__ import annotations

import json

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.engine import EngineError
from cocoon_devkit.agent.export import export
from cocoon_devkit.agent.kube import MERGE, KubeStatusError
from cocoon_devkit.agent.records import VMRecord
from cocoon_devkit.agent.registryclient import RegistryError
from cocoon_devkit.agent.source import drop_snapshot
from cocoon_devkit.agent.tracked import Tracked
from cocoon_devkit.agent.wire import Obj

_PUSHED = "pushed"
_FAILED = "failed"


def snapshot_name(vm_name: str) -> str:
    """Return the local name of a live snapshot: never the VM's own, whose copy is the cache of its saved state (R3.17)."""
    return f"snap-{vm_name}"


def owed(context: Context, tracked: Tracked, pod: Obj) -> str:
    """Return the request on a copy of a pod that the agent has to look at, "" when there is none or it is answered.

    A copy that is older than the agent's last answer is read with that answer in it: the agent knows its own write.
    """
    ref = podview.annotation(pod, wire.SNAPSHOT)
    if context.settings.live_snapshot == "off" or not ref:
        return ""
    seen = podview.annotation(pod, wire.SNAPSHOT_STATUS)
    if context.settings.live_snapshot == "deferred":
        if not tracked.request.managed:
            return ""
        if podview.version_of(pod) < tracked.answered_at:
            seen = tracked.answer
    return "" if _ref_of(seen) == ref else ref


async def serve(context: Context, tracked: Tracked) -> None:
    """Answer the pod's request, before anything else is done for the pod; the caller holds ``tracked.work`` (R3.21a)."""
    ref = owed(context, tracked, tracked.pod)
    if not ref:
        return
    if ref in tracked.answers:
        await _publish(context, tracked, tracked.answers[ref])
        return
    vm = await _running(context, tracked)
    if vm is not None and not tracked.hibernate_asked:
        await _answer(context, tracked, ref, await _push(context, tracked, vm, ref))
    elif context.settings.live_snapshot == "strict":
        await refuse(context, tracked, ref)


async def refuse(context: Context, tracked: Tracked, ref: str) -> None:
    """Answer at once that there is no VM to take (R3.23): the request is not served later."""
    await _answer(context, tracked, ref, "the VM does not run, or is asked to sleep")


async def _running(context: Context, tracked: Tracked) -> VMRecord | None:
    """Return the pod's VM if the engine says that it runs. A static pod's is not the agent's to take (R3.27)."""
    if not tracked.has_vm or not tracked.request.managed:
        return None
    try:
        vm = await context.engine.inspect(tracked.vm_name)
    except EngineError:
        return None
    return vm if vm is not None and vm.state == "running" else None


async def _push(context: Context, tracked: Tracked, vm: VMRecord, ref: str) -> str:
    """Save, push, drop the local copy. Returns what went wrong, "" when nothing did."""
    if not podview.is_ref(ref):
        return f"{ref!r} is not repository[:tag], relative to the registry"
    name = snapshot_name(vm.name)
    try:
        snapshot = await context.engine.save(vm, name)
        await export(context, tracked, snapshot, *podview.split_ref(ref))
    except (EngineError, RegistryError) as error:
        return str(error)
    finally:
        await drop_snapshot(context, name)
    return ""


async def _answer(context: Context, tracked: Tracked, ref: str, problem: str) -> None:
    answer = {"ref": ref, "state": _FAILED if problem else _PUSHED}
    if problem:
        answer["message"] = problem
    text = json.dumps(answer)
    if context.settings.live_snapshot == "strict":
        tracked.answers[ref] = text
    await _publish(context, tracked, text)


async def _publish(context: Context, tracked: Tracked, text: str) -> None:
    """Patch the one key (R3.20). A patch that is lost is not tried again here: the next update finds the request open."""
    try:
        written = await context.api.annotate(tracked.pod, {wire.SNAPSHOT_STATUS: text}, MERGE)
    except KubeStatusError:
        return
    tracked.answered_at, tracked.answer = podview.version_of(written), text
    tracked.remember({wire.SNAPSHOT_STATUS: text})


def _ref_of(text: str) -> str:
    """Return which request an answer is to; what cannot be read answers none (N143)."""
    try:
        answer = json.loads(text)
    except ValueError:
        return ""
    ref = answer.get("ref") if isinstance(answer, dict) else None
    return ref if isinstance(ref, str) else ""
