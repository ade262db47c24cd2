"""The agent's slow loops: unwritten lifecycle every 15 s, drifted status and addresses every 30 s (R1.25, R3.3)."""

from __future__ import annotations

import asyncio

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.podstatus import compose, differs
from cocoon_devkit.agent.readiness import note_address, promote, superseded
from cocoon_devkit.agent.tracked import Tracked


async def flush_forever(context: Context) -> None:
    """Repair lifecycle annotations, and finish a ``ready`` that was withheld (N022, N062)."""
    while True:
        await asyncio.sleep(context.windows.of(context.windows.flush))
        for tracked in context.table:
            await flush(context, tracked)


async def flush(context: Context, tracked: Tracked) -> None:
    """Repair one pod's lifecycle, unless something works on the pod right now."""
    if tracked.work.locked():
        return
    async with tracked.work:
        if tracked.ready_owed and not superseded(context, tracked, tracked.ready_owed):
            await promote(context, tracked)
        await context.lifecycle.flush(tracked)


async def repair_forever(context: Context) -> None:
    """Republish statuses that are not what the agent sees; the first time 10 s after the start."""
    pause = context.windows.status_drift / 3
    while True:
        await asyncio.sleep(context.windows.of(pause))
        pause = context.windows.status_drift
        for tracked in context.table:
            if not context.silent:
                await repair(context, tracked)


async def repair(context: Context, tracked: Tracked) -> None:
    """Repair one pod's status, address and, when its patch got lost, id."""
    seen = context.informer.store.get(tracked.key)
    if tracked.work.locked() or seen is None or podview.uid_of(seen) != tracked.uid or tracked.deleting:
        return
    async with tracked.work:
        if tracked.has_vm and tracked.request.managed:
            await note_address(context, tracked, context.probes.address(tracked) or tracked.ip)
            await _repair_annotations(context, tracked, podview.notes(seen))
        if podview.version_of(seen) >= tracked.pushed_at and differs(compose(tracked), seen.get("status") or {}):
            await context.statuses.push(tracked, force=True)


async def _repair_annotations(context: Context, tracked: Tracked, seen: dict[str, str]) -> None:
    missing: dict[str, str | None] = {}
    if seen.get(wire.VM_IP) != tracked.ip:
        missing[wire.VM_IP] = tracked.ip
    if seen.get(wire.VM_ID) != tracked.vm_id:
        missing[wire.VM_ID] = tracked.vm_id
    if missing:
        await context.lifecycle.patch(tracked, missing)
