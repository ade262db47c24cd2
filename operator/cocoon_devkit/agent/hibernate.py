"""Putting a VM to sleep: save, push, remove, and what is undone when a step fails (R3.4, R3.6)."""

from __future__ import annotations

from cocoon_devkit.agent import retry, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.engine import EngineError
from cocoon_devkit.agent.export import export
from cocoon_devkit.agent.readiness import promote
from cocoon_devkit.agent.records import SnapshotRecord, VMRecord
from cocoon_devkit.agent.registryclient import RegistryError
from cocoon_devkit.agent.tracked import Tracked


class _StepError(Exception):
    """A step failed; ``reason`` is the event's."""

    def __init__(self, reason: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.reason = reason


async def hibernate(context: Context, tracked: Tracked) -> None:
    """Hibernate the VM of a pod; the caller holds ``tracked.work``. A failure leaves the VM running and is retried later."""
    tracked.stop("finish")
    tracked.hibernating = True
    try:
        await context.lifecycle.write(tracked, tracked.pod, wire.HIBERNATING)
        await _sleep(context, tracked)
    except _StepError as error:
        context.api.event(tracked.pod, "Warning", error.reason, str(error))
        await context.lifecycle.write(tracked, tracked.pod, wire.FAILED, f"{wire.HIBERNATE_PREFIX}{error}")
        await context.statuses.push(tracked)
        retry.later(context, tracked)
    else:
        retry.settle(tracked)
    finally:
        tracked.hibernating = False


async def _sleep(context: Context, tracked: Tracked) -> None:
    vm = context.engine.by_name(tracked.vm_name)
    if vm is None:
        raise _StepError("HibernateSnapshotFailed", EngineError("the VM is gone"))
    resized = await _drop_nic(context, tracked, vm)
    try:
        snapshot = await _save(context, vm)
        if context.faults.strikes("order.hibernated-first", tracked.vm_name):
            await context.lifecycle.write(tracked, tracked.pod, wire.HIBERNATED)
        await _push(context, tracked, snapshot)
        address = tracked.ip
        await context.lifecycle.patch(tracked, {wire.VM_ID: None, wire.VM_IP: None, wire.POST_CLONE_STATE: None})
        await _remove(context, tracked, vm, address)
    except _StepError:
        if resized:
            await context.engine.set_nic(vm, present=True)
        raise
    tracked.vm_id = tracked.ip = ""
    tracked.probe_ok = False
    tracked.stop("probe")
    await context.lifecycle.write(tracked, tracked.pod, wire.HIBERNATED)
    context.api.event(tracked.pod, "Normal", "Hibernated", f"VM {tracked.vm_name} is saved")
    await context.statuses.push(tracked)


async def _drop_nic(context: Context, tracked: Tracked, vm: VMRecord) -> bool:
    """A Windows guest of cloud-hypervisor is saved without its NIC."""
    if tracked.request.os != "windows" or tracked.request.backend != "cloud-hypervisor":
        return False
    try:
        await context.engine.set_nic(vm, present=False)
    except EngineError as error:
        raise _StepError("HibernateNetResizeFailed", error) from error
    return True


async def _save(context: Context, vm: VMRecord) -> SnapshotRecord:
    try:
        return await context.engine.save(vm, vm.name)
    except EngineError as error:
        raise _StepError("HibernateSnapshotFailed", error) from error


async def _push(context: Context, tracked: Tracked, snapshot: SnapshotRecord) -> None:
    """Without a registry the state is only local, and the VM sleeps all the same (R3.8)."""
    if context.registry is None:
        return
    try:
        await export(context, tracked, snapshot, tracked.vm_name, wire.TAG_HIBERNATE)
    except RegistryError as error:
        raise _StepError("HibernatePushFailed", error) from error


async def _remove(context: Context, tracked: Tracked, vm: VMRecord, address: str) -> None:
    """Remove the VM. If that fails the tag goes again, since it would name state that a living VM has left behind."""
    try:
        await context.engine.remove(vm.name)
    except EngineError as error:
        if context.registry is not None:
            await _untag(context, tracked)
        await context.lifecycle.patch(tracked, {wire.VM_ID: vm.id, wire.VM_IP: address})
        raise _StepError("HibernateRemoveFailed", error) from error


async def _untag(context: Context, tracked: Tracked) -> None:
    assert context.registry is not None
    try:
        await context.registry.drop(tracked.vm_name, wire.TAG_HIBERNATE)
    except RegistryError as error:
        context.journal.registry("rollback-failed", vm=tracked.vm_name, error=str(error))


async def lift(context: Context, tracked: Tracked) -> bool:
    """Take back a failure that hibernation caused, once nobody asks for sleep and the VM runs (R3.9). Returns whether it did."""
    intent = tracked.intent
    if intent is None or intent.state != wire.FAILED or not intent.message.startswith(wire.HIBERNATE_PREFIX):
        return False
    try:
        vm = await context.engine.inspect(tracked.vm_name)
    except EngineError:
        return False
    if vm is None or vm.state != "running":
        return False
    retry.settle(tracked)
    await context.lifecycle.write(tracked, tracked.pod, wire.CREATING)
    await promote(context, tracked)
    return True
