"""The typed view of a pod: integers are read strictly, and what is absent reads as nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api.pod import Pod, decode_pod, parse_int, pod_from_object


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("11", 11),
        ("-3", -3),
        ("+4", 4),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 0),
        ("-9223372036854775808", -(2**63)),
        (None, 0),
        ("", 0),
        ("1_0", 0),
        (" 1", 0),
        ("1\n", 0),
        ("1.0", 0),
        ("0x1", 0),
        ("\u0661", 0),
    ],
)
def test_integers_are_read_strictly(text: str | None, value: int) -> None:
    assert parse_int(text) == value


@given(st.one_of(st.text(), st.integers().map(str), st.integers(4000, 6000).map(lambda digits: "9" * digits)))
def test_no_text_makes_the_integer_reader_raise(text: str) -> None:
    assert -(2**63) <= parse_int(text) < 2**63


def test_an_empty_pod_says_nothing() -> None:
    for pod in (Pod(), decode_pod("{}"), pod_from_object({"metadata": {}, "spec": {}, "status": {}})):
        flags = (pod.ready, pod.running, pod.hibernate, pod.restore, pod.keep_snapshot, pod.managed, pod.terminating)
        assert not any(flags)
        assert (pod.vm_id, pod.lifecycle, pod.generation, pod.observed_generation) == ("", "", 0, 0)
        assert pod.controller is None
        assert not pod.owned_by("")
