"""Bring-up of a pod that the agent does not track yet (contract, section 2)."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable
from typing import TypeVar

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.engine import EngineError
from cocoon_devkit.agent.readiness import attach, finish_later, promote, watch_vm
from cocoon_devkit.agent.records import VMRecord
from cocoon_devkit.agent.registryclient import Fetched, ManifestNotFoundError, RegistryError
from cocoon_devkit.agent.source import SourceError, drop_snapshot, fork_name, resolve
from cocoon_devkit.agent.tracked import Tracked
from cocoon_devkit.agent.wire import Obj

ResultT = TypeVar("ResultT")


class ProviderError(Exception):
    """An operation on a pod failed; the framework reports it and tries again (R1.18)."""


class BringUpError(ProviderError):
    """A VM could not be made. ``reason`` is the event's."""

    def __init__(self, message: str, reason: str = "CreateBringUpFailed") -> None:
        super().__init__(message)
        self.reason = reason


async def create_pod(context: Context, pod: Obj) -> None:
    """Make, adopt or restore the VM of a pod and report it. Raises :class:`ProviderError`."""
    if not podview.annotation(pod, wire.VM_NAME):
        raise ProviderError(f"pod has no annotation {wire.VM_NAME}")
    check_cpu_class(context, pod)
    tracked = context.table.track(pod)
    async with tracked.work:
        await context.lifecycle.write(tracked, pod, wire.CREATING)
        try:
            await _bring_up(context, tracked)
        except BringUpError as error:
            context.api.event(pod, "Warning", error.reason, str(error))
            await context.lifecycle.write(tracked, pod, wire.FAILED, str(error))
            context.table.forget(tracked)
            raise


def check_cpu_class(context: Context, pod: Obj) -> None:
    """A pod that demands another CPU class than the node's is refused (R1.14). Raises :class:`ProviderError`."""
    wanted = ((pod.get("spec") or {}).get("nodeSelector") or {}).get(wire.NODE_CPU_CLASS, "")
    if wanted and wanted != context.settings.cpu_class and not podview.terminal(pod):
        raise ProviderError(f"pod demands CPU class {wanted!r}, the node is of {context.settings.cpu_class!r}")


async def _bring_up(context: Context, tracked: Tracked) -> None:
    if await _adopt(context, tracked):
        return
    if not tracked.request.managed:
        await _static(context, tracked)
        return
    await publish_id_first(context, tracked)
    if await _restore_wanted(context, tracked):
        await _restore(context, tracked)
    else:
        await _boot(context, tracked)


async def _adopt(context: Context, tracked: Tracked) -> bool:
    """Take over a VM that has the pod's VM name (R2.1 step 4, N035); one that was never finished is cleared away."""
    vm = context.engine.by_name(tracked.vm_name) if tracked.request.managed else None
    if vm is None:
        return False
    try:
        if vm.state == "creating":
            await context.engine.remove(vm.name)
            return False
        if vm.state != "running":
            await context.engine.start(vm)
    except EngineError as error:
        raise BringUpError(str(error)) from error
    context.journal.engine("adopt", vm=vm.name, id=vm.id)
    await attach(context, tracked, vm)
    await promote(context, tracked)
    return True


async def publish_id_first(context: Context, tracked: Tracked) -> None:
    """Publish the id of a VM that is not there yet, where fault ``order.id-first`` asks for it (F-20)."""
    if context.faults.strikes("order.id-first", tracked.vm_name):
        await context.lifecycle.patch(tracked, {wire.VM_ID: context.engine.reserve(tracked.vm_name), wire.VM_IP: ""})


async def _static(context: Context, tracked: Tracked) -> None:
    """An unmanaged pod brings its VM along; nothing is called and nothing rewritten (R2.12)."""
    vm_id, address = (podview.annotation(tracked.pod, key) for key in (wire.VM_ID, wire.VM_IP))
    if not vm_id or not address:
        raise BringUpError(f"an unmanaged pod needs {wire.VM_ID} and {wire.VM_IP}")
    tracked.vm_id, tracked.ip = vm_id, address
    await watch_vm(context, tracked)
    await promote(context, tracked)


# -- restore --------------------------------------------------------------------------------------------------------


async def _restore_wanted(context: Context, tracked: Tracked) -> bool:
    """The marker asks for a restore; without it a ``:hibernate`` tag is evidence of one (R2.14, R2.15)."""
    marked = podview.flag(tracked.pod, wire.RESTORE)
    fetched = await _evidence(context, tracked)
    if fetched is None:
        return marked
    request = tracked.request
    if not marked and (request.fork_from or request.clone_from_dir):
        raise BringUpError("the VM has saved state, but the pod names another source", "HibernateEvidenceFailed")
    base = (fetched.body.get("annotations") or {}).get(wire.BASE_IMAGE, "")
    if base and base != request.image:
        raise BringUpError(
            f"the saved state is of image {base}, the pod's is {request.image}", "HibernateEvidenceFailed"
        )
    if not marked:
        message = f"{request.vm_name} has saved state: restoring it"
        context.api.event(tracked.pod, "Warning", "HibernateSnapshotExists", message)
    return True


