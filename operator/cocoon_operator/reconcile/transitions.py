"""How long transitions take, measured when the status that ends one is written: once an edge, by what the status says.

Phases have the clock of ``slow``. A wake in place has no phase of its own: it lasts while the set is on its way.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cocoon_operator.api import conditions
from cocoon_operator.api.enums import HibernatePolicy, SetPhase
from cocoon_operator.reconcile import milestones, slow
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.records import condition
from cocoon_operator.reconcile.run import Run

DONE: Final = "done"
REVERSED: Final = "reversed"
FAILED: Final = "failed"

_RETAIN: Final = HibernatePolicy.RETAIN.value
_RELEASE: Final = HibernatePolicy.RELEASE.value


def measure(run: Run, before: SetObject) -> None:
    """Observe the transition that the status just written has ended, if one has."""
    old, new = before.status.get("phase"), run.stored_phase
    if old in slow.LIMITS and old != new:
        if (began := slow.began(before)) is not None:
            _observe_phase(run, before, (run.now - began).total_seconds())
    elif old not in slow.LIMITS and milestones.resumed(run, before) and (began := _on_its_way(before)) is not None:
        seconds = (run.now - began).total_seconds()
        run.ctx.measures.observe("wake_duration_seconds", seconds, mode=_RETAIN, outcome=DONE)


def _observe_phase(run: Run, before: SetObject, seconds: float) -> None:
    old, new = before.status.get("phase"), run.stored_phase
    outcome = FAILED if new == SetPhase.FAILED else DONE if _is_done(run, before) else REVERSED
    if old == SetPhase.SUSPENDING:
        released = run.set.spec is not None and run.set.spec.hibernate_policy is HibernatePolicy.RELEASE
        mode = _RELEASE if released else _RETAIN
        run.ctx.measures.observe("suspend_duration_seconds", seconds, mode=mode, outcome=outcome)
    elif old == SetPhase.WAKING:
        run.ctx.measures.observe("wake_duration_seconds", seconds, mode=_RELEASE, outcome=outcome)
    else:
        run.ctx.measures.observe("migration_duration_seconds", seconds, outcome=outcome)


def _is_done(run: Run, before: SetObject) -> bool:
    """Whether the phase is one that the transition was for, rather than one that an edit led to."""
    old, new = before.status.get("phase"), run.stored_phase
    if old == SetPhase.SUSPENDING:
        return new == SetPhase.SUSPENDED
    if new in (SetPhase.SUSPENDING, SetPhase.SUSPENDED):
        return False
    return old == SetPhase.WAKING or milestones.arrived(run, before) is not None


def _on_its_way(before: SetObject) -> datetime | None:
    """Since when the set is on its way; None when it is not."""
    progressing = condition(before, "Progressing")
    if progressing.get("status") != "True":
        return None
    try:
        return conditions.moment(str(progressing.get("lastTransitionTime")))
    except ValueError:
        return None
