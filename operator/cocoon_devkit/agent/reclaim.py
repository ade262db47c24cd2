"""The agent's own clearing of copies that no pod uses and no tag names, at the start and every 10 minutes (R4.12)."""

from __future__ import annotations

import asyncio

from cocoon_devkit.agent import podview
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.records import SnapshotRecord
from cocoon_devkit.agent.source import SourceError, drop_local, drop_snapshot, verify

_PREFIX = "vk-"
_IMPORT = "-hibernate-import"


async def reclaim_forever(context: Context) -> None:
    """Reclaim at once, then again and again, while the switch ``cacheReclaim`` has ``in-agent``."""
    while True:
        if "in-agent" in context.settings.cache_reclaim:
            await reclaim(context)
        await asyncio.sleep(context.windows.of(context.windows.reclaim))


async def reclaim(context: Context) -> None:
    """Look at every local snapshot of a VM; without an answer from the registry a copy stays (N124-N130)."""
    for snapshot in context.engine.snapshots():
        name = snapshot.name
        if not name.startswith(_PREFIX) or _in_use(context, name):
            continue
        if name.endswith(_IMPORT) or ":" in name:
            await drop_snapshot(context, name)
        elif await _stale(context, snapshot):
            await drop_local(context, name)


def _in_use(context: Context, name: str) -> bool:
    """Whether a tracked pod has this VM name, its import, or this image."""
    owner = name.removesuffix(_IMPORT)
    return any(
        tracked.vm_name == owner or podview.local_image_name(tracked.request.image) == name for tracked in context.table
    )


async def _stale(context: Context, snapshot: SnapshotRecord) -> bool:
    if context.registry is None:
        return False
    try:
        stale = await verify(context, snapshot.name, snapshot) is None
    except SourceError:
        return False
    # A pod may have come while the registry was asked.
    return stale and not _in_use(context, snapshot.name)
