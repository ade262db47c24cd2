"""A save that its node agent left half done: lifecycle stuck at ``hibernating``, the VM gone (N192, design 4.4).

It is never taken for a save that was confirmed. If the tag is there, the flag is cleared, so that the agent wakes the VM from
it, and set again once the VM is ready. The clock and the stage are a condition, so that a restart changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from cocoon_operator.api import conditions, keys
from cocoon_operator.api.answers import Present
from cocoon_operator.api.enums import LifecycleState
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, records, tags
from cocoon_operator.reconcile.run import Next, Run

CONDITION: Final = "HibernationStalled"
STUCK: Final = "AgentSilent"
AGAIN: Final = "WakingToSaveAgain"
LIMIT: Final = timedelta(minutes=2)
GRACE: Final = timedelta(seconds=10)
"""How long the state is watched before it is written down: every save passes through it for a moment."""


async def look(run: Run, pods: Sequence[Pod]) -> Next:
    """Notice a stalled save among the pods that shall sleep, and begin it again after two minutes."""
    stuck = [pod for pod in pods if _stuck(pod)]
    if not stuck:
        run.memory.stalled_at = None
        if stage(run) == STUCK or (stage(run) == AGAIN and all(pod.hibernate for pod in pods)):
            run.stalled = ("False", "Resumed", "the node agent goes on")
        return Next.GO_ON
    since = _since(run, stuck)
    wait = since + LIMIT - run.now
    if wait > timedelta() and stage(run) == AGAIN:
        # Those of before are being woken; this is another one's save, which has two minutes of its own.
        run.come_back(wait.total_seconds())
        return Next.GO_ON
    run.stalled = ("True", STUCK, f"{', '.join(pod.name for pod in stuck)}: the node agent does not go on")
    if run.now - since < GRACE and not stage(run):
        run.stalled = None
        run.come_back(GRACE.total_seconds())
    elif wait > timedelta():
        run.come_back(wait.total_seconds())
    elif await _tags_seen(run, stuck):
        return await _begin_again(run, stuck)
    return Next.GO_ON


def waking(run: Run, pod: Pod) -> bool:
    """Whether this VM is being woken only to be saved again: no flag is set before it is ready.

    A living VM whose agent never saw the flag needs no more than that the agent sees it gone first.
    """
    if stage(run) != AGAIN or pod.hibernate or facts.read(pod) is facts.Fact.AWAKE:
        return False
    if not facts.has_vm(pod):
        return True
    cleared = run.memory.cleared_at.setdefault(pod.uid, run.now)
    left = GRACE - (run.now - cleared)
    if left > timedelta():
        run.come_back(left.total_seconds())
    return left > timedelta()


def stage(run: Run) -> str:
    """The stored stage: "", ``AgentSilent`` or ``WakingToSaveAgain``."""
    stored = run.stored(CONDITION)
    return str(stored.get("reason")) if stored.get("status") == "True" else ""


def _stuck(pod: Pod) -> bool:
    """Either the VM is gone and nobody says so, or it came up and its agent missed the flag (R3.1, R2.18)."""
    if not pod.managed or not pod.hibernate or pod.spec.node_name == "":
        return False
    if facts.has_vm(pod):
        return pod.lifecycle == LifecycleState.CREATING
    return pod.lifecycle == LifecycleState.HIBERNATING


def _named(run: Run) -> frozenset[str]:
    """The pods in the stored message: the clock is theirs."""
    return records.names_before_colon(str(run.stored(CONDITION).get("message", "")))


def _since(run: Run, stuck: Sequence[Pod]) -> datetime:
    stored = run.stored(CONDITION)
    known = all(pod.name in _named(run) for pod in stuck)
    if stage(run) and known and isinstance(text := stored.get("lastTransitionTime"), str):
        return conditions.moment(text)
    run.memory.stalled_at = run.memory.stalled_at or run.now
    return run.memory.stalled_at


async def _tags_seen(run: Run, stuck: Sequence[Pod]) -> bool:
    """Every tag is there, and no drop of it is owed (rule 2)."""
    # Once the status says that they are woken, it can name them among those whose tags are to be dropped.
    owed = frozenset() if stage(run) == AGAIN else tags.stored_names(run, tags.TAG_DROP_PENDING)
    for pod in stuck:
        vm_name = run.vm_name(pod)
        if facts.has_vm(pod):
            continue
        if vm_name in owed:
            return False
        answer = await tags.probe(run, vm_name)
        if isinstance(answer, Present):
            continue
        if not tags.proven(run, vm_name) or await tags.put_back(run, vm_name) is None:
            tags.report_missing(run, vm_name, run.records.get(vm_name, ""))
            return False
    return True


async def _begin_again(run: Run, stuck: Sequence[Pod]) -> Next:
    run.memory.cleared_at.clear()
    run.stalled = ("True", AGAIN, f"{', '.join(pod.name for pod in stuck)}: woken, to be saved again")
    if stage(run) != AGAIN or not all(pod.name in _named(run) for pod in stuck):
        run.snapshot = tags.saving()
        run.event("Warning", "HibernationStalled", run.stalled[2])
        return Next.PERSIST
    for pod in stuck:
        await run.annotate(pod, {keys.HIBERNATE: None}, guarded=True)
    return Next.GO_ON
