"""Conditions: fresh ones, and merging by type."""

from __future__ import annotations

import re
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api.conditions import Condition, find, fresh, fresh_ready, set_condition, timestamp

_THEN = "2026-11-30T10:00:00Z"
_NOW = datetime(2026, 11, 30, 11, 0, 0, 999999, tzinfo=UTC)
_NOW_TEXT = "2026-11-30T11:00:00Z"


@pytest.mark.scenario("S043")
def test_a_fresh_condition_has_no_timestamp() -> None:
    assert fresh_ready(True, "AllAgentsReady", "1/1 agents ready, 0/0 toolboxes ready", 3) == {
        "type": "Ready",
        "status": "True",
        "reason": "AllAgentsReady",
        "message": "1/1 agents ready, 0/0 toolboxes ready",
        "observedGeneration": 3,
    }
    assert fresh("Progressing", False, "Stable", "Running", 3)["status"] == "False"


@pytest.mark.scenario("S043")
def test_a_no_op_keeps_the_old_transition_time() -> None:
    old = {**fresh_ready(True, "Done", "Active", 1), "lastTransitionTime": _THEN}
    assert set_condition([old], fresh_ready(True, "Done", "Active", 1), _NOW) == [old]


def test_other_fields_are_overwritten_without_moving_the_time() -> None:
    old = {**fresh_ready(False, "Pending", "Hibernating", 1), "lastTransitionTime": _THEN}
    merged = set_condition([old], fresh_ready(False, "Failed", "timeout", 2), _NOW)
    assert merged == [{**fresh_ready(False, "Failed", "timeout", 2), "lastTransitionTime": _THEN}]


def test_the_time_moves_with_the_status_and_for_a_new_condition() -> None:
    old = {**fresh_ready(False, "Pending", "x", 1), "lastTransitionTime": _THEN}
    new = fresh_ready(True, "Done", "Active", 1)
    assert set_condition([old], new, _NOW)[0]["lastTransitionTime"] == _NOW_TEXT
    assert set_condition([], new, _NOW) == [{**new, "lastTransitionTime": _NOW_TEXT}]


def test_a_restart_moves_the_time_of_an_unchanged_status() -> None:
    old = {**fresh_ready(False, "Pending", "Hibernating", 1), "lastTransitionTime": _THEN}
    merged = set_condition([old], fresh_ready(False, "Pending", "Waking", 1), _NOW, restart=True)
    assert merged[0]["lastTransitionTime"] == _NOW_TEXT


def test_foreign_conditions_keep_content_and_place() -> None:
    foreign = {"type": "Audited", "status": "Unknown", "extra": 1}
    ready = {**fresh_ready(False, "x", "y", 1), "lastTransitionTime": _THEN}
    existing = [foreign, ready, {"type": "Other"}]
    before = deepcopy(existing)
    merged = set_condition(existing, fresh_ready(True, "x", "y", 1), _NOW)
    assert [item["type"] for item in merged] == ["Audited", "Ready", "Other"]
    assert (merged[0], merged[2]) == (foreign, {"type": "Other"})
    assert existing == before


@pytest.mark.parametrize("old_time", [None, ""])
def test_an_old_condition_without_a_time_gets_one(old_time: str | None) -> None:
    old = {**fresh_ready(True, "x", "y", 1), "lastTransitionTime": old_time}
    assert set_condition([old], fresh_ready(True, "x", "y", 1), _NOW)[0]["lastTransitionTime"] == _NOW_TEXT


def test_find_returns_the_condition_of_a_type() -> None:
    ready = fresh_ready(True, "x", "y", 1)
    assert find([None, "x", {"type": "Other"}, ready], "Ready") is ready
    assert find([], "Ready") is None


@given(st.lists(st.one_of(st.none(), st.text(), st.integers(), st.dictionaries(st.text(), st.text()))))
def test_garbage_in_the_list_never_raises_and_stays(existing: list[Any]) -> None:
    merged = set_condition(existing, fresh_ready(True, "x", "y", 1), _NOW)
    assert merged[:-1] == existing
    assert merged[-1]["type"] == "Ready"


@given(st.integers(0, 4 * 10**15), st.integers(-12, 14))
def test_a_timestamp_is_utc_in_whole_seconds(microseconds: int, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    aware = (datetime(1970, 1, 2, tzinfo=UTC) + timedelta(microseconds=microseconds)).astimezone(zone)
    text = timestamp(aware)
    assert re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", text)
    assert datetime.fromisoformat(text) == aware.replace(microsecond=0)


def test_a_merged_condition_fits_the_schema() -> None:
    merged = set_condition([], fresh_ready(True, "Done", "", 1), _NOW)
    assert Condition.model_validate(merged[0]).to_object() | {"message": ""} == merged[0]
