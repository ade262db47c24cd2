"""Transitions that take too long are said to, once, with what they wait for (W-21). Nothing is given up by that.

The clock is a condition of its own, ``OnTime``, which begins anew with each phase, so that a restart changes nothing. No timer:
whatever looks at the set next, at the latest the slow resync, says it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cocoon_operator.api import conditions
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.reconcile import records
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.run import Run

CONDITION: Final = "OnTime"
_TIMESTAMP: Final = len("2026-01-02T03:04:05Z")
LIMITS: Final = {
    SetPhase.SUSPENDING: ("SuspendSlow", timedelta(minutes=3)),
    SetPhase.WAKING: ("WakeSlow", timedelta(minutes=5)),
    SetPhase.MIGRATING: ("MigrationSlow", timedelta(minutes=10)),
}


def report(run: Run) -> None:
    """Keep the clock of a transition, and say when its limit is over."""
    stored = run.stored(CONDITION)
    if run.phase not in LIMITS:
        run.on_time = ("True", "NotInTransition", "") if stored else None
        return
    slow, limit = LIMITS[run.phase]
    if stored.get("reason") not in (run.phase.value, slow):
        run.on_time = ("True", run.phase.value, "")
        return
    if stored.get("reason") == slow:
        run.on_time = ("False", slow, str(stored.get("message", "")))
        run.find(slow, run.on_time[2])
        return
    since = str(stored.get("lastTransitionTime"))
    run.on_time = ("True", run.phase.value, "")
    if run.now >= conditions.moment(since) + limit:
        message = f"{run.phase.value} since {since}" + (f": {run.detail}" if run.detail else "")
        run.on_time = ("False", slow, message)
        run.find(slow, message)
        run.event("Warning", slow, message)


def began(target: SetObject) -> datetime | None:
    """When the stored phase, a transition, began; None where no clock was kept for it (by the Go operator)."""
    phase, stored = target.status.get("phase"), records.condition(target, CONDITION)
    text = str(stored.get("lastTransitionTime"))
    if stored.get("reason") != phase:
        # Once the limit is over, the transition time is when that was said.
        text = str(stored.get("message", "")).removeprefix(f"{phase} since ")[:_TIMESTAMP]
    try:
        return conditions.moment(text)
    except ValueError:
        return None


def begins(run: Run) -> bool:
    """Whether the clock begins anew with the status that is about to be written."""
    return (
        run.on_time is not None and run.on_time[0] == "True" and run.stored(CONDITION).get("reason") != run.on_time[1]
    )
