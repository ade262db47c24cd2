"""Waking: flags are cleared once it is safe, tags are dropped once a VM is proven live (contract 4.7, 4.8; design 4.3)."""

from __future__ import annotations

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Done, Present
from cocoon_operator.api.enums import LifecycleState, SetPhase
from cocoon_operator.api.errors import ConflictError, KubeError
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, sweep, tags
from cocoon_operator.reconcile.drift import agent_drifted
from cocoon_operator.reconcile.facts import Fact
from cocoon_operator.reconcile.run import Next, Run, SnapshotState

_CLEARED: dict[str, str | None] = {keys.HIBERNATE: None, keys.KEEP_SNAPSHOT: None}


async def step(run: Run) -> Next:
    """Clear flags that nobody holds, then settle what a wake owes."""
    flagged = [pod for pod in run.live if pod.hibernate and not run.held(pod.name)]
    if flagged and not tags.may_exist(run):
        # The flag is the only trace of the tag: the status has to know of it before the flag goes.
        run.phase = SetPhase.PENDING
        run.snapshot = _in_progress()
        return Next.PERSIST
    for pod in flagged:
        if await _clear(run, pod) is Next.PERSIST:
            return Next.PERSIST
    if sweep.unswept(run):
        await sweep.sweep(run)
    elif tags.may_exist(run):
        await _settle(run)
    return Next.GO_ON


def _in_progress() -> SnapshotState:
    return tags.state("False", tags.WAKE_IN_PROGRESS, why="the snapshots are kept until their VMs are proven live")


# -- flags -------------------------------------------------------------------------------------------------------------


async def _clear(run: Run, pod: Pod) -> Next:
    """Clear one flag. A sleeping VM's only with its tag present: the agent drops its local copy when it finds none."""
    try:
        if pod.managed and not facts.has_vm(pod) and pod.spec.node_name:
            if not await _safe_to_clear(run, pod):
                return Next.GO_ON
            if pod.role == "main" and facts.read(pod) in (Fact.ASLEEP, Fact.LOST) and agent_drifted(pod, run.spec):
                return await _make_again(run, pod)
        await run.annotate(pod, _CLEARED, guarded=True)
    except ConflictError as error:
        run.errors.append(error)
    except KubeError as error:
        run.fail(error)
    return Next.GO_ON


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
    if run.stored_phase != SetPhase.WAKING:
        run.phase = SetPhase.WAKING
        run.snapshot = _in_progress()
        return Next.PERSIST
    if facts.asleep_at(pod, pod.generation) or facts.read(pod) is Fact.LOST:
        await run.delete(pod)
    return Next.GO_ON


# -- settling ----------------------------------------------------------------------------------------------------------


async def _settle(run: Run) -> None:
    """Drop the tag behind every VM that is proven live; when none is left, the wake is over."""
    waking: list[Pod] = []
    owed: dict[str, str] = {}
    for pod in run.live:
        if pod.managed and not run.held(pod.name):
            await _settle_one(run, pod, waking, owed)
    main = run.main
    if main is not None and not waking and not run.records.keys() - owed.keys():
        await _finish(run, main, owed)
        return
    run.snapshot = _in_progress()
    if main in waking:
        run.phase = SetPhase.WAKING if _restoring(run, main) else SetPhase.PENDING
        _report_no_capacity(run, main)


def _restoring(run: Run, main: Pod) -> bool:
    """A pod made around a snapshot shows ``Waking``; a sleeping pod that wakes in place ``Pending`` (S192, S176)."""
    hinted = main.restore and keys.HINT_NODE in run.set.annotations
    return hinted or run.stored_phase == SetPhase.WAKING


async def _settle_one(run: Run, pod: Pod, waking: list[Pod], owed: dict[str, str]) -> None:
    vm_name = run.vm_name(pod)
    if facts.read(pod) is not Fact.AWAKE:
        waking.append(pod)
        return
    if run.memory.dropped.get(vm_name) == pod.uid:
        run.records.pop(vm_name, None)
        return
    answer = await tags.drop_behind(run, pod)
    if answer is None:
        waking.append(pod)
        run.come_back(5)
    elif not isinstance(answer, Done):
        owed[vm_name] = tags.why_not(answer)


async def _finish(run: Run, main: Pod, owed: dict[str, str]) -> None:
    """The end of a wake: counted once by the hint, which goes now, in place too (W-46). A failed drop does not hold it back."""
    run.snapshot = tags.state("True", tags.NO_SNAPSHOT)
    if owed:
        why = next(iter(owed.values()))
        run.snapshot = tags.state("False", tags.TAG_DROP_PENDING, owed, why)
        run.errors.append(tags.RegistryUnreachableError(why))
        if run.stored(tags.CONDITION).get("reason") != tags.TAG_DROP_PENDING:
            run.event("Warning", "TagDropPending", f"{run.snapshot.message}; tried again until it is answered")
    hint = run.set.annotations.get(keys.HINT_NODE, "")
    if hint and main.restore:
        placement = "hint-node" if hint == main.spec.node_name else "pool"
        run.ctx.measures.count(
            "slot_release_wake_total", namespace=run.set.namespace, cocoonset=run.set.name, placement=placement
        )
    gone: dict[str, str | None] = {
        key: None for key in (keys.HINT_NODE, keys.SNAPSHOT_DIGESTS) if key in run.set.annotations
    }
    await run.annotate_set(gone)
    for name in owed:
        run.records.pop(name, None)


def _report_no_capacity(run: Run, main: Pod) -> None:
    """Once an incident, not once a pass (W-31)."""
    if not main.unschedulable:
        return
    text = f"main pod {main.name} unschedulable: {main.unschedulable}"
    run.find("WakeNoCapacity", text)
    if run.stored("Ready").get("reason") != "WakeNoCapacity":
        run.ctx.measures.count(
            "slot_release_wake_unschedulable_total", namespace=run.set.namespace, cocoonset=run.set.name
        )
        run.event("Warning", "WakeNoCapacity", text)
