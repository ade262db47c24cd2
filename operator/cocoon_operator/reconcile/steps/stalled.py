"""A save that its node agent left half done: lifecycle stuck at ``hibernating``, the VM gone (N192, design 4.4).

It is never taken for a save that was confirmed. If the tag is there, the flag is cleared, so that the agent wakes the VM from
it, and set again once the VM is ready. The clock and the stage are a condition, so that a restart changes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Present
from cocoon_operator.api.enums import LifecycleState
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, tags
from cocoon_operator.reconcile.run import Next, Run

CONDITION: Final = "HibernationStalled"
STUCK: Final = "AgentSilent"
AGAIN: Final = "WakingToSaveAgain"
LIMIT: Final = timedelta(minutes=2)
GRACE: Final = timedelta(seconds=10)
"""How long the state is watched before it is written down: every save passes through it for a moment."""


async def step(run: Run) -> Next:
    """Notice a stalled save, and begin it again after two minutes."""
    stuck = [pod for pod in run.live if _stuck(pod)]
    if not stuck:
        run.memory.stalled_at = None
        if stage(run) == STUCK or (stage(run) == AGAIN and all(pod.hibernate for pod in run.live)):
            run.stalled = ("False", "Resumed", "the node agent goes on")
        return Next.GO_ON
    wait = _since(run) + LIMIT - run.now
    run.stalled = ("True", STUCK, f"{', '.join(pod.name for pod in stuck)}: hibernating, and no VM is left")
    if run.now - _since(run) < GRACE and not stage(run):
        run.stalled = None
        run.come_back(GRACE.total_seconds())
    elif wait > timedelta():
        run.come_back(wait.total_seconds())
    elif await _tags_seen(run, stuck):
        return await _begin_again(run, stuck)
    return Next.GO_ON


def waking(run: Run, pod: Pod) -> bool:
    """Whether this VM is being woken only to be saved again: no flag is set before it is ready."""
    return stage(run) == AGAIN and not pod.hibernate and facts.read(pod) is not facts.Fact.AWAKE


def stage(run: Run) -> str:
    """The stored stage: "", ``AgentSilent`` or ``WakingToSaveAgain``."""
    stored = run.stored(CONDITION)
    return str(stored.get("reason")) if stored.get("status") == "True" else ""


def _stuck(pod: Pod) -> bool:
    gone = facts.no_vm(pod) and pod.spec.node_name != ""
    return pod.managed and pod.hibernate and pod.lifecycle == LifecycleState.HIBERNATING and gone


def _since(run: Run) -> datetime:
    stored = run.stored(CONDITION)
    if stage(run) and isinstance(text := stored.get("lastTransitionTime"), str):
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    run.memory.stalled_at = run.memory.stalled_at or run.now
    return run.memory.stalled_at


async def _tags_seen(run: Run, stuck: list[Pod]) -> bool:
    """Every tag is there, and no drop of it is owed (rule 2)."""
    owed = tags.stored_names(run, tags.TAG_DROP_PENDING)
    for pod in stuck:
        vm_name = run.vm_name(pod)
        if vm_name in owed:
            return False
        answer = await tags.probe(run, vm_name)
        if isinstance(answer, Present):
            continue
        if vm_name not in run.records or await tags.put_back(run, vm_name) is None:
            tags.report_missing(run, vm_name, run.records.get(vm_name, ""))
            return False
    return True


async def _begin_again(run: Run, stuck: list[Pod]) -> Next:
    run.stalled = ("True", AGAIN, f"{', '.join(pod.name for pod in stuck)}: woken from the tag, to be saved again")
    if stage(run) != AGAIN:
        run.snapshot = tags.state("False", tags.SAVING, why="saves are under way")
        run.event("Warning", "HibernationStalled", run.stalled[2])
        return Next.PERSIST
    for pod in stuck:
        await run.annotate(pod, {keys.HIBERNATE: None}, guarded=True)
    return Next.GO_ON
