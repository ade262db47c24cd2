"""Events that tell the course of a set, one an edge of what is stored (W-33)."""

from __future__ import annotations

from typing import Final

from cocoon_operator.api.enums import HibernatePolicy, SetPhase
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import tags
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.records import condition, digests
from cocoon_operator.reconcile.run import Run

_OVER: Final = (tags.NO_SNAPSHOT, tags.TAG_DROP_PENDING)


def tell(run: Run, before: SetObject) -> None:
    """Tell what the status that was just written means, if it means something to a person."""
    old, new = before.status.get("phase"), run.stored_phase
    if new == SetPhase.SUSPENDED and old not in (None, new):
        released = run.set.spec is not None and run.set.spec.hibernate_policy is HibernatePolicy.RELEASE
        run.event("Normal", "Suspended", "saved; the seat is free" if released else "saved; the pods keep their seats")
    elif new == SetPhase.MIGRATING and old != new:
        run.event("Normal", "MigrationStarted", f"main agent moves to node {run.spec.node_name or 'of its choice'}")
    elif old == SetPhase.MIGRATING and new in (SetPhase.RUNNING, SetPhase.SCALING):
        if (main := arrived(run, before)) is not None:
            run.event("Normal", "Migrated", f"main agent runs on node {main.spec.node_name}")
    elif resumed(run, before):
        run.event("Normal", "Resumed", "every VM is awake")


def arrived(run: Run, before: SetObject) -> Pod | None:
    """The main agent's pod after a move; None after one that was taken back: its pod is older than the move."""
    main, began = run.main, str(condition(before, "Progressing").get("lastTransitionTime"))
    return main if main is not None and main.restore and main.metadata.creation_timestamp >= began else None


def resumed(run: Run, before: SetObject) -> bool:
    """Whether the last VM that was asleep is awake, and nothing is owed for it any more."""
    slept = before.status.get("phase") == SetPhase.WAKING or bool(digests(before))
    return slept and _owes_a_wake(before) and not _owes_a_wake(run.set)


def _owes_a_wake(target: SetObject) -> bool:
    """Whether a wake is owed, by what the status says of tags."""
    reason = condition(target, tags.CONDITION).get("reason")
    return reason is not None and reason not in _OVER
