"""Durations in messages are written as Go writes them (contract 1.7, appendix A)."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api.durations import go_duration
from cocoon_operator.reconcile.hibernation.machine import Limits

_UNITS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(milliseconds=1), "1ms"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(milliseconds=999), "999ms"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(seconds=1.25), "1.25s"),
        (timedelta(seconds=10), "10s"),
        (timedelta(seconds=59.999), "59.999s"),
        (timedelta(minutes=1), "1m0s"),
        (timedelta(minutes=3), "3m0s"),
        (timedelta(minutes=3, seconds=30), "3m30s"),
        (timedelta(minutes=60), "1h0m0s"),
        (timedelta(hours=1, minutes=2, seconds=3.5), "1h2m3.5s"),
        (timedelta(days=2), "48h0m0s"),
        (timedelta(microseconds=400), "0s"),
        (timedelta(microseconds=1600), "2ms"),
    ],
)
def test_go_writes_it_so(value: timedelta, text: str) -> None:
    assert go_duration(value) == text


@pytest.mark.scenario("S282", "S298")
def test_the_limits_read_as_in_the_contract_s_messages() -> None:
    limits = Limits()
    assert (go_duration(limits.hibernate), go_duration(limits.wake)) == ("3m0s", "5m0s")


@given(st.integers(0, 10**11))
def test_nothing_is_lost_and_the_largest_unit_comes_first(millis: int) -> None:
    text = go_duration(timedelta(milliseconds=millis))
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    assert "".join(number + unit for number, unit in parts) == text
    assert sum(round(float(number) * _UNITS[unit]) for number, unit in parts) == millis
    sizes = [_UNITS[unit] for _, unit in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert all(float(number) < 60 for number, unit in parts if unit in ("m", "s"))
    assert not re.search(r"\.\d*0(?!\d)", text), "no zero ends a fraction"
