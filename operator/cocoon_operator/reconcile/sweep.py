"""Sets that the Go operator made: it leaves tags behind living VMs, so each such set is swept once (design 4.3 rule 2, W-17).

Swept slowly: a fleet that changes hands must not meet its registry with ten thousand requests at once.
"""

from __future__ import annotations

from typing import Final

from cocoon_operator.api.answers import Done
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.reconcile import facts, kept, tags
from cocoon_operator.reconcile.run import Run

_IN_TRANSITION: Final = frozenset(
    {SetPhase.SUSPENDING, SetPhase.SUSPENDED, SetPhase.WAKING, SetPhase.MIGRATING},
)


def unswept(run: Run) -> bool:
    """Whether a set comes from the Go operator at rest; one in a transition owes its drops as part of that."""
    return not run.stored(tags.CONDITION) and run.stored_phase not in ("", *_IN_TRANSITION)


async def sweep(run: Run) -> None:
    """Drop what lies behind living VMs; only when every one was answered the set counts as swept."""
    if wait := run.ctx.pace.take(run.now):
        run.come_back(wait + 0.1)
        return
    managed = [pod for pod in run.live if pod.managed and not pod.dead_letter and not run.held(pod.name)]
    answers = [await tags.drop_behind(run, pod) for pod in managed if facts.read(pod) is facts.Fact.AWAKE]
    if len(answers) == len(managed) and all(isinstance(answer, Done) for answer in answers):
        # A hint without a wake would read as a save on record when the pod is made again (W-46).
        await run.annotate_set(kept.tidy(run))
        run.snapshot = kept.resting(run)
    else:
        run.come_back(60)
