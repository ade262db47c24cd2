"""The time, and how much of it has passed, in one place, so that both can be injected."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The wall clock, for what is written into objects."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)


def elapsed() -> float:
    """Return seconds since some fixed moment, time asleep included.

    ``time.monotonic`` stands still while a laptop or a virtual machine is suspended; a Lease does not.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def rfc3339(moment: datetime) -> str:
    """Return the text of a ``metav1.Time``: seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """Return the text of a ``metav1.MicroTime``: always six digits, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
