"""The Go operator's passes over one set, to its rest: what it reads decides what it writes (4.1)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.e2e.operator.seat import SECONDS
from tests.e2e.swap.goreads import Seen, next_step
from tests.e2e.swap.gowrites import GoOperator, preferred, required

_POLL: Final = 0.2


class GoPasses:
    """Takes a set over in whatever state it is, and goes on until there is nothing left to do."""

    def __init__(self, go: GoOperator) -> None:
        self._go = go
        self._seat = go.seat
        self._acts: dict[str, Callable[[], None]] = {
            "stamp": go.stamp,
            "flag": go.flag,
            "clear flags": go.unflag,
            "release": self._release,
            "create main, restored": self._restore,
            "delete the old main": self._delete_old,
            "clear main's flag": go.unflag,
            "drop the tag": self._drop_tag,
            "wait for the saves": lambda: go.status("Suspending"),
            "wait for main's save": lambda: go.status("Migrating"),
            "wait for main": self._show_wait,
        }

    def look(self) -> Seen:
        """What a pass sees."""
        return Seen(self._seat.get(), self._go.live_pods(), self._seat.tag() is not None)

    def run(self) -> list[str]:
        """Pass after pass, its 5 s poll being shorter here; returns the steps, each as often as another one came between."""
        steps: list[str] = []
        end = time.monotonic() + 2 * SECONDS
        while step := next_step(self.look()):
            assert time.monotonic() < end, f"{self._seat.name} stays at {step!r}\n{self._seat.describe()}"
            if not steps or steps[-1] != step:
                steps.append(step)
            self._acts[step]()
            time.sleep(_POLL)
        self._go.status("Suspended" if self._seat.get()["spec"].get("suspend") else "Running")
        return steps

    def _release(self) -> None:
        before = self._go.live_pods()
        self._go.names(self._seat.vm)
        self._go.hint()
        self._go.keep()
        self._go.delete(0)
        self._go.status("Suspended", before)
        self._go.until_no_pod(0)

    def _restore(self) -> None:
        node, hint = self._seat.get()["spec"].get("nodeName"), self.look().hint
        if self.look().phase == "Migrating":
            self._go.create_main(restore=True, affinity=required(node) if node else None)
            return
        self._go.status("Waking")
        self._go.create_main(restore=True, affinity=preferred(hint) if hint else None)

    def _delete_old(self) -> None:
        self._go.delete(0)
        self._go.until_no_pod(0)

    def _drop_tag(self) -> None:
        waking = self.look().phase == "Waking"
        self._seat.drop_tag()
        self._go.drop_hint()
        self._go.status("Running" if waking else "Migrating")

    def _show_wait(self) -> None:
        phase = self.look().phase
        self._go.status(phase if phase in ("Waking", "Migrating") else "Pending")
