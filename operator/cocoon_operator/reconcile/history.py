"""What is remembered of the rebuilds of sub-agents and toolboxes: on the set, by slot and by toolbox name (contract 2.6).

Two annotations, since the Go operator reads the one of the agents and expects nothing but slots in it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from cocoon_operator.api import keys
from cocoon_operator.reconcile.members import Member, members_of
from cocoon_operator.reconcile.run import Run

LAST_YEAR: Final = 9999
"""Beyond it no duration can be added to a timestamp; nobody deleted anything then."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter whose pod was deleted to free its seat (W-51)."""

    vm: str
    """The fingerprint of the VM that failed; another one is worth a try."""
    message: str
    """What was said of the failure last."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is remembered of one slot's rebuilds."""

    count: int = 0
    last_deleted: datetime | None = None
    uid: str = ""
    """The pod that the last attempt was counted for, so that a delete that has to be repeated counts once."""
    letter: Letter | None = None


def entry_of(run: Run, member: Member) -> Entry | None:
    """What is remembered of a member."""
    return _history(run, member).get(member.slot)


async def remember(run: Run, member: Member, entry: Entry) -> None:
    """Write one slot's entry; slots that the spec no longer has are dropped along with it (S222)."""
    await run.annotate_set({_key(member): write_history({**_others(run, member), member.slot: entry})})


async def forget(run: Run, member: Member) -> None:
    """Drop a slot's entry, if there is one."""
    if entry_of(run, member) is not None:
        await run.annotate_set({_key(member): write_history(_others(run, member))})


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


def without_letters(run: Run, vm_names: Collection[str]) -> dict[str, str | None]:
    """The history annotations once these VMs may be made again, where that changes them: their counts stay."""
    changes: dict[str, str | None] = {}
    for member in members_of(run.set, run.spec):
        entry = entry_of(run, member)
        if member.vm_name in vm_names and entry is not None and entry.letter is not None:
            history = read_history(changes.get(_key(member)) or run.set.annotations.get(_key(member)))
            changes[_key(member)] = write_history({**history, member.slot: replace(entry, letter=None)})
    return changes


# -- the text ----------------------------------------------------------------------------------------------------------


def read_history(text: str | None) -> dict[str, Entry]:
    """Read the annotation; whatever cannot be read is an empty history (S224, S234)."""
    try:
        stored = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(stored, dict):
        return {}
    return {slot: entry for slot, value in stored.items() if (entry := _entry(value)) is not None}


def write_history(history: Mapping[str, Entry]) -> str | None:
    """The annotation's text, readable by the Go operator; None when there is nothing to remember."""
    if not history:
        return None
    stored = {slot: _written(entry) for slot, entry in sorted(history.items())}
    return json.dumps(stored, separators=(",", ":"))


def parsed(text: str) -> datetime | None:
    """RFC 3339 with up to nanoseconds and any offset, as Go writes it; Python keeps microseconds."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None and moment.year < LAST_YEAR else None
    except (ValueError, OverflowError):
        return None


def _history(run: Run, member: Member) -> dict[str, Entry]:
    return read_history(run.set.annotations.get(_key(member)))


def _others(run: Run, member: Member) -> dict[str, Entry]:
    known = {other.slot for other in members_of(run.set, run.spec) if _key(other) == _key(member)}
    return {slot: entry for slot, entry in _history(run, member).items() if slot in known and slot != member.slot}


def _key(member: Member) -> str:
    return keys.REBUILD_HISTORY if member.toolbox is None else keys.TOOLBOX_REBUILD_HISTORY


def _entry(value: Any) -> Entry | None:
    if not isinstance(value, Mapping):
        return None
    count, last, uid = value.get("count", 0), value.get("lastDeleted", ""), value.get("uid", "")
    if not isinstance(count, int) or isinstance(count, bool) or not isinstance(last, str):
        return None
    return Entry(count, parsed(last), uid if isinstance(uid, str) else "", _letter(value.get("deadLetter")))


def _letter(value: Any) -> Letter | None:
    return Letter(str(value.get("vm", "")), str(value.get("message", ""))) if isinstance(value, Mapping) else None


def _written(entry: Entry) -> dict[str, Any]:
    letter = entry.letter
    return {
        "count": entry.count,
        "lastDeleted": _text(entry.last_deleted),
        **({"uid": entry.uid} if entry.uid else {}),
        **({"deadLetter": {"vm": letter.vm, "message": letter.message}} if letter is not None else {}),
    }


def _text(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment is not None else "0001-01-01T00:00:00Z"
