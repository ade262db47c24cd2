"""Exporting a local snapshot to the registry, under the VM's own name or any other (R3.28, R4.11)."""

from __future__ import annotations

from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.records import SnapshotRecord
from cocoon_devkit.agent.registryclient import RegistryError
from cocoon_devkit.agent.tracked import Tracked


async def export(context: Context, tracked: Tracked, snapshot: SnapshotRecord, repository: str, tag: str) -> None:
    """Push a snapshot of a pod's VM; meanwhile it is leased. Raises :class:`RegistryError`."""
    if context.registry is None:
        raise RegistryError("the agent has no registry")
    with context.engine.exporting(snapshot):
        await context.registry.push(
            repository,
            tag,
            snapshot,
            base_image=tracked.request.image,
            node=context.settings.name,
            vm=tracked.vm_name,
        )
