"""From a VM that was made to a pod that is ready: runtime annotations, first status, post-clone work, ``ready`` (2.8)."""

from __future__ import annotations

import asyncio
import base64

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.faults import FaultError
from cocoon_devkit.agent.lifecycle import allowed
from cocoon_devkit.agent.records import VMRecord
from cocoon_devkit.agent.tracked import Tracked


async def attach(context: Context, tracked: Tracked, vm: VMRecord) -> None:
    """Publish ``id`` and ``ip`` in one patch, start probing, report Running (R2.1 steps 7 and 8)."""
    tracked.vm_id = vm.id
    tracked.ip = context.probes.address(tracked)
    if context.faults.strikes("order.running-first", tracked.vm_name):
        await context.statuses.push(tracked)
    await context.lifecycle.patch(tracked, {wire.VM_ID: tracked.vm_id, wire.VM_IP: tracked.ip})
    await watch_vm(context, tracked)


async def watch_vm(context: Context, tracked: Tracked) -> None:
    """Probe at once and from now on, and report what is seen."""
    tracked.probe_ok = context.probes.once(tracked)
    context.background(tracked, "probe", context.probes.follow(tracked))
    await context.statuses.push(tracked)


async def promote(context: Context, tracked: Tracked) -> None:
    """Report Ready first, then the lifecycle; without the first the second is withheld and retried (R1.24, N022)."""
    generation = podview.stamp(tracked.pod)
    if not allowed(tracked.intent, wire.READY, generation):
        return
    tracked.promoting = True
    try:
        if not await context.statuses.push(tracked):
            tracked.ready_owed = tracked.vm_id
            return
        tracked.ready_owed = ""
        await context.lifecycle.write(tracked, tracked.pod, wire.READY)
    finally:
        tracked.promoting = False


def finish_later(context: Context, tracked: Tracked, *, timeout_reason: str, done_reason: str = "") -> None:
    """Do the rest of a clone, a fork or a restore beside the pod's calls."""
    work = _finish(context, tracked, tracked.vm_id, timeout_reason, done_reason)
    context.background(tracked, "finish", work)


async def _finish(context: Context, tracked: Tracked, vm_id: str, timeout_reason: str, done_reason: str) -> None:
    if not await _post_clone(context, tracked, vm_id):
        return
    address = await _wait_for_address(context, tracked)
    async with tracked.work:
        if superseded(context, tracked, vm_id):
            return
        if not address:
            await _fail(context, tracked, timeout_reason, "the VM got no address in time")
            return
        await note_address(context, tracked, address)
        await promote(context, tracked)
        if done_reason:
            context.api.event(tracked.pod, "Normal", done_reason, f"VM {tracked.vm_name} is ready")


def superseded(context: Context, tracked: Tracked, vm_id: str) -> bool:
    """Whether the outcome no longer counts: another VM, a pod that is gone, or one that asks to sleep (R2.18)."""
    seen = context.informer.store.get(tracked.key, tracked.pod)
    asked = tracked.hibernate_asked or podview.flag(seen, wire.HIBERNATE)
    return not context.table.current(tracked) or tracked.vm_id != vm_id or asked or tracked.deleting


async def note_address(context: Context, tracked: Tracked, address: str) -> None:
    """Publish an address that was learned late (N024)."""
    if tracked.ip == address:
        return
    tracked.ip = address
    await context.lifecycle.patch(tracked, {wire.VM_IP: address})


async def _wait_for_address(context: Context, tracked: Tracked) -> str:
    windows = context.windows
    loop = asyncio.get_running_loop()
    end = loop.time() + windows.of(windows.ip_wait)
    while True:
        address = context.probes.address(tracked)
        if address or loop.time() >= end:
            return address
        await asyncio.sleep(windows.of(windows.ip_poll))


def needs_post_clone(tracked: Tracked) -> bool:
    """Windows and firecracker guests need work inside after a clone; a DHCP guest of cloud-hypervisor needs none (R2.17)."""
    return tracked.request.os == "windows" or tracked.request.backend == "firecracker"


async def _post_clone(context: Context, tracked: Tracked, vm_id: str) -> bool:
    """Do the guest's post-clone work, fault ``postclone``. Returns whether the VM may become ready."""
    if not needs_post_clone(tracked):
        return True
    await context.lifecycle.patch(tracked, {wire.POST_CLONE_STATE: "running"})
    try:
        await context.faults.hit("postclone", tracked.vm_name)
    except FaultError as fault:
        async with tracked.work:
            if not superseded(context, tracked, vm_id):
                await _post_clone_failed(context, tracked, str(fault))
        return False
    await context.lifecycle.patch(tracked, {wire.POST_CLONE_STATE: "done"})
    context.api.event(tracked.pod, "Normal", "PostCloneSucceeded", f"VM {tracked.vm_name} was set up")
    return True


async def _post_clone_failed(context: Context, tracked: Tracked, error: str) -> None:
    hint = base64.b64encode(b"#!/bin/sh\ndhclient -r && dhclient\n").decode()
    changes = {wire.POST_CLONE_STATE: "failed", wire.POST_CLONE_HINT: hint, wire.POST_CLONE_ERRORS: error}
    await context.lifecycle.patch(tracked, changes)
    await _fail(context, tracked, "PostCloneExecExhausted", error)


async def _fail(context: Context, tracked: Tracked, reason: str, message: str) -> None:
    context.api.event(tracked.pod, "Warning", reason, message)
    await context.lifecycle.write(tracked, tracked.pod, wire.FAILED, message)
    await context.statuses.push(tracked)
