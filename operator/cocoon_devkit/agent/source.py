"""Where a sleeping VM's state is: a verified local copy, else the registry (R3.13). The tag decides, never the copy alone."""

from __future__ import annotations

from dataclasses import dataclass

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.engine import EngineError, Origin
from cocoon_devkit.agent.records import SnapshotRecord
from cocoon_devkit.agent.registryclient import ManifestNotFoundError, RegistryClient, RegistryError


class SourceError(Exception):
    """There is no state to restore, or nobody can say so safely. Nothing was booted."""


@dataclass(frozen=True, slots=True)
class Source:
    """A local snapshot to clone from. ``imported`` copies are removed after use."""

    name: str
    origin: Origin
    imported: bool


def import_name(vm_name: str) -> str:
    return f"{vm_name}-hibernate-import"


def fork_name(vm_name: str) -> str:
    return f"fork-{vm_name}"


async def resolve(context: Context, vm_name: str) -> Source:
    """Find the saved state of a VM. Raises :class:`SourceError`; an unreachable registry keeps the local copy (fail closed)."""
    local = context.engine.snapshot(vm_name)
    if local is not None:
        digest = await verify(context, vm_name, local)
        if digest is not None:
            return Source(vm_name, Origin(digest, "local"), imported=False)
        await drop_local(context, vm_name)
    return await _pull(context, vm_name)


async def verify(context: Context, vm_name: str, local: SnapshotRecord) -> str | None:
    """Return the tag's digest when it names the local copy, "" without a registry, None when the copy is stale.

    Raises :class:`SourceError` when nobody can tell.
    """
    if context.registry is None:
        return ""
    try:
        fetched = await context.registry.fetch(vm_name, wire.TAG_HIBERNATE)
        saved = await context.registry.saved_id(vm_name, fetched)
    except ManifestNotFoundError:
        return None
    except RegistryError as error:
        raise SourceError(f"cannot verify the local copy: {error}") from error
    return fetched.digest if saved == local.id else None


async def _pull(context: Context, vm_name: str) -> Source:
    registry = _registry(context, vm_name)
    name = import_name(vm_name)
    try:
        snapshot = await registry.pull(vm_name, wire.TAG_HIBERNATE, name, vm_name)
        await context.engine.remove_snapshot(name)
    except (RegistryError, EngineError) as error:
        raise SourceError(f"cannot pull the saved state: {error}") from error
    context.engine.import_snapshot(snapshot)
    return Source(name, Origin(snapshot.digest, "pull"), imported=True)


def _registry(context: Context, vm_name: str) -> RegistryClient:
    if context.registry is None:
        raise SourceError(f"no local copy of {vm_name}, and no registry to pull from")
    return context.registry


async def drop_local(context: Context, vm_name: str) -> None:
    """Remove a VM's local copy and the fork base made of it; failures are only noted (R4.6)."""
    for name in (vm_name, fork_name(vm_name)):
        await drop_snapshot(context, name)


async def drop_snapshot(context: Context, name: str) -> None:
    try:
        await context.engine.remove_snapshot(name)
    except EngineError as error:
        context.journal.engine("remove-snapshot-failed", snapshot=name, error=str(error))
