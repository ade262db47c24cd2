"""Events that tell the course of a set, one an edge of its phase (W-33)."""

from __future__ import annotations

from typing import Final

from cocoon_operator.api.enums import HibernatePolicy, SetPhase
from cocoon_operator.reconcile.run import Run

_AWAKE: Final = frozenset({SetPhase.RUNNING, SetPhase.SCALING})
_ASLEEP: Final = frozenset({SetPhase.SUSPENDED, SetPhase.WAKING})


def tell(run: Run, before: str) -> None:
    """Tell what the status that was just written means, if it means something to a person."""
    phase = run.stored_phase
    if phase == before:
        return
    if phase == SetPhase.SUSPENDED and before:
        released = run.set.spec is not None and run.set.spec.hibernate_policy is HibernatePolicy.RELEASE
        run.event("Normal", "Suspended", "saved; the seat is free" if released else "saved; the pods keep their seats")
    elif phase == SetPhase.MIGRATING:
        run.event("Normal", "MigrationStarted", f"main agent moves to node {run.spec.node_name or 'of its choice'}")
    elif phase in _AWAKE and before == SetPhase.MIGRATING:
        main = run.main
        run.event("Normal", "Migrated", f"main agent runs on node {main.spec.node_name if main else 'unknown'}")
    elif phase in _AWAKE and before in _ASLEEP:
        run.event("Normal", "Resumed", "every VM is awake")
