"""Which lifecycle state may replace which (R3.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.lifecycle import allowed
from cocoon_devkit.agent.tracked import Intent

STATES = [wire.CREATING, wire.READY, wire.HIBERNATING, wire.HIBERNATED, wire.FAILED]


@pytest.mark.scenario("N059")
@given(st.sampled_from(STATES), st.sampled_from(STATES), st.integers(0, 9), st.integers(1, 9))
def test_an_older_generation_never_replaces_a_newer(old: str, new: str, generation: int, ahead: int) -> None:
    assert not allowed(Intent(old, generation + ahead), new, generation)


@pytest.mark.scenario("N060")
@pytest.mark.parametrize(
    ("state", "generation", "may"),
    [
        (wire.READY, 5, False),
        (wire.HIBERNATED, 5, False),
        (wire.CREATING, 5, True),
        (wire.HIBERNATING, 5, True),
        (wire.FAILED, 5, True),
        (wire.READY, 6, True),
        (wire.HIBERNATED, 6, True),
        (wire.CREATING, 4, False),
    ],
)
def test_failed_is_sticky_within_its_generation(state: str, generation: int, may: bool) -> None:
    assert allowed(Intent(wire.FAILED, 5, "why"), state, generation) is may


@pytest.mark.scenario("N060")
@given(st.sampled_from(STATES), st.sampled_from([state for state in STATES if state != wire.FAILED]), st.integers(0, 9))
def test_any_other_state_may_be_replaced_within_its_generation(new: str, old: str, generation: int) -> None:
    assert allowed(Intent(old, generation), new, generation)
    assert allowed(None, new, generation)
