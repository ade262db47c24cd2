"""A pace for work that is not urgent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(slots=True)
class Pace:
    """At most ``per_second`` turns a second, over all sets of this process."""

    per_second: float = 5.0
    due: datetime | None = None

    def take(self, now: datetime) -> float:
        """Return 0 and use a turn, or the seconds until there is one."""
        if self.due is not None and now < self.due:
            return (self.due - now).total_seconds()
        self.due = now + timedelta(seconds=1 / self.per_second)
        return 0.0
