"""The rebuild budget of sub-agents and toolboxes: a back-off ladder, and forgiveness (contract 4.10.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from cocoon_operator.api.enums import Role
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import deadletter, history
from cocoon_operator.reconcile.deadletter import BUDGET
from cocoon_operator.reconcile.history import Entry
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.replace import delete_failed
from cocoon_operator.reconcile.run import Run

LADDER: Final = (timedelta(0), timedelta(seconds=1), timedelta(seconds=5), timedelta(seconds=30))
FORGIVEN: Final = timedelta(minutes=10)
"""How long a rebuilt VM has to stay ready before its earlier failures are forgotten."""


def backoff(count: int) -> timedelta:
    """How long to wait before rebuild number ``count + 1`` (S223)."""
    return LADDER[min(max(count, 0), len(LADDER) - 1)]


async def rebuild(run: Run, member: Member, pod: Pod) -> None:
    """Make a failed VM again, later each time; after four times leave it as a dead letter for a person to look at."""
    entry = history.entry_of(run, member) or Entry()
    repeated = entry.uid == pod.uid
    if entry.count >= BUDGET and not repeated:
        await deadletter.give_up(run, member, pod)
        return
    due = (entry.last_deleted or datetime.min.replace(tzinfo=UTC)) + backoff(entry.count)
    if entry.last_deleted is not None and run.now < due:
        run.come_back((due - run.now).total_seconds())
        return
    if not repeated:
        # First the history: a delete that fails must not bypass the back-off (S228), nor count twice.
        entry = Entry(entry.count + 1, run.now, pod.uid)
        await history.remember(run, member, entry)
    await _attempt(run, member, pod, entry)


async def _attempt(run: Run, member: Member, pod: Pod, entry: Entry) -> None:
    await delete_failed(run, pod)
    if member.role is Role.SUB_AGENT:
        run.ctx.measures.count("subagent_rebuild_total", namespace=run.set.namespace, cocoonset=run.set.name)
        run.event("Normal", "SubAgentRebuilding", f"slot {member.slot} attempt {entry.count}/{BUDGET}")
    else:
        run.event("Normal", "ToolboxRebuilding", f"toolbox {member.slot} attempt {entry.count}/{BUDGET}")


async def forgive(run: Run, member: Member, pod: Pod) -> None:
    """A VM that stays ready long enough has its budget back (W-30)."""
    entry = history.entry_of(run, member)
    if entry is None or not pod.ready:
        return
    condition = pod.condition("Ready")
    since = history.parsed(condition.last_transition_time or "") if condition else None
    left = max(filter(None, (since, entry.last_deleted)), default=run.now) + FORGIVEN - run.now
    if left > timedelta():
        run.come_back(left.total_seconds())
        return
    await history.forget(run, member)
