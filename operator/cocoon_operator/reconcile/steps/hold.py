"""VMs that a CocoonHibernation keeps asleep while their set runs, flagged as in a suspend (contract 5.4, design 4.2)."""

from __future__ import annotations

from cocoon_operator.api import keys
from cocoon_operator.reconcile import facts, flags, stalled
from cocoon_operator.reconcile.run import Next, Run
from cocoon_operator.reconcile.steps.migration import moving


async def step(run: Run) -> Next:
    """Flag what is asked to sleep. A set that is suspended does that itself, for all of its VMs."""
    if run.spec.suspend or moving(run):
        return Next.GO_ON
    held = [pod for pod in run.live if run.held(pod.name) and pod.managed and not pod.dead_letter]
    sleeping = {pod.name: pod for pod in run.live if pod.hibernate} | {pod.name: pod for pod in held}
    if (sleeping or stalled.stage(run)) and await stalled.look(run, list(sleeping.values())) is Next.PERSIST:
        return Next.PERSIST
    asked = [pod for pod in held if _begun(run, pod.name) and facts.read(pod) is not facts.Fact.DEAD]
    await flags.ask_for_sleep(run, asked)
    return Next.GO_ON


def _begun(run: Run, pod_name: str) -> bool:
    """Whether its CocoonHibernation carries the finalizer, which stands before every effect (contract 4.17)."""
    return keys.HIBERNATION_FINALIZER in run.deciders[pod_name].finalizers
