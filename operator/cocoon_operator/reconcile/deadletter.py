"""Dead letters: VMs that were made again as often as their budget allows, and failed each time (contract 4.10.1, W-51).

The pod stays for a person to look at, and keeps its seat. Where the set gives the seat up (annotation ``dead-letter-policy``),
the history remembers the dead letter instead, with what was said of the failure, and the pod goes. Either way nothing is made
again before a person does something about it: edits the VM, deletes the pod, or asks for a fresh start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent
from cocoon_operator.api.enums import Role
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import history, tags
from cocoon_operator.reconcile.drift import fingerprint
from cocoon_operator.reconcile.facts import Fact, has_vm, read
from cocoon_operator.reconcile.history import Entry, Letter
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.replace import delete_failed, read_failed
from cocoon_operator.reconcile.run import Run

BUDGET: Final = 4
"""How often a failed VM is made again."""
RETAIN: Final = "retain"
RELEASE: Final = "release"
MESSAGE_LIMIT: Final = 512
"""Characters that are remembered of what was said of a failure."""


async def give_up(run: Run, member: Member, pod: Pod) -> None:
    """Leave a pod as a dead letter: flagged, counted and told once. Not one that came up after all."""
    live = await read_failed(run, pod)
    flagged = await run.annotate(live, {keys.DEAD_LETTER: "true"}, guarded=True) if live is not None else None
    if flagged is None:
        return
    if member.role is Role.SUB_AGENT:
        run.ctx.measures.count("subagent_dead_letter_total", namespace=run.set.namespace, cocoonset=run.set.name)
    run.event("Warning", _reason(member), _left(member))
    await see_to(run, member, flagged)


async def lift(run: Run, member: Member, pod: Pod) -> None:
    """Delete a dead letter that an edit makes another VM: the budget is whole again, before the pod goes (S220)."""
    await history.forget(run, member)
    await run.delete(pod)


async def see_to(run: Run, member: Member, pod: Pod) -> None:
    """Say in the status that there is a dead letter, and free its seat if the set gives it up and no VM or state is lost."""
    wanted = _gives_seats_up(run)
    run.find(_reason(member), _left(member))
    entry = history.entry_of(run, member) or Entry(BUDGET)
    if wanted and await _nothing_to_lose(run, member, pod):
        await _release(run, member, pod, entry)
    elif entry.letter is not None and not wanted:
        # Asked for and taken back before the pod went: deleting it is again what lifts the dead letter.
        await history.remember(run, member, replace(entry, letter=None))


async def stands(run: Run, member: Member) -> bool:
    """Whether a member without a pod is a dead letter still. An edit that makes it another VM lifts it, budget and all."""
    entry = history.entry_of(run, member)
    if entry is None or entry.letter is None:
        return False
    if entry.letter.vm != fingerprint(run.spec, member):
        await history.forget(run, member)
        return False
    run.find(
        _reason(member),
        f"{_what(member)} exhausted {BUDGET} rebuilds; its pod was deleted to free the seat. It is made again for an edit, or "
        f"for {keys.START_FRESH}={member.vm_name}. It failed with: {entry.letter.message}",
    )
    return True


async def _release(run: Run, member: Member, pod: Pod, entry: Entry) -> None:
    """First the history, which keeps the slot empty; then the delete by a live read."""
    letter = Letter(fingerprint(run.spec, member), (pod.lifecycle_message or pod.status.phase)[:MESSAGE_LIMIT])
    await history.remember(run, member, replace(entry, letter=letter))
    await delete_failed(run, pod, spare_vm=True)
    run.event(
        "Normal", "DeadLetterReleased", f"pod {pod.name} deleted to free its seat; it failed with: {letter.message}"
    )


async def _nothing_to_lose(run: Run, member: Member, pod: Pod) -> bool:
    """Neither a VM, whatever its agent says of it, nor saved state (I1)."""
    if read(pod) not in (Fact.DEAD, Fact.LOST) or has_vm(pod) or member.vm_name in run.records:
        return False
    return not member.managed or isinstance(await tags.probe(run, member.vm_name), Absent)


def _gives_seats_up(run: Run) -> bool:
    text = run.set.annotations.get(keys.DEAD_LETTER_POLICY, RETAIN)
    if text not in (RETAIN, RELEASE):
        message = f"annotation {keys.DEAD_LETTER_POLICY}: {text!r} is neither {RETAIN} nor {RELEASE}; {RETAIN} is done"
        run.trouble("InvalidDeadLetterPolicy", message)
    return text == RELEASE


def _reason(member: Member) -> str:
    return "SubAgentDeadLetter" if member.toolbox is None else "ToolboxDeadLetter"


def _what(member: Member) -> str:
    return f"slot {member.slot}" if member.toolbox is None else f"toolbox {member.slot}"


def _left(member: Member) -> str:
    return f"{_what(member)} exhausted {BUDGET} rebuilds; pod {member.pod_name} left in dead-letter"
