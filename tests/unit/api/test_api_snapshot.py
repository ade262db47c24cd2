"""Live snapshots: the agent's answer, and the grammar of a request."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api import keys
from cocoon_operator.api.snapshot import (
    FAILED,
    PUSHED,
    SnapshotReference,
    SnapshotReferenceError,
    SnapshotStatus,
    parse_reference,
)

_ZERO = SnapshotStatus()


@pytest.mark.parametrize("state", [PUSHED, FAILED])
def test_an_answer_round_trips_as_one_key(state: str) -> None:
    status = SnapshotStatus("team/img:s1", state, "why" if state == FAILED else "")
    patch = status.to_patch()
    assert list(patch) == ["vm.cocoonstack.io/snapshot-status"]
    text = patch[keys.SNAPSHOT_STATUS]
    assert text is not None
    assert json.loads(text) == {"ref": status.ref, "state": state, "message": status.message}
    assert SnapshotStatus.parse({keys.SNAPSHOT_STATUS: text}) == status


@pytest.mark.scenario("N143")
@pytest.mark.parametrize(
    "text",
    ["", "xx", "null", "[]", "1", '"x"', "{", '{"ref": 1}', '{"state": {}}', "[" * 100000, '{"ref":"\ud800"}', "{}"],
)
def test_a_malformed_answer_reads_as_the_zero_status(text: str) -> None:
    assert SnapshotStatus.parse({keys.SNAPSHOT_STATUS: text}) == _ZERO


@pytest.mark.scenario("N143")
def test_a_missing_answer_reads_as_the_zero_status() -> None:
    assert SnapshotStatus.parse({}) == _ZERO
    assert SnapshotStatus.parse(None) == _ZERO


def test_an_answer_without_a_message_and_one_with_more_than_we_know_are_read() -> None:
    text = '{"ref":"a:b","state":"pushed","digest":"sha256:1","message":null}'
    assert SnapshotStatus.parse({keys.SNAPSHOT_STATUS: text}) == SnapshotStatus("a:b", PUSHED)


@pytest.mark.scenario("N142")
def test_an_answer_is_recognised_by_the_request_it_echoes() -> None:
    status = SnapshotStatus("team/img:s1", PUSHED)
    assert status.answers("team/img:s1")
    assert not status.answers("team/img:s2")
    assert not status.answers("team/img")
    assert not _ZERO.answers("")


@given(st.builds(SnapshotStatus, st.text(), st.text(), st.text()))
def test_every_answer_is_read_back(status: SnapshotStatus) -> None:
    written = {key: value for key, value in status.to_patch().items() if value is not None}
    assert SnapshotStatus.parse(written) == status


@given(st.text())
def test_garbage_never_raises(text: str) -> None:
    assert isinstance(SnapshotStatus.parse({keys.SNAPSHOT_STATUS: text}), SnapshotStatus)


@pytest.mark.scenario("N132")
@pytest.mark.parametrize(
    ("text", "repo", "tag"),
    [
        ("team/img:s1", "team/img", "s1"),
        ("team/img", "team/img", "latest"),
        ("v", "v", "latest"),
        ("ghcr.io/x/y:24.04", "ghcr.io/x/y", "24.04"),
        ("a_b__c---d.e/f0:_T.-x", "a_b__c---d.e/f0", "_T.-x"),
        ("a:" + "t" * 128, "a", "t" * 128),
    ],
)
def test_a_reference_is_read(text: str, repo: str, tag: str) -> None:
    assert parse_reference(text) == SnapshotReference(repo, tag)
    assert parse_reference(text).text == f"{repo}:{tag}"
    assert parse_reference(parse_reference(text).text) == parse_reference(text)


@pytest.mark.scenario("N156")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "repository is missing"),
        (":tag", "repository is missing"),
        ("x:", "tag after ':' is missing"),
        ("host:5000/x", "port is not allowed"),
        ("host:5000/x:t", "port is not allowed"),
        ("x@sha256:0123", "digest is not allowed"),
        ("X/y", "is not a repository"),
        ("a//b", "is not a repository"),
        ("/a", "is not a repository"),
        ("a/", "is not a repository"),
        ("a___b", "is not a repository"),
        ("a..b", "is not a repository"),
        ("a._b", "is not a repository"),
        ("-a", "is not a repository"),
        ("a ", "is not a repository"),
        ("a\n", "is not a repository"),
        ("a:-t", "is not a tag"),
        ("a:.t", "is not a tag"),
        ("a:t t", "is not a tag"),
        ("a:t\n", "is not a tag"),
        ("a:t:u", "is not a tag"),
        ("a:" + "t" * 129, "is not a tag"),
        ("a:\u00e9", "is not a tag"),
    ],
)
def test_what_is_no_reference_is_refused_with_its_problem(text: str, problem: str) -> None:
    with pytest.raises(SnapshotReferenceError, match=problem):
        parse_reference(text)


@given(st.text())
def test_every_text_is_a_reference_or_the_one_error(text: str) -> None:
    try:
        reference = parse_reference(text)
    except SnapshotReferenceError:
        return
    assert reference.text in {text, f"{text}:latest"}
