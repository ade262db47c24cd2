"""The lines that operators alert on, and at which level an event is one (contract 7.3)."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Answer, Done, Present, Refused, Unknown, WriteAnswer
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.clients.kubernetes.connection import Connection
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.events import EventRecorder, Involved
from cocoon_operator.engine.registrylog import LoggedRegistry

VM = "vk-ns-demo-0"


class Answering:
    """A registry that always gives the same answer."""

    def __init__(self, answer: Answer = Absent(), write: WriteAnswer = Done()) -> None:  # noqa: B008 - both are frozen
        self.answer = answer
        self.write = write

    async def probe(self, vm_name: str, reference: str) -> Answer:
        return self.answer

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        return self.answer

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        return self.write

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        return self.write


def brief(lines: list[MutableMapping[str, Any]]) -> list[tuple[str, str, str]]:
    return [(line["log_level"], line["event"], line.get("reason", "")) for line in lines]


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [Refused("deletes are disabled"), Unknown("timeout")])
async def test_a_tag_that_is_not_dropped_is_an_error(answer: Refused | Unknown) -> None:
    with capture_logs() as lines:
        assert await LoggedRegistry(Answering(write=answer)).drop(VM, "hibernate") == answer
    assert brief(lines) == [("error", "tag not dropped", answer.reason)]
    assert (lines[0]["vm"], lines[0]["tag"]) == (VM, "hibernate")


@pytest.mark.asyncio
async def test_what_is_done_to_a_tag_is_said() -> None:
    with capture_logs() as lines:
        registry = LoggedRegistry(Answering())
        await registry.drop(VM, "hibernate")
        await registry.copy(VM, "sha256:1", "orphan-1")
        await LoggedRegistry(Answering(write=Refused("no"))).copy(VM, "sha256:1", "orphan-1")
    assert brief(lines) == [("info", "tag dropped", ""), ("info", "tag put", ""), ("warning", "tag not put", "no")]


@pytest.mark.asyncio
async def test_of_questions_only_those_without_an_answer_are_said() -> None:
    with capture_logs() as lines:
        for answer in (Absent(), Present("sha256:1"), Unknown("timeout")):
            registry = LoggedRegistry(Answering(answer))
            assert await registry.probe(VM, "hibernate") == answer
            assert await registry.inspect(VM, "hibernate") == answer
    assert brief(lines) == [("info", "the registry did not answer", "timeout")] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "reason", "level"),
    [
        ("Normal", "Suspended", "info"),
        ("Warning", "SuspendSlow", "warning"),
        ("Warning", "KeepSnapshotFailed", "error"),
    ],
)
async def test_an_event_is_a_line_too(kind: str, reason: str, level: str) -> None:
    recorder = EventRecorder(KubeClient(Connection("http://127.0.0.1:1", "a test")), SystemClock())
    with capture_logs() as lines:
        recorder.record(Involved(keys.KIND_SET, "ns", "demo", "u1"), kind, reason, "why")
    assert brief(lines) == [(level, "event", reason)]
    assert (lines[0]["object"], lines[0]["text"]) == ("demo", "why")
