"""Waking: flags are cleared once it is safe, tags are dropped once a VM is proven live (contract 4.7, 4.8; design 4.3)."""

from __future__ import annotations

from collections.abc import Collection

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Done, Present, Unknown
from cocoon_operator.api.enums import LifecycleState, Role, SetPhase
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, kept, sweep, tags
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.drift import drifted
from cocoon_operator.reconcile.facts import Fact
from cocoon_operator.reconcile.members import main_member, member_of, members_of
from cocoon_operator.reconcile.run import Next, Run, SnapshotState
from cocoon_operator.reconcile.steps.migration import misplaced, moving
from cocoon_operator.reconcile.steps.surplus import is_surplus

_CLEARED: dict[str, str | None] = {keys.HIBERNATE: None, keys.KEEP_SNAPSHOT: None}


async def step(run: Run) -> Next:
    """Clear flags that nobody holds, then settle what a wake owes."""
    flagged = [pod for pod in run.live if pod.hibernate and _to_be_woken(run, pod)]
    # The flag is the only trace of the tag: the status has to know of it before the flag goes.
    if flagged and not tags.may_exist(run):
        run.phase = SetPhase.PENDING
        run.snapshot = _in_progress(run)
        return Next.PERSIST
    scope = tags.scoped(run)
    if scope and (untold := {run.vm_name(pod) for pod in flagged} - scope):
        run.snapshot = kept.resting(run, tags.stored_names(run, tags.TAG_DROP_PENDING), scope | untold)
        return Next.PERSIST
    for pod in flagged:
        if await _clear(run, pod) is Next.PERSIST:
            return Next.PERSIST
    if sweep.unswept(run):
        await sweep.sweep(run)
    elif scope:
        await _settle_named(run, scope)
    elif tags.may_exist(run) and not moving(run):
        await _settle(run)
    return Next.GO_ON


def _in_progress(run: Run) -> SnapshotState:
    """A save whose digest is not known is named here, so that it stays on record."""
    unknown = [name for name, digest in run.records.items() if not digest]
    return tags.state("False", tags.WAKE_IN_PROGRESS, unknown, "kept until the VM is proven live")


# -- flags -------------------------------------------------------------------------------------------------------------


async def _clear(run: Run, pod: Pod) -> Next:
    """Clear one flag. A sleeping VM's only with its tag present: the agent drops its local copy when it finds none."""
    with apart(run):
        if pod.managed and not facts.has_vm(pod) and pod.spec.node_name and not pod.dead_letter:
            if not await _safe_to_clear(run, pod):
                return Next.GO_ON
            if facts.read(pod) in (Fact.ASLEEP, Fact.LOST) and _edited(run, pod):
                return await _make_again(run, pod)
        await run.annotate(pod, _CLEARED, guarded=True)
    return Next.GO_ON


def _to_be_woken(run: Run, pod: Pod) -> bool:
    """Not what a CocoonHibernation holds, what is on its way to another node, or what is about to be removed."""
    if run.held(pod.name) or is_surplus(run, pod) or (pod.role == Role.MAIN and misplaced(run, pod)):
        return False
    if _save_in_flight(run, pod):
        run.find("SaveInFlight", f"{run.vm_name(pod)} is woken when the save that was begun is over")
        return False
    return True


def _save_in_flight(run: Run, pod: Pod) -> bool:
    """Whether the agent may be saving, and a cleared flag would leave no trace by which its answers can be told apart (I2).

    An edit raises the stamp, which the agent echoes. Without one, ``ready`` can be the word of an agent that is about to
    begin; so the flag of a CocoonHibernation that asks no more stays until the agent has said how its save ended.
    """
    if pod.generation < run.set.generation or pod.dead_letter or not pod.managed:
        return False
    return pod.lifecycle in (LifecycleState.READY, LifecycleState.HIBERNATING)


def _edited(run: Run, pod: Pod) -> bool:
    member = member_of(run.set, run.spec, pod)
    return member is not None and drifted(pod, run.spec, member)


async def _safe_to_clear(run: Run, pod: Pod) -> bool:
    """The tag was seen, or this VM was never put to sleep and no save of it is on record."""
    vm_name = run.vm_name(pod)
    answer = await tags.probe(run, vm_name)
    if isinstance(answer, Present):
        run.records.setdefault(vm_name, answer.digest)
        return True
    if not isinstance(answer, Absent):
        return False
    booting = facts.read(pod) is Fact.STARTING and pod.lifecycle in ("", LifecycleState.CREATING)
    if booting and not pod.restore and vm_name not in run.records:
        return True
    return await tags.put_back(run, vm_name) is not None


async def _make_again(run: Run, pod: Pod) -> Next:
    """A sleeping VM whose spec was edited: the pod is made from the new spec around the same snapshot (design 4.4)."""
    if pod.role == Role.MAIN and run.stored_phase != SetPhase.WAKING:
        run.phase = SetPhase.WAKING
        run.snapshot = _in_progress(run)
        return Next.PERSIST
    if facts.asleep_at(pod, pod.generation) or facts.read(pod) is Fact.LOST:
        await run.delete(pod)
    return Next.GO_ON


# -- settling ----------------------------------------------------------------------------------------------------------