async def _evidence(context: Context, tracked: Tracked) -> Fetched | None:
    """Return the saved state's manifest, None when the registry says that there is none. No answer refuses the boot."""
    if context.registry is None:
        return None
    try:
        return await context.registry.fetch(tracked.vm_name, wire.TAG_HIBERNATE)
    except ManifestNotFoundError:
        return None
    except RegistryError as error:
        context.api.event(tracked.pod, "Warning", "HibernateEvidenceUnavailable", str(error))
        raise BringUpError(f"cannot tell whether there is saved state: {error}", "HibernateEvidenceFailed") from error


async def _restore(context: Context, tracked: Tracked) -> None:
    try:
        vm = await restore_vm(context, tracked)
    except BringUpError as error:
        raise BringUpError(str(error)) from error
    await attach(context, tracked, vm)
    finish_later(context, tracked, timeout_reason="WakeIPWaitTimeout")


async def restore_vm(context: Context, tracked: Tracked) -> VMRecord:
    """Make the VM from its saved state. Raises :class:`BringUpError` with a wake's reasons; never boots fresh."""
    try:
        source = await resolve(context, tracked.vm_name)
    except SourceError as error:
        raise BringUpError(str(error), "WakePullFailed") from error
    try:
        return await context.engine.clone(tracked.request, source.name, restored=source.origin)
    except EngineError as error:
        raise BringUpError(str(error), "WakeCloneFailed") from error
    finally:
        if source.imported:
            context.background(tracked, "drop-import", drop_snapshot(context, source.name))


# -- fresh ----------------------------------------------------------------------------------------------------------


async def _boot(context: Context, tracked: Tracked) -> None:
    """Make a VM without saved state; the first source that applies wins (R2.1 step 6)."""
    request = tracked.request
    await drop_snapshot(context, fork_name(request.vm_name))
    if request.clone_from_dir:
        vm = await _from_directory(context, tracked)
    elif request.fork_from:
        vm = await _fork(context, tracked)
    elif request.mode == "run":
        vm = await _run(context, tracked)
    else:
        vm = await _clone(context, tracked)
    await attach(context, tracked, vm)
    if request.mode == "run" and not request.fork_from:
        await promote(context, tracked)
    else:
        finish_later(context, tracked, timeout_reason="PostCloneIPWaitTimeout")


async def _from_directory(context: Context, tracked: Tracked) -> VMRecord:
    request = tracked.request
    path = request.clone_from_dir
    if request.mode == "run" or request.fork_from:
        raise BringUpError("a clone from a directory goes with neither mode run nor a fork")
    if not path.startswith("/") or posixpath.normpath(path) != path:
        raise BringUpError(f"{path!r} is not a clean absolute path")
    return await _engine_call(context.engine.run(request, mode="clone"))


async def _fork(context: Context, tracked: Tracked) -> VMRecord:
    """Clone from the node's fork base of the source VM, which is saved once (R2.9)."""
    source = tracked.request.fork_from
    base = fork_name(source)
    async with context.flights[base]:
        if context.engine.snapshot(base) is None:
            vm = await _engine_call(context.engine.inspect(source))
            if vm is None:
                raise BringUpError(f"neither {base} nor the VM {source} is on this node")
            await _engine_call(context.engine.save(vm, base))
    return await _engine_call(context.engine.clone(tracked.request, base))


async def _run(context: Context, tracked: Tracked) -> VMRecord:
    """Boot an image; a snapshot artifact is not one (R2.8). What the registry does not have is the engine's to pull."""
    image = tracked.request.image
    if context.registry is not None and podview.is_ref(image):
        repository, tag = podview.split_ref(image)
        try:
            fetched = await context.registry.fetch(repository, tag)
        except ManifestNotFoundError:
            fetched = None
        except RegistryError as error:
            raise BringUpError(str(error)) from error
        if fetched is not None and fetched.body.get("artifactType") in {wire.SNAPSHOT_V1, wire.SNAPSHOT_V2}:
            raise BringUpError(f"{image} is a snapshot, which cannot be run")
    return await _engine_call(context.engine.run(tracked.request))


async def _clone(context: Context, tracked: Tracked) -> VMRecord:
    """Clone from a local snapshot of the image, pulled if it is not there (R2.4)."""
    name = podview.local_image_name(tracked.request.image)
    async with context.flights[name]:
        if context.engine.snapshot(name) is None:
            await _pull_image(context, tracked, name)
    return await _engine_call(context.engine.clone(tracked.request, name))


async def _pull_image(context: Context, tracked: Tracked, name: str) -> None:
    if context.registry is None:
        raise BringUpError(f"no local snapshot {name}, and no registry to pull it from")
    repository, tag = podview.split_ref(tracked.request.image)
    try:
        snapshot = await context.registry.pull(repository, tag, name, tracked.vm_name)
    except RegistryError as error:
        raise BringUpError(f"cannot pull {tracked.request.image}: {error}") from error
    snapshot.base = True
    context.engine.import_snapshot(snapshot)


async def _engine_call(call: Awaitable[ResultT]) -> ResultT:
    try:
        return await call
    except EngineError as error:
        raise BringUpError(str(error)) from error
