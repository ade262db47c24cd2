"""The state machine of one CocoonHibernation, as a table (contract 5.3, 5.4; ``docs/design/hibernation.md``).

Pure: what is asked for, where it stands and what was seen of the VM give the next phase. The first row that fits decides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from cocoon_operator.api.enums import Desire, HibernationPhase
from cocoon_operator.api.hibernation import Hibernation

PENDING: Final = HibernationPhase.PENDING
HIBERNATING: Final = HibernationPhase.HIBERNATING
HIBERNATED: Final = HibernationPhase.HIBERNATED
WAKING: Final = HibernationPhase.WAKING
ACTIVE: Final = HibernationPhase.ACTIVE
FAILED: Final = HibernationPhase.FAILED


class Seen(Enum):
    """What one look told; the first column of the table."""

    SAVED = auto()
    """Asleep as asked, and its tag was seen."""
    UNANSWERED = auto()
    """Asleep as asked, but the registry did not say whether the tag is there."""
    MOVING = auto()
    """There is a pod, and its VM is neither safely asleep nor safely awake."""
    AWAKE = auto()
    """The VM is proven live, and no tag is kept behind it any more."""
    SUSPENDED = auto()
    """Asked to wake, while the set is suspended, or gives the VM up: sleep wins."""
    OVERRULED = auto()
    """An older CocoonHibernation decides about this pod."""
    ABSENT = auto()
    """No pod, or one without a VM."""
    GONE = auto()
    """Neither a VM nor a tag: of what was asleep nothing is left, or there never was one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a transition may take before it counts as failed."""

    hibernate: timedelta = timedelta(minutes=3)
    wake: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Row:
    """``seen`` and ``phases`` say when the row fits, None fits all; ``next`` is the phase then, None keeps it.

    ``late`` counts instead of ``next`` once the phase is overdue: a transition past its limit, a failure past its pause.
    """

    seen: Collection[Seen] | None
    phases: Collection[str] | None
    next: HibernationPhase | None
    late: HibernationPhase | None = None


_NEITHER: Final = (Seen.MOVING, Seen.UNANSWERED)

HIBERNATE: Final = (
    Row((Seen.OVERRULED, Seen.GONE), None, PENDING),
    Row((Seen.SAVED,), None, HIBERNATED),
    Row((Seen.UNANSWERED,), (HIBERNATED,), None),
    Row(_NEITHER, (HIBERNATING,), None, late=FAILED),
    Row(_NEITHER, (FAILED,), None, late=HIBERNATING),
    Row(_NEITHER, None, HIBERNATING),
    Row((Seen.ABSENT,), (HIBERNATED,), None),
    Row((Seen.ABSENT,), None, PENDING),
)
WAKE: Final = (
    Row(None, (ACTIVE,), None),
    Row((Seen.OVERRULED, Seen.SUSPENDED, Seen.GONE), None, PENDING),
    Row((Seen.AWAKE,), None, ACTIVE),
    Row(_NEITHER, (WAKING,), None, late=FAILED),
    Row(_NEITHER, (FAILED,), None, late=WAKING),
    Row(_NEITHER, None, WAKING),
    Row((Seen.ABSENT,), (HIBERNATED, WAKING), None),
    Row((Seen.ABSENT,), None, PENDING),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The next phase, and in how long the same look would give another one (None: never).

    A transition has its limit from its beginning, and a failure its rest: if nothing happens, somebody has to look then.
    """

    phase: str
    wait: timedelta | None = None


def going_to_sleep(target: Hibernation) -> bool:
    """Which table counts: a desire that is reversed waits for the transition in flight (contract 5.3, S281, S291)."""
    if target.phase == WAKING:
        return False
    return target.phase == HIBERNATING or target.desire == Desire.HIBERNATE


def turns(before: Hibernation, after: Hibernation) -> bool:
    """Whether a desire that waited for the transition counts from now on: the next pass begins with it (contract 5.3).

    What the operator wrote itself is no event, so whoever wrote it has to come back.
    """
    return going_to_sleep(before) != going_to_sleep(after)


def decide(target: Hibernation, seen: Seen, now: datetime, limits: Limits) -> Verdict:
    """Read the table."""
    # Without a pod no wake is in flight that a reversed desire would have to wait for.
    asleep = going_to_sleep(target) or (target.desire == Desire.HIBERNATE and seen is Seen.ABSENT)
    limit = limits.hibernate if asleep else limits.wake
    for row in HIBERNATE if asleep else WAKE:
        if (row.seen is not None and seen not in row.seen) or (
            row.phases is not None and target.phase not in row.phases
        ):
            continue
        late = row.late is not None and _left(target, now, limit) <= timedelta()
        phase = (row.late if late else row.next) or target.phase
        if phase != target.phase:
            return Verdict(phase, limit if phase in (HIBERNATING, WAKING, FAILED) else None)
        return Verdict(phase, _left(target, now, limit) if row.late is not None else None)
    raise AssertionError(f"the table has no row for {seen} in phase {target.phase!r}")


def _left(target: Hibernation, now: datetime, limit: timedelta) -> timedelta:
    """Time until the phase is overdue. A failure rests as long again, unless the object was edited since (W-19, S280)."""
    since = target.ready_since
    if target.phase == FAILED:
        edited = target.observed_generation != target.generation
        return timedelta() if edited or since is None else since + 2 * limit - now
    return limit if since is None else since + limit - now
