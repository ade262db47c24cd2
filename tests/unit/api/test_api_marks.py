"""Flags and the generation stamp: read, mark, clear, patch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api import keys
from cocoon_operator.api.marks import (
    DEAD_LETTER,
    HIBERNATE,
    KEEP_SNAPSHOT,
    RESTORE,
    Mark,
    apply,
    generation_patch,
    patch_body,
    read_generation,
)

MARKS = [
    pytest.param(HIBERNATE, "vm.cocoonstack.io/hibernate", id="hibernate"),
    pytest.param(RESTORE, "vm.cocoonstack.io/restore-from-hibernate", id="restore"),
    pytest.param(KEEP_SNAPSHOT, "vm.cocoonstack.io/keep-snapshot-on-delete", id="keep"),
    pytest.param(DEAD_LETTER, "cocoonset.cocoonstack.io/dead-letter", id="dead-letter"),
]
_ANNOTATIONS = st.dictionaries(
    st.one_of(st.text(), st.sampled_from([keys.HIBERNATE, keys.RESTORE, keys.KEEP_SNAPSHOT, keys.GENERATION])),
    st.one_of(st.text(), st.sampled_from(["true", "false", "True", "1"])),
)


@pytest.mark.scenario("S022", "S023", "N094", "N095")
@pytest.mark.parametrize(("mark", "key"), MARKS)
def test_a_mark_round_trips(mark: Mark, key: str) -> None:
    assert not mark.read({})
    assert not mark.read(None)
    marked = mark.mark({"other": "x"})
    assert marked == {"other": "x", key: "true"}
    assert mark.read(marked)
    assert mark.clear(marked) == {"other": "x"}
    assert mark.mark(None) == {key: "true"}
    assert mark.clear(None) == {}


@pytest.mark.scenario("S022", "N094")
@pytest.mark.parametrize("text", ["false", "", "True", "TRUE", "1", "yes", " true", "true\n"])
def test_only_true_is_true(text: str) -> None:
    assert not HIBERNATE.read({keys.HIBERNATE: text})


@pytest.mark.scenario("S041", "N096")
@pytest.mark.parametrize(("mark", "key"), MARKS)
def test_a_patch_is_empty_when_the_mark_is_right_already(mark: Mark, key: str) -> None:
    assert mark.patch({key: "true"}, True) == {}
    assert mark.patch({}, False) == {}
    assert mark.patch(None, False) == {}
    assert mark.patch({key: "false"}, False) == {}
    assert mark.patch({}, True) == {key: "true"}
    assert mark.patch({key: "false"}, True) == {key: "true"}
    assert mark.patch({key: "true"}, False) == {key: None}


@pytest.mark.scenario("S041")
@given(_ANNOTATIONS, st.booleans())
def test_after_its_patch_a_mark_reads_as_asked(annotations: dict[str, str], on: bool) -> None:
    patched = apply(annotations, HIBERNATE.patch(annotations, on))
    assert HIBERNATE.read(patched) is on
    assert HIBERNATE.patch(patched, on) == {}
    assert {key: value for key, value in patched.items() if key != keys.HIBERNATE} == {
        key: value for key, value in annotations.items() if key != keys.HIBERNATE
    }


@pytest.mark.scenario("S028")
def test_the_generation_is_written_as_decimal_text_and_read_back() -> None:
    assert generation_patch({}, 7) == {"cocoonset.cocoonstack.io/generation": "7"}
    assert read_generation({keys.GENERATION: "7"}) == 7
    assert read_generation({}) == 0
    assert read_generation(None) == 0


@pytest.mark.scenario("S028", "S041")
@pytest.mark.parametrize("text", ["7", "07", "+7"])
def test_no_request_when_the_stamp_reads_right_already(text: str) -> None:
    assert generation_patch({keys.GENERATION: text}, 7) == {}


@pytest.mark.scenario("S041")
@pytest.mark.parametrize("text", ["", "x", "7.0", "1_0", " 7", "99999999999999999999"])
def test_a_malformed_stamp_reads_as_0_and_is_rewritten(text: str) -> None:
    assert read_generation({keys.GENERATION: text}) == 0
    assert generation_patch({keys.GENERATION: text}, 7) == {keys.GENERATION: "7"}


@given(_ANNOTATIONS, st.integers(0, 2**63 - 1))
def test_a_stamp_over_anything_is_read_back(annotations: dict[str, str], generation: int) -> None:
    assert read_generation(apply(annotations, generation_patch(annotations, generation))) == generation


@pytest.mark.scenario("S042")
def test_none_becomes_null_and_text_stays_text() -> None:
    body = patch_body({"a": None, "b": "x"})
    assert json.loads(json.dumps(body)) == {"metadata": {"annotations": {"a": None, "b": "x"}}}
    assert '"a": null' in json.dumps(body)


def test_marking_does_not_change_the_given_map() -> None:
    annotations = {"other": "x"}
    HIBERNATE.mark(annotations)
    HIBERNATE.clear(annotations)
    apply(annotations, {"other": None})
    assert annotations == {"other": "x"}
