"""Deleting a pod to make it again: whether it may go (invariant I1), and how a failed one goes."""

from __future__ import annotations

from typing import Final

from cocoon_operator.api.answers import Present
from cocoon_operator.api.errors import ConflictError
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import tags
from cocoon_operator.reconcile.facts import Fact, has_vm, read
from cocoon_operator.reconcile.run import Run

TRIES: Final = 3


async def replaceable(run: Run, pod: Pod) -> bool:
    """The user changed a VM that is ready, one that failed for good, or one that has no node yet.

    Not while a tag may lie behind a living one: the new image would come up with the old memory (design 4.3 rule 2). A VM that
    lives and is not ready is waited for; one that sleeps is met by the edit at its wake.
    """
    if pod.hibernate:
        return False
    match read(pod):
        case Fact.AWAKE:
            return not tags.owed(run, run.vm_name(pod))
        case Fact.LOST:
            return isinstance(await tags.probe(run, run.vm_name(pod)), Present)
        case Fact.STARTING:
            # On a node its agent may be bringing the VM up, and would have it beside the next one (I3).
            return pod.spec.node_name == ""
        case Fact.DEAD:
            return True
        case _:
            return False


async def read_failed(run: Run, pod: Pod) -> Pod | None:
    """Read a failed pod live: its agent keeps trying the boot that fails, so a cached view is always behind.

    None when it is gone. Raises :class:`ConflictError` when its VM came up after all.
    """
    live = await run.ctx.cluster.get_pod(pod.namespace, pod.name)
    if live is None or live.uid != pod.uid:
        run.pods.pop(pod.name, None)
        return None
    if not _failed(live):
        raise _came_up(live)
    return live


async def delete_failed(run: Run, pod: Pod, *, spare_vm: bool = False) -> None:
    """Delete a failed pod by what a live read says of it; with ``spare_vm`` not one whose VM runs, failed or not.

    Raises :class:`ConflictError` when the VM came up after all, or the pod changes faster than it can be deleted.
    """
    for left in reversed(range(TRIES)):
        live = await read_failed(run, pod)
        if live is None:
            return
        if spare_vm and has_vm(live):
            raise _came_up(live)
        try:
            await run.delete(live)
        except ConflictError:
            if not left:
                raise
        else:
            return


def _came_up(pod: Pod) -> ConflictError:
    return ConflictError(f"pod {pod.name} came up after all")


def _failed(pod: Pod) -> bool:
    """Failed, or on its way to the next failure."""
    fact = read(pod)
    return fact in (Fact.DEAD, Fact.LOST) or (fact is Fact.STARTING and pod.vm_id == "")
