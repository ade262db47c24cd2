"""Words and numbers that the pages for people share with the code: the Go operator's pages and code differ in some (W-48)."""

from __future__ import annotations

import re

from cocoon_devkit import checkout
from cocoon_operator.api import keys
from cocoon_operator.api.enums import LifecycleState, SetPhase
from cocoon_operator.api.pod import pod_from_object
from cocoon_operator.config import load
from cocoon_operator.engine.lease import Periods
from cocoon_operator.reconcile import facts

DOCS = checkout.ROOT / "docs"
_JITTER = 1.2


def test_w48_the_lifecycle_states_of_the_pages_are_those_of_the_code() -> None:
    row = next(line for line in (DOCS / "annotations.md").read_text().splitlines() if keys.LIFECYCLE_STATE in line)
    assert re.findall(r"`([a-z]+)`", row.rpartition(" | ")[2]) == [state.value for state in LifecycleState]


def test_w48_a_state_that_is_spelled_as_the_go_operators_pages_do_is_none() -> None:
    """``Failed`` is in its pages, ``failed`` in its code and in the node agent's (contract 2.5)."""
    notes = {keys.LIFECYCLE_STATE: "Failed", keys.MANAGED: "true"}
    pod = pod_from_object({"metadata": {"name": "demo-0", "annotations": notes}, "status": {"phase": "Running"}})
    assert facts.read(pod) is facts.Fact.STARTING


def test_w48_every_phase_is_explained() -> None:
    contract = (DOCS / "contract" / "operator.md").read_text()
    assert [phase.value for phase in SetPhase if f"`{phase.value}`" not in contract] == []


def test_w48_the_times_of_a_takeover_follow_from_the_defaults() -> None:
    config, page = load({}, {"OCI_REGISTRY": "registry.example.com"}), (DOCS / "high-availability.md").read_text()
    periods = Periods(config.lease_duration, config.renew_deadline, config.retry_period)
    assert periods == Periods()
    retry = periods.retry * _JITTER
    assert f"0 to {retry:g} s" in page
    assert f"{periods.lease:g} to {periods.lease + retry:g} s" in page
    assert f"stops writing after {periods.renew_deadline:g} s" in page
