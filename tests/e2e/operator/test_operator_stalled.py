"""A save that its node agent left half done (N192): it is never taken for a save, and does not stay half done."""

from __future__ import annotations

import pytest
from stalledsave import StalledSave

from cocoon_devkit.operatorprocess import OperatorProcess

LIMIT = 150.0
"""Seconds: the two minutes of the design, and what it takes to see their begin and to wake and save a VM."""


@pytest.mark.scenario("S139", "N192")
def test_a_save_left_half_done_is_begun_again(stalled: StalledSave, operator: OperatorProcess) -> None:
    """Woken from its tag, saved once more, asleep: across every restart and crash of the operator since it began."""
    assert operator.running
    seat = stalled.begin()
    seat.until(lambda: bool(seat.events("HibernationStalled")), "the save is begun again", LIMIT)
    seat.until_suspended()
    assert seat.homes() == []
    assert seat.saved_work() == seat.written
    assert seat.condition("HibernationStalled")["reason"] == "Resumed"
    assert "woken, to be saved again" in seat.until_event("HibernationStalled")["message"]
    seat.wake()
    seat.check_memory()
