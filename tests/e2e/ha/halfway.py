"""Six sets, each in the middle of another transition, held there by the node agents; and what each must have cost at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from cocoon_devkit.audit import AuditEvent
from cocoon_operator.api import keys
from tests.e2e.ha.reigns import creates
from tests.e2e.operator.seat import Seat

SAVES: Final = "push.manifest"
BOOTS: Final = "vm.boot"
HELD_AT: Final = {
    "retain": SAVES,
    "release": SAVES,
    "moving": SAVES,
    "unsuspended": BOOTS,
    "waking": BOOTS,
    "booting": BOOTS,
}
COSTS: Final = {
    "retain": {"saved": 1},
    "release": {"saved": 1},
    "moving": {"saved": 1, "boot": 1},
    "unsuspended": {"boot": 1},
    "waking": {"boot": 1},
    "booting": {"boot": 1},
}
"""How often a VM is saved and brought up until its transition is over: twice of either is work done twice, or lost."""
MADE: Final = ("booting-0", "moving-0", "waking-0")
"""The pods that are made, once each."""


class Halfway:
    """The six sets. ``prepare``, then ``held()`` for the time in the middle, then ``check`` what became of them."""

    def __init__(self, seats: Callable[[str], Seat]) -> None:
        self.seats = {name: seats(name) for name in HELD_AT}
        self._before: dict[str, str] = {}
        self._target = ""
        self._journal = 0

    def prepare(self) -> None:
        """Bring each to where its transition begins."""
        for name, seat in self.seats.items():
            if name != "booting":
                seat.create(hibernatePolicy="release" if name in ("release", "waking") else "retain")
        for name, seat in self.seats.items():
            if name != "booting":
                seat.until_running()
                seat.work(f"before, in {name}")
        for name in ("unsuspended", "waking"):
            self.seats[name].edit(suspend=True)
        for name in ("unsuspended", "waking"):
            self.seats[name].until_suspended()
        self.seats["waking"].until_no_pod()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Begin all six, and hold them in the middle until the end of the block."""
        self._journal = self.seats["retain"].agent.mark()
        self._before = {name: _uid(seat) for name, seat in self.seats.items()}
        with ExitStack() as stack:
            held = [stack.enter_context(seat.barrier(HELD_AT[name])) for name, seat in self.seats.items()]
            self._begin()
            for each in held:
                each()
            yield

    def _begin(self) -> None:
        for name in ("retain", "release"):
            self.seats[name].edit(suspend=True)
        for name in ("unsuspended", "waking"):
            self.seats[name].edit(suspend=False)
        self._target = other_node(self.seats["moving"].node)
        self.seats["moving"].edit(nodeName=self._target)
        self.seats["booting"].create()

    def end(self) -> None:
        """Wait for the end of each, and see that nothing is lost and no pod was made anew that need not have been."""
        for name in ("retain", "release"):
            self.seats[name].until_suspended()
            assert self.seats[name].saved_work() == self.seats[name].written, name
        self.seats["release"].until_no_pod()
        for name in ("unsuspended", "waking", "moving", "booting"):
            self.seats[name].until_running()
            self.seats[name].check_memory()
            assert keys.TAG_HIBERNATE not in self.seats[name].tags(), name
        assert self.seats["moving"].node == self._target
        for name in ("retain", "unsuspended"):
            assert _uid(self.seats[name]) == self._before[name], name

    def check_costs(self, writes: list[AuditEvent]) -> None:
        """Nothing was done twice; every pod was made once, by whomever of those whose writes these are."""
        self.check_vms()
        assert creates(writes, self.seats["booting"].namespace) == list(MADE)

    def check_vms(self) -> None:
        """Every VM was saved and brought up exactly as often as it takes."""
        for name, seat in self.seats.items():
            done = Counter(
                entry["op"]
                for entry in seat.agent.journal(since=self._journal, kind="engine")
                if entry.get("vm") == seat.vm and entry["op"] in ("saved", "boot")
            )
            assert done == COSTS[name], name


def other_node(node: str) -> str:
    """The node that this one is not."""
    return {"n1": "n2", "n2": "n1"}[node]


def _uid(seat: Seat) -> str:
    pod: dict[str, Any] = seat.find_pod() or {"metadata": {}}
    return str(pod["metadata"].get("uid", ""))
