"""The end of a pod: ``latest`` by policy, the VM, the local snapshots (contract, section 4)."""

from __future__ import annotations

import asyncio

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.create import ProviderError
from cocoon_devkit.agent.engine import EngineError
from cocoon_devkit.agent.export import export
from cocoon_devkit.agent.faults import FaultError
from cocoon_devkit.agent.registryclient import RegistryError
from cocoon_devkit.agent.source import drop_snapshot, fork_name
from cocoon_devkit.agent.tracked import Tracked
from cocoon_devkit.agent.wire import Obj
from cocoon_devkit.agent.workqueue import RetryForeverError


async def delete_pod(context: Context, pod: Obj) -> None:
    """Delete what a pod stands for; ``pod`` is the object that the framework hands over, and its keep flag counts (R4.7).

    Raises :class:`ProviderError` when the call must come again, :class:`RetryForeverError` when the VM was kept (R4.3).
    """
    tracked = context.table.get(podview.key_of(pod))
    if tracked is None:
        return
    if tracked.resumed:
        raise ProviderError("work owed since the restart is still running")
    if tracked.uid != podview.uid_of(pod):
        return
    if not tracked.request.managed:
        await _forget(context, tracked)
        return
    if tracked.deleting:
        raise ProviderError("a delete of this pod is in flight")
    tracked.deleting = True
    try:
        async with tracked.work:
            tracked.stop("retry")
            # Whoever held the pod before may have let it go: an eviction has told its end already.
            if context.table.current(tracked):
                await _delete(context, tracked, pod)
    finally:
        tracked.deleting = False


async def _delete(context: Context, tracked: Tracked, pod: Obj) -> None:
    try:
        await context.faults.hit("delete", tracked.vm_name)
        if tracked.has_vm:
            await _save_latest(context, tracked, pod)
            await context.engine.remove(tracked.vm_name)
            await _release_leases(context, tracked)
    except (FaultError, EngineError, RegistryError) as error:
        raise RetryForeverError(str(error)) from error
    tracked.vm_id = ""
    if not podview.flag(pod, wire.KEEP_SNAPSHOT):
        await _drop_snapshots(context, tracked.vm_name)
    await _forget(context, tracked)


async def _save_latest(context: Context, tracked: Tracked, pod: Obj) -> None:
    """Push ``latest`` of a running VM when the policy wants it (4.2); a VM that does not run has nothing to save."""
    if context.registry is None or not podview.wants_latest(pod):
        return
    vm = await context.engine.inspect(tracked.vm_name)
    if vm is None or vm.state != "running":
        return
    snapshot = await context.engine.save(vm, vm.name)
    await export(context, tracked, snapshot, vm.name, wire.TAG_LATEST)


async def _release_leases(context: Context, tracked: Tracked) -> None:
    """Give the VM's DHCP leases back, at best effort (R4.1 step 8, N171)."""
    context.journal.engine("release-leases", vm=tracked.vm_name)
    try:
        await context.faults.hit("lease.release", tracked.vm_name)
    except FaultError as fault:
        context.journal.engine("release-leases-failed", vm=tracked.vm_name, error=str(fault))


async def _drop_snapshots(context: Context, vm_name: str) -> None:
    """Remove the VM's local copies, each within its own limit; a recreate of the name waits for it (R4.6, N114)."""
    limit = context.windows.of(context.windows.cache_removal)
    for name in (vm_name, fork_name(vm_name)):
        try:
            await asyncio.wait_for(drop_snapshot(context, name), limit)
        except TimeoutError:
            context.journal.engine("remove-snapshot-late", snapshot=name)


async def _forget(context: Context, tracked: Tracked) -> None:
    context.table.forget(tracked)
    seen = context.informer.store.get(tracked.key)
    if seen is not None and podview.uid_of(seen) == tracked.uid:
        await context.statuses.push_succeeded(tracked)
    context.api.forget(tracked.uid)
