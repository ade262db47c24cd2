"""Waking a hibernated VM in place (R3.11). The tag is read, never moved or dropped: that is the operator's (R3.12)."""

from __future__ import annotations

from cocoon_devkit.agent import retry, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.create import BringUpError, publish_id_first, restore_vm
from cocoon_devkit.agent.readiness import attach, finish_later
from cocoon_devkit.agent.tracked import Tracked


async def wake(context: Context, tracked: Tracked) -> None:
    """Wake the VM of a pod; the caller holds ``tracked.work``. A failure leaves no VM and is retried later."""
    await context.lifecycle.write(tracked, tracked.pod, wire.CREATING)
    await context.lifecycle.patch(tracked, {wire.VM_ID: None, wire.VM_IP: None, wire.POST_CLONE_STATE: None})
    await publish_id_first(context, tracked)
    try:
        vm = await restore_vm(context, tracked)
    except BringUpError as error:
        context.api.event(tracked.pod, "Warning", error.reason, str(error))
        await context.lifecycle.write(tracked, tracked.pod, wire.FAILED, str(error))
        retry.later(context, tracked)
        return
    retry.settle(tracked)
    await attach(context, tracked, vm)
    finish_later(context, tracked, timeout_reason="WakeIPWaitTimeout", done_reason="Woken")
