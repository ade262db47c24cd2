"""Events are folded, limited, and never in the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from cocoon_operator.api import keys
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.events import EventRecorder, Involved
from cocoon_operator.reconcile.objects import SetObject, set_from_object
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer

SET = set_from_object(
    {"metadata": {"namespace": "ns", "name": "demo", "uid": "u1", "resourceVersion": "7"}, "spec": {}}
)


class Clock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.second = 0
        self.elapsed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, 0, 0, self.second, tzinfo=UTC)


class Desk:
    """A recorder that sends, and what the server has got."""

    def __init__(self, api: KubeApiServer, client: KubeClient) -> None:
        self.api = api
        self.clock = Clock()
        self.results: Counter[str] = Counter()
        self.recorder = EventRecorder(
            client, self.clock, timer=lambda: self.clock.elapsed, observe=lambda result: self.results.update([result])
        )

    async def say(self, reason: str = "Woken", message: str = "it woke", target: SetObject = SET) -> None:
        self.recorder.event(target, "Normal", reason, message)
        await self.recorder.flush(2.0)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [obj for path, obj in self.api.objects.items() if "/events/" in path]


@pytest_asyncio.fixture
async def desk(api: KubeApiServer, client: KubeClient) -> AsyncIterator[Desk]:
    desk = Desk(api, client)
    sending = asyncio.create_task(desk.recorder.run())
    yield desk
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.asyncio
@pytest.mark.scenario("S316")
async def test_an_event_names_its_source_and_its_object(desk: Desk) -> None:
    await desk.say()
    (event,) = desk.events
    assert event["source"] == {"component": "cocoon-operator"}
    assert event["involvedObject"] == {
        "apiVersion": "cocoonset.cocoonstack.io/v1",
        "kind": "CocoonSet",
        "namespace": "ns",
        "name": "demo",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Normal", "Woken", "it woke", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["metadata"]["namespace"] == "ns"


@pytest.mark.asyncio
async def test_w18_identical_events_are_one_with_a_count(desk: Desk) -> None:
    await desk.say()
    desk.clock.second = 5
    await desk.say()
    await desk.say()
    (event,) = desk.events
    assert event["count"] == 3
    assert event["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert event["lastTimestamp"] == "2026-01-01T00:00:05Z"
    assert (desk.api.count("POST"), desk.api.count("PATCH")) == (1, 2)


@pytest.mark.asyncio
async def test_another_message_reason_or_object_is_another_event(desk: Desk) -> None:
    other = set_from_object({"metadata": {"namespace": "ns", "name": "demo", "uid": "u2"}, "spec": {}})
    await desk.say()
    await desk.say(message="it woke on node-b")
    await desk.say(reason="Slept")
    await desk.say(target=other)
    assert [event["count"] for event in desk.events] == [1, 1, 1, 1]


@pytest.mark.asyncio
async def test_an_event_that_expired_on_the_server_is_made_anew(desk: Desk) -> None:
    await desk.say()
    desk.api.objects.clear()
    await desk.say()
    (event,) = desk.events
    assert event["count"] == 1


@pytest.mark.asyncio
async def test_from_the_tenth_message_on_similar_events_are_one(desk: Desk) -> None:
    for number in range(12):
        await desk.say(message=str(number))
    assert [event["message"] for event in desk.events][:9] == [str(number) for number in range(9)]
    (combined,) = desk.events[9:]
    assert combined["message"] == "(combined from similar events): 11"
    assert combined["count"] == 3
    await desk.say(message="3")
    assert desk.events[3]["count"] == 2
    await desk.say(reason="Slept", message="12")
    assert desk.events[10]["message"] == "12"


@pytest.mark.asyncio
async def test_similar_events_that_are_rare_are_told_each(desk: Desk) -> None:
    for number in range(12):
        desk.clock.elapsed += 601
        await desk.say(message=str(number))
    assert [event["message"] for event in desk.events] == [str(number) for number in range(12)]


@pytest.mark.asyncio
async def test_one_object_gets_a_burst_and_then_one_in_five_minutes(desk: Desk) -> None:
    for number in range(40):
        await desk.say(reason=f"Reason{number}")
    assert len(desk.events) == 25
    desk.clock.elapsed = 299
    await desk.say(reason="TooEarly")
    desk.clock.elapsed = 301
    await desk.say(reason="InTime")
    assert [event["reason"] for event in desk.events][25:] == ["InTime"]
    assert desk.results == {"created": 26, "dropped": 16}


@pytest.mark.asyncio
async def test_what_was_dropped_is_in_the_count_of_what_is_sent(desk: Desk) -> None:
    for _ in range(40):
        await desk.say()
    assert [event["count"] for event in desk.events] == [25]
    desk.clock.elapsed = 300
    await desk.say()
    assert [event["count"] for event in desk.events] == [41]


@pytest.mark.asyncio
async def test_the_limit_is_an_objects_own_and_warnings_are_not_lost_in_news(desk: Desk) -> None:
    for number in range(30):
        await desk.say(reason=f"Reason{number}")
    desk.recorder.record(Involved(keys.KIND_HIBERNATION, "ns", "h", "u9"), "Warning", "TimedOut", "late")
    desk.recorder.event(SET, "Warning", "SuspendSlow", "late")
    await desk.recorder.flush(2.0)
    hibernation, warning = desk.events[25:]
    assert hibernation["involvedObject"]["kind"] == "CocoonHibernation"
    assert warning["reason"] == "SuspendSlow"


@pytest.mark.asyncio
async def test_occurrences_that_wait_together_are_one_request(desk: Desk) -> None:
    for _ in range(5):
        desk.recorder.event(SET, "Normal", "Woken", "it woke")
    await desk.recorder.flush(2.0)
    assert [event["count"] for event in desk.events] == [5]
    assert (desk.api.count("POST"), desk.api.count("PATCH")) == (1, 0)
    assert desk.results == {"created": 1, "counted": 4}


@pytest.mark.asyncio
async def test_an_event_that_is_refused_is_dropped_and_the_next_one_sent(desk: Desk) -> None:
    desk.api.faults.append(Fault("status", 403))
    await desk.say(message="lost")
    await desk.say(message="sent")
    assert [event["message"] for event in desk.events] == ["sent"]
    assert desk.results == {"failed": 1, "created": 1}


@pytest.mark.asyncio
async def test_a_stuck_server_costs_no_pass_and_no_memory(api: KubeApiServer, client: KubeClient) -> None:
    recorder = EventRecorder(client, Clock())
    for number in range(1500):
        recorder.record(Involved(keys.KIND_SET, "ns", "s", f"u{number}"), "Normal", "Woken", "x")
    assert recorder._notes.qsize() == 1000
    await recorder.flush(0.05)
    assert api.count("POST") == 0


@pytest.mark.asyncio
async def test_a_long_message_and_a_long_name_are_cut(desk: Desk) -> None:
    target = set_from_object({"metadata": {"namespace": "ns", "name": "n" * 253, "uid": "u3"}, "spec": {}})
    await desk.say(message="m" * 5000, target=target)
    (event,) = desk.events
    assert len(event["message"]) == 1024
    assert len(event["metadata"]["name"]) <= 253
