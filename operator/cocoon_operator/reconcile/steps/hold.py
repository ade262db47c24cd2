"""VMs that a CocoonHibernation keeps asleep while their set runs, flagged as in a suspend (contract 5.4, design 4.2)."""

from __future__ import annotations

from collections.abc import Iterable

from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, flags, kept, stalled, tags
from cocoon_operator.reconcile.run import Next, Run, SnapshotState
from cocoon_operator.reconcile.steps.migration import moving


async def step(run: Run) -> Next:
    """Flag what is asked to sleep. A set that is suspended does that itself, for all of its VMs."""
    if run.spec.suspend:
        return Next.GO_ON
    held = [pod for pod in run.live if run.held(pod.name) and pod.managed and not pod.dead_letter]
    sleeping = {pod.name: pod for pod in run.live if pod.hibernate} | {pod.name: pod for pod in held}
    # While main is saved for a move, the clock of a stalled save is its own.
    watched = (sleeping or stalled.stage(run)) and not moving(run)
    if watched and await stalled.look(run, list(sleeping.values())) is Next.PERSIST:
        run.snapshot = _needed(run, sleeping.values())
        return Next.PERSIST
    asked = [pod for pod in held if _begun(run, pod.name) and facts.read(pod) is not facts.Fact.DEAD]
    await flags.ask_for_sleep(run, asked)
    return Next.GO_ON


def _needed(run: Run, sleeping: Iterable[Pod]) -> SnapshotState | None:
    """Flags are about to be cleared, the only traces of their tags: the status has to know of each first."""
    scope = tags.scoped(run)
    if tags.may_exist(run) and not scope:
        return None
    flagged = {run.vm_name(pod) for pod in sleeping if pod.managed and pod.hibernate}
    return kept.resting(run, tags.stored_names(run, tags.TAG_DROP_PENDING), scope | flagged)


def _begun(run: Run, pod_name: str) -> bool:
    """Whether its CocoonHibernation carries the finalizer, which stands before every effect (contract 4.17), and it has a VM."""
    return run.deciders[pod_name].adopted and run.pods[pod_name].vm_name != ""
