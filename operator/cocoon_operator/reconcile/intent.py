"""Whether a VM shall be awake, asleep or absent: the table of ``docs/design/intent.md`` as one pure function."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from cocoon_operator.api.enums import HibernatePolicy


class Intent(Enum):
    """What shall be of one VM."""

    AWAKE = auto()
    ASLEEP = auto()
    ABSENT = auto()


@dataclass(frozen=True, slots=True)
class Ask:
    """What the intent of one VM depends on; the columns of the table."""

    suspend: bool
    policy: HibernatePolicy
    held: bool
    pod: bool
    saved: bool


def decide(ask: Ask) -> Intent:
    """Read the table. Sleep wins; nothing is booted only to be put to sleep again while a save of it is on record."""
    if not ask.suspend:
        if not ask.held:
            return Intent.AWAKE
        return Intent.ASLEEP if ask.pod else Intent.ABSENT
    if ask.policy is HibernatePolicy.RELEASE:
        return Intent.ABSENT
    if ask.pod:
        return Intent.ASLEEP
    return Intent.ABSENT if ask.saved else Intent.ASLEEP
