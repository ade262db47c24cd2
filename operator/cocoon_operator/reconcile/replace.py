"""Whether a pod may be deleted to be made again: the one place that answers to invariant I1."""

from __future__ import annotations

from cocoon_operator.api.answers import Present
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import tags
from cocoon_operator.reconcile.facts import Fact, read
from cocoon_operator.reconcile.run import Run


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
