"""A VM that stops or vanishes by itself: restarted in place, or its pod evicted (1.8)."""

from __future__ import annotations

import asyncio

from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.engine import EngineError
from cocoon_devkit.agent.kube import KubeStatusError
from cocoon_devkit.agent.records import VMRecord
from cocoon_devkit.agent.tracked import Tracked

_DELETE_ATTEMPTS = 2


def on_engine_event(context: Context, vm_name: str) -> None:
    """Look after a VM that the engine reported stopped or deleted; what the agent does itself is no loss (R1.29)."""
    tracked = context.table.by_vm_name(vm_name)
    if tracked is None or not tracked.has_vm or not tracked.request.managed:
        return
    if not tracked.hibernating and not tracked.deleting:
        context.background(tracked, "loss", _look(context, tracked, tracked.vm_id))


class _NoAnswerError(Exception):
    """The engine said nothing about a VM for half an hour."""


async def _look(context: Context, tracked: Tracked, vm_id: str) -> None:
    """Ask first, then act while nothing else works on the pod: its own delete must find it forgotten."""
    vm, answered = None, True
    try:
        vm = await _inspect(context, tracked)
    except _NoAnswerError:
        answered = False
    async with tracked.work:
        if not context.table.current(tracked) or tracked.vm_id != vm_id:
            return
        if answered:
            await _decide(context, tracked, vm)
        else:
            await _evict(context, tracked, "VMInspectTimeout")


async def _inspect(context: Context, tracked: Tracked) -> VMRecord | None:
    """Ask the engine until it answers, at most for half an hour (R1.27). Raises :class:`_NoAnswerError`."""
    windows = context.windows
    loop = asyncio.get_running_loop()
    end = loop.time() + windows.of(windows.inspect_total)
    pause = windows.inspect_first
    while loop.time() < end:
        try:
            return await context.engine.inspect(tracked.vm_name)
        except EngineError:
            await asyncio.sleep(windows.of(pause))
            pause = min(pause * 2, windows.inspect_max)
    raise _NoAnswerError(tracked.vm_name)


async def _decide(context: Context, tracked: Tracked, vm: VMRecord | None) -> None:
    if vm is None:
        await _evict(context, tracked, "VMGone")
        return
    if vm.state == "running":
        return
    now = asyncio.get_running_loop().time()
    if now - tracked.restarted_at < context.windows.of(context.windows.restart_cooldown):
        await _remove_and_evict(context, tracked, "RestartCooldown")
        return
    tracked.restarted_at = now
    try:
        await context.engine.start(vm)
    except EngineError:
        await _remove_and_evict(context, tracked, "RestartFailed")


async def _remove_and_evict(context: Context, tracked: Tracked, reason: str) -> None:
    """A VM that cannot be removed keeps its pod."""
    try:
        await context.engine.remove(tracked.vm_name)
    except EngineError as error:
        context.journal.engine("evict-blocked", vm=tracked.vm_name, error=str(error))
        return
    await _evict(context, tracked, reason)


async def _evict(context: Context, tracked: Tracked, reason: str) -> None:
    """Delete the pod, forget it, report the reason, in this order; without the delete nothing changes (R1.28, N184)."""
    for attempt in range(_DELETE_ATTEMPTS):
        try:
            await context.api.delete(tracked.pod, grace=None)
            break
        except KubeStatusError as error:
            if attempt == _DELETE_ATTEMPTS - 1:
                context.journal.api("evict-failed", pod=tracked.key, error=str(error))
                return
    context.table.forget(tracked)
    await context.statuses.push_evicted(tracked, reason)
