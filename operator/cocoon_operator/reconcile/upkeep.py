"""What sub-agents and toolboxes have in common: each is looked at on its own, then the missing ones are made together."""

from __future__ import annotations

from collections.abc import Sequence

from cocoon_operator.api.answers import Absent
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import deadletter, rebuild, records, tags
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.creation import make, report_name_taken
from cocoon_operator.reconcile.drift import drifted, patch_in_place
from cocoon_operator.reconcile.facts import Fact, read
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.replace import replaceable
from cocoon_operator.reconcile.run import Next, Run


async def upkeep(run: Run, members: Sequence[Member]) -> Next:
    """Look after pods that exist, then make those that do not. One that fails does not stop the others (W-50)."""
    missing: list[Member] = []
    for member in members:
        pod = run.pods.get(member.pod_name)
        if pod is None:
            missing.append(member)
        elif not pod.owned_by(run.set.uid) or pod.role != member.role or pod.slot != member.slot:
            report_name_taken(run, member, pod, "is another pod")
        elif not pod.terminating and not run.held(pod.name):
            with apart(run):
                await _look_after(run, member, pod)
    wanted = [member for member in missing if await _to_be_made(run, member)]
    return await make(run, wanted) if wanted else Next.GO_ON


async def _to_be_made(run: Run, member: Member) -> bool:
    """Not what is held asleep, what is still being given up under this name, or a dead letter."""
    if run.held(member.pod_name) or member.vm_name in records.removing_names(run.set):
        return False
    with apart(run):
        return not await deadletter.stands(run, member)
    return False


async def _look_after(run: Run, member: Member, pod: Pod) -> None:
    """Dead letter, failure, drift, in this order."""
    edited = drifted(pod, run.spec, member)
    if pod.dead_letter:
        if edited:
            await deadletter.lift(run, member, pod)
        else:
            await deadletter.see_to(run, member, pod)
    elif await _failed(run, member, pod):
        if edited:
            await run.delete(pod)
        else:
            await rebuild.rebuild(run, member, pod)
    elif edited:
        if await replaceable(run, pod) and await run.delete(pod):
            run.event("Normal", "Recreating", f"{member.vm_name} is made again for the edited spec")
    else:
        await run.annotate(pod, patch_in_place(pod, run.spec, member))
        await rebuild.forgive(run, member, pod)


async def _failed(run: Run, member: Member, pod: Pod) -> bool:
    """Whether the VM failed for good; one that only failed to fall asleep or to wake has not (W-62)."""
    match read(pod):
        case Fact.DEAD:
            return True
        case Fact.LOST if member.managed:
            absent = isinstance(await tags.probe(run, member.vm_name), Absent)
            if absent and member.vm_name in run.records:
                await tags.put_back(run, member.vm_name)
                return False
            return absent
        case Fact.LOST:
            return True
        case _:
            return False
