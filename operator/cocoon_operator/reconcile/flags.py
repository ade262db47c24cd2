"""The hibernate flag: when it may be set, whoever asks for sleep (contract 4.3 step 2, design 4.3 rule 2)."""

from __future__ import annotations

from collections.abc import Iterable

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Done, Refused
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, stalled, tags
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.run import Run


async def ask_for_sleep(run: Run, pods: Iterable[Pod]) -> frozenset[str]:
    """Stamp and flag in one patch a pod (W-35). Returns the VM names whose drop is still owed, which are not flagged."""
    owed: set[str] = set()
    for pod in pods:
        if pod.hibernate or stalled.waking(run, pod) or (pod.managed and not facts.begun(pod)):
            await _try(run, pod, {})
        elif not _behind(run, pod) or await _settled(run, pod):
            if facts.read(pod) is facts.Fact.AWAKE:
                # What is on record is the save before: it must never be put back over the one that begins (rule 4).
                run.records.pop(run.vm_name(pod), None)
            await _try(run, pod, {keys.HIBERNATE: "true"})
        else:
            owed.add(run.vm_name(pod))
    return frozenset(owed)


def _behind(run: Run, pod: Pod) -> bool:
    """Whether a drop of its tag may be on its way: one is owed, or its VM came up from a tag that the status still admits."""
    vm_name = run.vm_name(pod)
    if vm_name in tags.stored_names(run, tags.TAG_DROP_PENDING):
        return True
    if not pod.managed or facts.read(pod) is not facts.Fact.AWAKE:
        return False
    return vm_name in tags.scoped(run) or tags.stored(run).reason == tags.WAKE_IN_PROGRESS


async def _try(run: Run, pod: Pod, changes: dict[str, str | None]) -> None:
    with apart(run):
        await run.annotate(pod, changes)


async def _settled(run: Run, pod: Pod) -> bool:
    """A drop of this VM's tag was never answered: until a later one is, a new save could be hit by the first (rule 2).

    A refusal is an answer: the tag is as it was, and the new save takes its place (W-14).
    """
    if not facts.has_vm(pod):
        return True
    answer = await tags.drop_behind(run, pod)
    if isinstance(answer, Done | Refused):
        return True
    if answer is None:
        run.come_back(5)
    else:
        tags.report_unknown(run, f"dropping {run.vm_name(pod)}:{keys.TAG_HIBERNATE}: {tags.why_not(answer)}")
    return False
