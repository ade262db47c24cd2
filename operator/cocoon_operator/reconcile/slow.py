"""Transitions that take too long are said to, once, with what they wait for (W-21). Nothing is given up by that.

No timer of its own: whatever looks at the set next, at the latest the slow resync, says it.
"""

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
        return
    if run.now < datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) + limit:
        return
    message = f"{run.phase.value} since {since}" + (f": {run.detail}" if run.detail else "")
    run.find(reason, message)
    if run.stored("Ready").get("reason") not in {reason, *(finding.reason for finding in run.findings[:-1])}:
        run.event("Warning", reason, message)
