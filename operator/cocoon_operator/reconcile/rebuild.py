"""The rebuild budget of sub-agents and toolboxes: a back-off ladder, a history, a dead letter (contract 4.10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cocoon_operator.api import keys
from cocoon_operator.api.enums import Role
from cocoon_operator.api.errors import ConflictError
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile.facts import Fact, read
from cocoon_operator.reconcile.members import Member, members_of
from cocoon_operator.reconcile.run import Run

BUDGET: Final = 4
LADDER: Final = (timedelta(0), timedelta(seconds=1), timedelta(seconds=5), timedelta(seconds=30))
TRIES: Final = 3
LAST_YEAR: Final = 9999
"""Beyond it no duration can be added to a timestamp; nobody deleted anything then."""
FORGIVEN: Final = timedelta(minutes=10)
"""How long a rebuilt VM has to stay ready before its earlier failures are forgotten."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is remembered of one slot's rebuilds."""

    count: int = 0
    last_deleted: datetime | None = None
    uid: str = ""
    """The pod that the last attempt was counted for, so that a delete that has to be repeated counts once."""


def backoff(count: int) -> timedelta:
    """How long to wait before rebuild number ``count + 1`` (S223)."""
    return LADDER[min(max(count, 0), len(LADDER) - 1)]


def read_history(text: str | None) -> dict[str, Entry]:
    """Read the annotation; whatever cannot be read is an empty history (S224, S234)."""
    try:
        stored = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(stored, dict):
        return {}
    return {slot: entry for slot, value in stored.items() if (entry := _entry(value)) is not None}


def write_history(history: Mapping[str, Entry]) -> str | None:
    """The annotation's text, readable by the Go operator; None when there is nothing to remember."""
    if not history:
        return None
    stored = {
        slot: {
            "count": entry.count,
            "lastDeleted": _text(entry.last_deleted),
            **({"uid": entry.uid} if entry.uid else {}),
        }
        for slot, entry in sorted(history.items())
    }
    return json.dumps(stored, separators=(",", ":"))


async def rebuild(run: Run, member: Member, pod: Pod) -> None:
    """Make a failed VM again, later each time; after four times leave it as a dead letter for a person to look at."""
    entry = _history(run, member).get(member.slot, Entry())
    repeated = entry.uid == pod.uid
    if entry.count >= BUDGET and not repeated:
        await _give_up(run, member, pod)
        return
    due = (entry.last_deleted or datetime.min.replace(tzinfo=UTC)) + backoff(entry.count)
    if entry.last_deleted is not None and run.now < due:
        run.come_back((due - run.now).total_seconds())
        return
    if not repeated:
        # First the history: a delete that fails must not bypass the back-off (S228), nor count twice.
        entry = Entry(entry.count + 1, run.now, pod.uid)
        await _remember(run, member, entry)
    await _attempt(run, member, pod, entry)


async def _attempt(run: Run, member: Member, pod: Pod, entry: Entry) -> None:
    await _delete_failed(run, pod)
    if member.role is Role.SUB_AGENT:
        run.ctx.measures.count("subagent_rebuild_total", namespace=run.set.namespace, cocoonset=run.set.name)
        run.event("Normal", "SubAgentRebuilding", f"slot {member.slot} attempt {entry.count}/{BUDGET}")
    else:
        run.event("Normal", "ToolboxRebuilding", f"toolbox {member.slot} attempt {entry.count}/{BUDGET}")


async def _delete_failed(run: Run, pod: Pod) -> None:
    """Delete a failed pod by what a live read says of it.

    Its agent keeps trying the boot that fails, so a cached view is always behind; and a VM that came up after all is not
    deleted. Raises :class:`ConflictError` when it changes faster than that.
    """
    for left in reversed(range(TRIES)):
        live = await run.ctx.cluster.get_pod(pod.namespace, pod.name)
        if live is None or live.uid != pod.uid:
            run.pods.pop(pod.name, None)
            return
        if read(live) not in (Fact.DEAD, Fact.LOST) and not (read(live) is Fact.STARTING and live.vm_id == ""):
            raise ConflictError(f"pod {pod.name} came up after all")
        try:
            await run.delete(live)
        except ConflictError:
            if not left:
                raise
        else:
            return


async def forgive(run: Run, member: Member, pod: Pod) -> None:
    """A VM that stays ready long enough has its budget back (W-30)."""
    entry = _history(run, member).get(member.slot)
    if entry is None or not pod.ready:
        return
    condition = pod.condition("Ready")
    since = _parsed(condition.last_transition_time or "") if condition else None
    left = max(filter(None, (since, entry.last_deleted)), default=run.now) + FORGIVEN - run.now
    if left > timedelta():
        run.come_back(left.total_seconds())
        return
    await forget(run, member)


async def forget(run: Run, member: Member) -> None:
    """Drop a slot's entry, if there is one."""
    await _remember(run, member, None)


def pruned(run: Run) -> dict[str, str | None]:
    """The history annotations without the slots that the spec no longer has, where that changes them (S222)."""
    members = members_of(run.set, run.spec)
    changes: dict[str, str | None] = {}
    for key in (keys.REBUILD_HISTORY, keys.TOOLBOX_REBUILD_HISTORY):
        known = {member.slot for member in members if _key(member) == key}
        history = read_history(run.set.annotations.get(key))
        if history.keys() - known:
            changes[key] = write_history({slot: entry for slot, entry in history.items() if slot in known})
    return changes


async def _give_up(run: Run, member: Member, pod: Pod) -> None:
    await run.annotate(pod, {keys.DEAD_LETTER: "true"})
    if member.role is Role.SUB_AGENT:
        run.ctx.measures.count("subagent_dead_letter_total", namespace=run.set.namespace, cocoonset=run.set.name)
        run.event(
            "Warning",
            "SubAgentDeadLetter",
            f"slot {member.slot} exhausted {BUDGET} rebuilds; pod {pod.name} left in dead-letter",
        )
    else:
        message = f"toolbox {member.slot} exhausted {BUDGET} rebuilds; pod {pod.name} left in dead-letter"
        run.event("Warning", "ToolboxDeadLetter", message)


async def _remember(run: Run, member: Member, entry: Entry | None) -> None:
    """Write one slot's entry; slots that the spec no longer has are dropped along with it (S222)."""
    known = {
        other.slot for other in members_of(run.set, run.spec) if (other.toolbox is None) == (member.toolbox is None)
    }
    history = {slot: each for slot, each in _history(run, member).items() if slot in known and slot != member.slot}
    if entry is not None:
        history[member.slot] = entry
    elif member.slot not in _history(run, member):
        return
    await run.annotate_set({_key(member): write_history(history)})


def _history(run: Run, member: Member) -> dict[str, Entry]:
    return read_history(run.set.annotations.get(_key(member)))


def _key(member: Member) -> str:
    return keys.REBUILD_HISTORY if member.toolbox is None else keys.TOOLBOX_REBUILD_HISTORY


def _entry(value: Any) -> Entry | None:
    if not isinstance(value, Mapping):
        return None
    count, last, uid = value.get("count", 0), value.get("lastDeleted", ""), value.get("uid", "")
    if not isinstance(count, int) or isinstance(count, bool) or not isinstance(last, str):
        return None
    return Entry(count, _parsed(last), uid if isinstance(uid, str) else "")


def _parsed(text: str) -> datetime | None:
    """RFC 3339 with up to nanoseconds and any offset, as Go writes it; Python keeps microseconds."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None and moment.year < LAST_YEAR else None
    except (ValueError, OverflowError):
        return None


def _text(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment is not None else "0001-01-01T00:00:00Z"
