"""Snapshots that must not be restored and are not destroyed: moved aside, then the VM boots fresh (design 4.3 rule 5, 4.4).

Two reasons lead here: the user asks for a fresh start by name, or the spec asks for another machine than the one that was
saved. Either way the names are stored in the status first, so that a half-done move goes on after a crash and is not taken
for a snapshot that went missing.
"""

from __future__ import annotations

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Present
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import deadletter, history, records, tags
from cocoon_operator.reconcile.drift import drifted, other_machine
from cocoon_operator.reconcile.facts import Fact, has_vm, read
from cocoon_operator.reconcile.hibernation.holds import told_saved
from cocoon_operator.reconcile.members import main_member, member_of, members_of
from cocoon_operator.reconcile.run import Next, Run


async def step(run: Run) -> Next:
    """Move what has to be moved; pods of these VMs go, and records of them no longer count."""
    stored = tags.stored_names(run, tags.MOVING_ASIDE) & _possible(run)
    stored -= await _overtaken(run, stored)
    wanted = stored if run.spec.suspend else stored | await _asked_for(run) | _other_machines(run)
    if not wanted:
        return Next.GO_ON
    run.snapshot = tags.state("False", tags.MOVING_ASIDE, wanted, "their snapshots are put aside before a fresh boot")
    run.phase = SetPhase.PENDING
    run.given_up |= wanted
    for name in wanted:
        run.records.pop(name, None)
    if wanted - stored:
        return Next.PERSIST
    if not await _moved(run, wanted):
        return Next.STOP
    if wanted & told_saved(item for item in run.hibernations.values() if item.name in run.driven):
        # Its word would count as a record as soon as the move is over; with this pass it takes it back.
        run.come_back(1)
        return Next.STOP
    return await _finish(run, wanted)


async def _overtaken(run: Run, stored: frozenset[str]) -> frozenset[str]:
    """Names that nobody asks for any more: a VM that lives by now, or sleeps with its tag where it was and fits the spec."""
    found: set[str] = set()
    for pod in run.live:
        name, member = run.vm_name(pod), member_of(run.set, run.spec, pod)
        if member is None or name not in stored - set(records.fresh_names(run.set)):
            continue
        if has_vm(pod) or (
            not other_machine(pod, run.spec, member) and isinstance(await tags.probe(run, name), Present)
        ):
            found.add(name)
    return frozenset(found)


def _possible(run: Run) -> frozenset[str]:
    return frozenset({m.vm_name for m in members_of(run.set, run.spec) if m.managed} | run.own_names)


async def _asked_for(run: Run) -> frozenset[str]:
    """The names of ``start-fresh`` that are the set's; others are refused by an event and taken out."""
    asked = frozenset(records.fresh_names(run.set))
    refused = asked - _possible(run)
    for name in sorted(refused):
        run.event("Warning", "StartFreshRefused", f"{keys.START_FRESH}: {name} is no VM of this set")
    if refused or (not asked and keys.START_FRESH in run.set.annotations):
        await run.annotate_set({keys.START_FRESH: records.names_text(asked - refused) or None})
    return asked - refused


def _other_machines(run: Run) -> frozenset[str]:
    """VMs that are asleep, where the spec now asks for another image, backend or OS (W-13)."""
    asleep = [pod for pod in run.live if read(pod) in (Fact.ASLEEP, Fact.LOST) and not run.held(pod.name)]
    found = [(pod, member_of(run.set, run.spec, pod)) for pod in asleep]
    return frozenset(
        run.vm_name(pod) for pod, member in found if member is not None and other_machine(pod, run.spec, member)
    )


async def _moved(run: Run, wanted: frozenset[str]) -> bool:
    """Move the tags, then delete the pods; True when neither is left."""
    done = True
    for name in sorted(wanted):
        if other := tags.rival(run, name):
            tags.report_rival(run, name, other)
            return False
        orphan = await tags.move_aside(run, name)
        if orphan is None:
            return False
        if orphan:
            run.event(
                "Normal",
                "SnapshotMovedAside",
                f"{name}:{keys.TAG_HIBERNATE} is now {name}:{orphan}; {name} boots fresh",
            )
        for pod in run.owned:
            if run.vm_name(pod) == name:
                done = False
                if not pod.terminating:
                    await _delete(run, pod)
    return done


async def _delete(run: Run, pod: Pod) -> None:
    """A dead letter whose spec was edited is lifted with that; a fresh start alone is one more try."""
    member = member_of(run.set, run.spec, pod)
    if pod.dead_letter and member is not None and drifted(pod, run.spec, member):
        await deadletter.lift(run, member, pod)
    else:
        await run.delete(pod)


async def _finish(run: Run, wanted: frozenset[str]) -> Next:
    """Remove the request and what was on record; the create that follows finds neither tag nor record.

    The move is over in the status before the create, so that nobody takes the fresh VM for the one to be replaced.
    """
    changes = history.without_letters(run, wanted)
    if keys.START_FRESH in run.set.annotations:
        changes[keys.START_FRESH] = None
    if keys.SNAPSHOT_DIGESTS in run.set.annotations:
        changes[keys.SNAPSHOT_DIGESTS] = records.digests_text(run.records)
    if main_member(run.set).vm_name in wanted and keys.HINT_NODE in run.set.annotations:
        changes[keys.HINT_NODE] = None
    await run.annotate_set(changes)
    run.snapshot = tags.state("False", tags.WAKE_IN_PROGRESS, why="booting fresh")
    return Next.PERSIST
