"""Transitions that take too long are said to, once, with what they wait for (W-21). Nothing is given up by that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cocoon_operator.api.enums import SetPhase
from cocoon_operator.reconcile.run import Run

LIMITS: Final = {
    SetPhase.SUSPENDING: ("SuspendSlow", timedelta(minutes=3)),
    SetPhase.WAKING: ("WakeSlow", timedelta(minutes=5)),
    SetPhase.MIGRATING: ("MigrationSlow", timedelta(minutes=10)),
}


def report(run: Run) -> None:
    """Report a transition that is over its limit, by the clock of the stored condition ``Progressing``."""
    if run.phase not in LIMITS:
        return
    reason, limit = LIMITS[run.phase]
    progressing = run.stored("Progressing")
    since = progressing.get("lastTransitionTime")
    if run.stored_phase != run.phase or progressing.get("status") != "True" or not isinstance(since, str):
        run.come_back(limit.total_seconds())
        return
    left = datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) + limit - run.now
    if left > timedelta():
        run.come_back(left.total_seconds())
        return
    message = f"{run.phase.value} since {since}" + (f": {run.detail}" if run.detail else "")
    run.find(reason, message)
    if run.stored("Ready").get("reason") not in {reason, *(finding.reason for finding in run.findings[:-1])}:
        run.event("Warning", reason, message)