async def _settle(run: Run) -> None:
    """Drop the tag behind every VM that is proven live; when none is left, the wake is over.

    Until then the status says that it is not, whatever goes wrong in between.
    """
    main = run.main
    asleep = run.held(main_member(run.set).pod_name)
    run.snapshot = _in_progress(run)
    if main is not None and not asleep:
        run.phase = _phase(run, main)
    owed: dict[str, str] = {}
    # All of them in a migration too: what a CocoonHibernation has let go meanwhile is not named any more.
    waking = [pod for pod in run.live if _wakes(run, pod) and not await _settled(run, pod, owed)]
    if not asleep and (main is None or main in waking):
        if main is not None:
            _report_no_capacity(run, main)
        return
    if waking:
        # Ready comes before the agent's last word, by which a tag may be dropped: the wake is not over with the last Ready.
        return
    run.phase = None
    wanted = {member.vm_name for member in members_of(run.set, run.spec)}
    if not (run.records.keys() & wanted) - owed.keys() - kept.held_names(run):
        await _finish(run, owed)


async def _settle_named(run: Run, names: frozenset[str]) -> None:
    """No wake of the whole set: drops that were refused or not answered, and VMs that a CocoonHibernation lets go."""
    pending = tags.stored_names(run, tags.TAG_DROP_PENDING)
    wanted = {member.vm_name for member in members_of(run.set, run.spec)}
    waking = (names & wanted) - kept.held_names(run)
    owed: dict[str, str] = {}
    for pod in run.live:
        if run.vm_name(pod) in names and _wakes(run, pod) and await _settled(run, pod, owed):
            waking -= {run.vm_name(pod)}
    main = run.main
    if main is not None and run.vm_name(main) in waking - pending:
        run.phase = _phase(run, main)
        _report_no_capacity(run, main)
    for name in waking & pending:
        owed.setdefault(name, "waiting for the VM to be ready")
    if owed or not waking:
        await _finish(run, owed, waking)
    else:
        run.snapshot = kept.resting(run, waking=waking)


def _wakes(run: Run, pod: Pod) -> bool:
    """Whether the end of the wake waits for this pod; a dead letter and what is about to be removed are not waited for."""
    return pod.managed and not run.held(pod.name) and not pod.dead_letter and not is_surplus(run, pod)


def _phase(run: Run, main: Pod) -> SetPhase:
    """A pod made around a snapshot shows ``Waking``, or goes on ``Migrating``; one that wakes in place ``Pending`` (S192)."""
    if run.stored_phase == SetPhase.MIGRATING:
        return SetPhase.MIGRATING
    hinted = main.restore and keys.HINT_NODE in run.set.annotations
    return SetPhase.WAKING if hinted or run.stored_phase == SetPhase.WAKING else SetPhase.PENDING


async def _settled(run: Run, pod: Pod, owed: dict[str, str]) -> bool:
    """Whether this VM is awake and its drop was tried; a drop that was not confirmed goes to ``owed``."""
    vm_name = run.vm_name(pod)
    if facts.read(pod) is not Fact.AWAKE:
        return False
    if run.memory.dropped.get(vm_name) == pod.uid:
        run.records.pop(vm_name, None)
        return True
    answer = await tags.drop_behind(run, pod)
    if answer is None:
        run.come_back(5)
        return False
    if isinstance(answer, Unknown):
        run.unanswered.add(vm_name)
    if not isinstance(answer, Done):
        owed[vm_name] = tags.why_not(answer)
    return True


async def _finish(run: Run, owed: dict[str, str], waking: Collection[str] = ()) -> None:
    """The end of a wake, told by the hint, which goes now, in place too (W-46). A failed drop does not hold it back."""
    hint = run.set.annotations.get(keys.HINT_NODE, "")
    main = run.main
    await run.annotate_set(kept.tidy(run))
    if hint and main is not None and main.restore and keys.HINT_NODE not in run.set.annotations:
        # After the removal: a removal that fails is tried again, and the placement is still counted once.
        placement = "hint-node" if hint == main.spec.node_name else "pool"
        run.ctx.measures.count(
            "slot_release_wake_total", namespace=run.set.namespace, cocoonset=run.set.name, placement=placement
        )
    _conclude(run, owed, waking)


def _conclude(run: Run, owed: dict[str, str], waking: Collection[str]) -> None:
    for name in owed.keys() - set(waking):
        run.records.pop(name, None)
    why = next(iter(owed.values()), "")
    run.snapshot = kept.resting(run, owed, waking, why=why)
    if not owed:
        return
    run.errors.append(tags.TagDropPendingError(why))
    if run.stored(tags.CONDITION).get("reason") != tags.TAG_DROP_PENDING:
        run.event("Warning", "TagDropPending", f"{run.snapshot.message}; tried again until it is answered")


def _report_no_capacity(run: Run, main: Pod) -> None:
    """Once an incident, not once a pass (W-31)."""
    if not main.unschedulable:
        return
    text = f"main pod {main.name} unschedulable: {main.unschedulable}"
    if run.trouble("WakeNoCapacity", text):
        run.ctx.measures.count(
            "slot_release_wake_unschedulable_total", namespace=run.set.namespace, cocoonset=run.set.name
        )
