"""What a change of a tracked pod asks for: a live snapshot, then sleep, wake, or an echo of the generation (3.1, 3.5)."""

from __future__ import annotations

from cocoon_devkit.agent import livesnapshot, podview, retry
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.create import ProviderError, create_pod
from cocoon_devkit.agent.hibernate import hibernate, lift
from cocoon_devkit.agent.tracked import Tracked
from cocoon_devkit.agent.wake import wake
from cocoon_devkit.agent.wire import Obj


async def update_pod(context: Context, pod: Obj) -> None:
    """Take a newer copy of a pod over and act on it. Raises :class:`ProviderError`."""
    tracked = context.table.get(podview.key_of(pod))
    if tracked is None or tracked.uid != podview.uid_of(pod):
        # A namesake with another UID arrives as an update while its predecessor is still tracked (R1.17).
        if tracked is not None:
            context.table.forget(tracked)
        await create_pod(context, pod)
        return
    if tracked.resumed:
        raise ProviderError("work owed since the restart is still running")
    async with tracked.work:
        if not context.table.current(tracked):
            raise ProviderError("the pod was let go meanwhile")
        tracked.replace_pod(pod)
        await livesnapshot.serve(context, tracked)
        await dispatch(context, tracked)


async def dispatch(context: Context, tracked: Tracked) -> None:
    """Act on the pod's inputs; the caller holds ``tracked.work``."""
    if tracked.request.managed and not retry.waits_for(tracked):
        if tracked.hibernate_asked and tracked.has_vm:
            await hibernate(context, tracked)
            return
        if not tracked.hibernate_asked and not tracked.has_vm:
            await wake(context, tracked)
            return
        retry.settle(tracked)
        if not tracked.hibernate_asked and await lift(context, tracked):
            return
    await context.lifecycle.echo_generation(tracked, tracked.pod)
