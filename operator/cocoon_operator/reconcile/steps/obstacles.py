"""What the CRD lets through and cannot work: said in a condition and an event, looked at again on the next edit."""

from __future__ import annotations

from typing import Final

from cocoon_operator.api.enums import HibernatePolicy
from cocoon_operator.reconcile.run import Next, Run

LABEL_VALUE_LIMIT: Final = 63


async def step(run: Run) -> Next:
    """Stop a set whose spec cannot be acted on; pods it already has are left as they are."""
    problem = _problem(run)
    if not problem:
        return Next.GO_ON
    run.trouble("InvalidSpec", problem)
    return Next.STOP


def _problem(run: Run) -> str:
    if run.set.spec is None:
        return run.set.spec_error
    if len(run.set.name) > LABEL_VALUE_LIMIT:
        return (
            f"metadata.name: {len(run.set.name)} characters, but it becomes the value of a pod label, "
            f"which can have {LABEL_VALUE_LIMIT}; create the set again under a shorter name"
        )
    releases = run.set.spec.hibernate_policy is HibernatePolicy.RELEASE
    if releases and (run.set.spec.agent.replicas or run.set.spec.toolboxes):
        return "spec.hibernatePolicy: release requires agent.replicas=0 and no toolboxes"
    return ""
