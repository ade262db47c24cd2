"""Whether the event loop turns, and how late it is: everything waits for the one that blocks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PERIOD: Final = 1.0
"""Seconds between two beats."""


class Heartbeat:
    """A task of the loop that should wake up every second; ``observe`` is told how many seconds late it was."""

    def __init__(
        self,
        observe: Callable[[float], None],
        *,
        period: float = PERIOD,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._observe = observe
        self._period = period
        self._timer = timer
        self._beat_at = timer()

    def silence(self) -> float:
        """Return for how many seconds the loop has not come round."""
        return max(0.0, self._timer() - self._beat_at - self._period)

    async def run(self) -> None:
        """Beat until cancelled."""
        self._beat_at = self._timer()
        while True:
            await asyncio.sleep(self._period)
            self._observe(self.silence())
            self._beat_at = self._timer()
