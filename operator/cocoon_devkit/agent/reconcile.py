"""What the agent makes of its node at a start: pods on one side, VMs on the other (1.9)."""

from __future__ import annotations

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.create import check_cpu_class
from cocoon_devkit.agent.engine import EngineError
from cocoon_devkit.agent.hibernate import hibernate
from cocoon_devkit.agent.readiness import finish_later, watch_vm
from cocoon_devkit.agent.records import VMRecord
from cocoon_devkit.agent.tracked import Tracked
from cocoon_devkit.agent.wire import Obj


async def reconcile(context: Context) -> None:
    """Match pods and VMs before anything else happens. Raises ``ProviderError`` on a foreign CPU class (R1.14)."""
    pods = list(context.informer.store.values())
    for pod in pods:
        check_cpu_class(context, pod)
    claimed: set[str] = set()
    for pod in pods:
        vm = await _match(context, pod)
        if vm is not None:
            claimed.add(vm.id)
    await _orphans(context, claimed)


async def _match(context: Context, pod: Obj) -> VMRecord | None:
    """Track a pod as the table says; returns its VM. What is not tracked arrives as a create later."""
    name = podview.annotation(pod, wire.VM_NAME)
    if not name or podview.terminal(pod):
        return None
    if not podview.flag(pod, wire.MANAGED):
        return None
    vm_id = podview.annotation(pod, wire.VM_ID)
    vm = context.engine.by_id(vm_id) if vm_id else _named(context, name)
    if vm is not None:
        await _track_with_vm(context, pod, vm, known=bool(vm_id))
        return vm
    if podview.flag(pod, wire.HIBERNATE):
        await _track_asleep(context, pod, stale=bool(vm_id))
    return None


def _named(context: Context, name: str) -> VMRecord | None:
    """Return the VM of that name; one whose creation never ended is not adopted (R1.32)."""
    vm = context.engine.by_name(name)
    return vm if vm is not None and vm.state != "creating" else None


async def _track_with_vm(context: Context, pod: Obj, vm: VMRecord, *, known: bool) -> None:
    tracked = context.table.track(pod)
    context.lifecycle.seed(tracked)
    tracked.vm_id = vm.id
    tracked.ip = context.probes.address(tracked)
    tracked.probe_ok = context.probes.once(tracked)
    context.statuses.adopt(tracked)
    if not known:
        context.journal.engine("adopt", vm=vm.name, id=vm.id)
        await context.lifecycle.patch(tracked, {wire.VM_ID: vm.id, wire.VM_IP: tracked.ip})
    await watch_vm(context, tracked)
    if not podview.deleting(pod):
        _resume(context, tracked, vm)


async def _track_asleep(context: Context, pod: Obj, *, stale: bool) -> None:
    """A hibernated pod; ids that survived the removal of its VM are cleared (N188)."""
    tracked = context.table.track(pod)
    context.lifecycle.seed(tracked)
    if stale:
        await context.lifecycle.patch(tracked, {wire.VM_ID: None, wire.VM_IP: None})
    context.statuses.adopt(tracked)
    await context.statuses.push(tracked)


def _resume(context: Context, tracked: Tracked, vm: VMRecord) -> None:
    """Take up what a crash interrupted (R1.31): a hibernation, or the way to ready."""
    state = tracked.intent.state if tracked.intent is not None else ""
    if tracked.hibernate_asked:
        tracked.resumed = True
        context.background(tracked, "resume", _resume_hibernation(context, tracked, vm))
    elif state in {"", wire.CREATING} and podview.annotation(tracked.pod, wire.POST_CLONE_STATE) != "failed":
        context.api.event(tracked.pod, "Normal", "ResumedAfterRestart", f"VM {vm.name} goes on to ready")
        finish_later(context, tracked, timeout_reason="PostCloneIPWaitTimeout")


async def _resume_hibernation(context: Context, tracked: Tracked, vm: VMRecord) -> None:
    try:
        async with tracked.work:
            context.api.event(tracked.pod, "Normal", "ResumedAfterRestart", f"VM {vm.name} is hibernated again")
            if vm.state != "running":
                await _start(context, tracked, vm)
            await hibernate(context, tracked)
    finally:
        tracked.resumed = False


async def _start(context: Context, tracked: Tracked, vm: VMRecord) -> None:
    try:
        await context.engine.start(vm)
    except EngineError as error:
        context.api.event(tracked.pod, "Warning", "ResumeStartFailed", str(error))


async def _orphans(context: Context, claimed: set[str]) -> None:
    """VMs that no pod claims: removed, or left alone (N190)."""
    for vm in context.engine.vms():
        if vm.id in claimed:
            continue
        context.journal.engine("orphan", vm=vm.name, id=vm.id, policy=context.settings.orphan_policy)
        if context.settings.orphan_policy == "destroy":
            try:
                await context.engine.remove(vm.name)
            except EngineError as error:
                context.journal.engine("orphan-removal-failed", vm=vm.name, error=str(error))
