"""What a transition costs: API writes from the audit log, registry requests from the registry's own log, exactly."""

from __future__ import annotations

import pytest
from seat import Seat

from cocoon_devkit.operatorprocess import OperatorProcess

STATUS = "patch cocoonsets/status demo"
SET = "patch cocoonsets demo"
POD = "patch pods demo-0"


class Bill:
    """What was written and asked since the last look."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._forget()

    def _forget(self) -> None:
        self._audit = self._seat.audit.mark()
        self._log = self._seat.registry.mark()

    def settle(self) -> tuple[list[str], list[str]]:
        """Writes and registry requests until the set is at rest."""
        self._seat.rest()
        bill = self._seat.writes(self._audit), self._seat.asked(self._log)
        self._forget()
        return bill


@pytest.mark.scenario("S103", "S108", "S110", "S114", "S141", "S173", "S192", "S261")
def test_every_write_of_a_retained_seat_carries_information(seat: Seat) -> None:
    bill = Bill(seat)
    seat.up(snapshotPolicy="never", agent={"storage": "1024Gi"})
    assert bill.settle() == ([SET, "create pods demo-0", STATUS, STATUS], ["GET hibernate"])
    spec = seat.get()["spec"]["agent"]
    assert spec["storage"] == "1024Gi"
    assert "resources" not in spec
    assert seat.get()["metadata"]["generation"] == 1

    seat.suspend()
    assert bill.settle() == ([POD, STATUS, STATUS], ["HEAD hibernate"])
    seat.wake()
    assert bill.settle() == ([POD, STATUS, STATUS], ["HEAD hibernate", "DELETE hibernate"])
    seat.check_memory()

    seat.annotate_pod({"example.com/note": "somebody else's"})
    seat.annotate(start_fresh=None)
    assert bill.settle() == ([], [])
    seat.delete()
    seat.until_gone()
    assert bill.settle() == (["delete pods demo-0", SET], ["DELETE hibernate", "DELETE latest"])


@pytest.mark.scenario("S153", "S173", "S258")
def test_every_write_of_a_released_seat_carries_information(seat: Seat) -> None:
    seat.up(hibernatePolicy="release")
    bill = Bill(seat)
    seat.suspend()
    seat.until_no_pod()
    assert bill.settle() == ([POD, STATUS, SET, POD, "delete pods demo-0", STATUS], ["HEAD hibernate"])
    seat.wake()
    assert bill.settle() == ([STATUS, "create pods demo-0", SET, STATUS], ["GET hibernate", "DELETE hibernate"])
    seat.check_memory()
    seat.suspend()
    seat.until_no_pod()
    bill.settle()
    seat.delete()
    seat.until_gone()
    assert bill.settle() == ([SET], ["DELETE hibernate"])
    assert seat.tags() == set()


@pytest.mark.scenario("S103", "S107", "S114")
def test_sets_at_rest_cost_nothing_and_a_restart_writes_nothing(seat: Seat, operator: OperatorProcess) -> None:
    other = seat.neighbour("other")
    released = seat.neighbour("released")
    seat.up()
    other.up()
    other.suspend()
    released.up(hibernatePolicy="release")
    released.suspend()
    released.until_no_pod()
    seat.rest()
    mark, asked = seat.audit.mark(), seat.registry.mark()
    operator.restart()
    operator.wait_leading()
    seat.rest()
    assert [seat.writes(mark), other.writes(mark), released.writes(mark)] == [[], [], []]
    assert [seat.asked(asked), other.asked(asked), released.asked(asked)] == [[], [], []]
