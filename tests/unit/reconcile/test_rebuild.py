"""The rebuild budget of sub-agents and toolboxes: ladder, history, dead letter, forgiveness (contract 4.10)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from cocoon_operator.reconcile.rebuild import Entry, backoff, read_history, write_history
from tests.model.world import World
from tests.unit.reconcile.staging import (
    RUN_BOX,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    bodies,
    counters,
    events,
    heal,
    pod_fails,
    refuse,
    rest,
    roles_up,
    running_status,
)

MOMENT = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)
REBUILT = "subagent_rebuild_total{cocoonset=demo,namespace=ns}"
GIVEN_UP = "subagent_dead_letter_total{cocoonset=demo,namespace=ns}"


def history(world: World, key: str = keys.REBUILD_HISTORY) -> Any:
    """The stored history, without the UID that tells for which pod an attempt was counted."""
    stored = json.loads(world.annotation(key) or "null")
    for entry in (stored or {}).values():
        entry.pop("uid", None)
    return stored


def remember(world: World, key: str = keys.REBUILD_HISTORY, *, ago: float = 3600, **counts: int) -> None:
    """Write a history for slots, given as ``s1=4``."""
    when = (world.clock.now() - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")
    stored = {slot.removeprefix("s"): {"count": count, "lastDeleted": when} for slot, count in counts.items()}
    world.annotate({key: json.dumps(stored)})


def rebuild_events(world: World) -> list[tuple[str, str, str]]:
    return [event for event in events(world) if "Rebuilding" in event[1] or "DeadLetter" in event[1]]


# -- the text ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S221")
def test_a_history_is_read_back_as_it_was_written() -> None:
    stored = {"1": Entry(3, MOMENT), "2": Entry(1, MOMENT + timedelta(microseconds=5)), "12": Entry(4, MOMENT)}
    text = write_history(stored)
    assert read_history(text) == stored
    assert text is not None
    assert {slot: entry["count"] for slot, entry in json.loads(text).items()} == {"1": 3, "2": 1, "12": 4}


@pytest.mark.scenario("S223")
@pytest.mark.parametrize(("count", "seconds"), [(0, 0), (1, 1), (2, 5), (3, 30), (10, 30)])
def test_the_ladder(count: int, seconds: int) -> None:
    assert backoff(count) == timedelta(seconds=seconds)


@pytest.mark.scenario("S224")
@pytest.mark.parametrize(
    "text", [None, "", "null", "{", "[]", "3", '"x"', '{"1": 3}', '{"1": {"count": "3"}}', '{"1": {"count": true}}']
)
def test_what_cannot_be_read_is_an_empty_history(text: str | None) -> None:
    assert read_history(text) == {}


@pytest.mark.scenario("S224")
def test_a_broken_entry_does_not_cost_the_others() -> None:
    text = '{"1": {"count": 2, "lastDeleted": "2026-11-30T10:00:00Z"}, "2": "x"}'
    assert read_history(text) == {"1": Entry(2, MOMENT)}


@pytest.mark.scenario("S234")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30T10:00:00.123456789Z", MOMENT + timedelta(microseconds=123456)),
        ("2026-11-30T12:00:00.5+02:00", MOMENT + timedelta(milliseconds=500)),
        ("2026-11-30T04:30:00-05:30", MOMENT),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_timestamps_of_the_go_operator_are_read(text: str, moment: datetime) -> None:
    assert read_history(json.dumps({"1": {"count": 2, "lastDeleted": text}})) == {"1": Entry(2, moment)}


@pytest.mark.scenario("S234")
@pytest.mark.parametrize("moment", [None, MOMENT, MOMENT + timedelta(microseconds=1234)])
def test_timestamps_written_here_are_rfc_3339(moment: datetime | None) -> None:
    text = write_history({"1": Entry(1, moment)})
    assert text is not None
    written = json.loads(text)["1"]["lastDeleted"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", written), written


@pytest.mark.scenario("S234")
@pytest.mark.asyncio
@pytest.mark.parametrize("last", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "x"])
async def test_a_timestamp_at_the_edge_of_time_holds_nothing_up(world: World, last: str) -> None:
    """The annotation is a user's to write: whatever is in it, a pass ends with a status, not with an exception."""
    await roles_up(world)
    world.annotate({keys.REBUILD_HISTORY: json.dumps({"1": {"count": 1, "lastDeleted": last}})})
    pod_fails(world, "demo-1")
    await world.run()
    assert world.phase == "Scaling"


# -- a failure ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S218", "S225", "S231")
@pytest.mark.asyncio
async def test_a_failed_sub_agent_is_remembered_then_deleted_then_made_again(world: World) -> None:
    await roles_up(world, 2)
    pod_fails(world, "demo-1")
    mark, requests = world.mark, len(world.registry.requests)
    await world.run()
    assert world.writes(mark) == ["patch set/demo", "delete pod/demo-1", "patch/status set/demo"]
    assert history(world) == {"1": {"count": 1, "lastDeleted": "2026-11-30T10:00:00Z"}}
    assert rebuild_events(world) == [("Normal", "SubAgentRebuilding", "slot 1 attempt 1/4")]
    assert counters(world) == {REBUILT: 1}
    assert world.phase == "Scaling"
    assert asked(world, requests) == []
    mark = world.mark
    await world.run()
    assert world.writes(mark)[0] == "create pod/demo-1"
    assert asked(world, requests) == ["GET vk-ns-demo-1:hibernate"]
    await rest(world)
    assert world.phase == "Running"
    assert world.memory("vk-ns-demo-1") == ["fork of vk-ns-demo-0"]
    assert world.memory("vk-ns-demo-2") == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"]


@pytest.mark.scenario("S219")
@pytest.mark.asyncio
async def test_a_sub_agent_whose_lifecycle_failed_is_rebuilt_although_its_pod_runs(world: World) -> None:
    await roles_up(world)
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "guest panic"}, "demo-1")
    mark = world.mark
    await world.run()
    assert world.writes(mark)[:2] == ["patch set/demo", "delete pod/demo-1"]
    assert counters(world) == {REBUILT: 1}


@pytest.mark.asyncio
async def test_w54_a_sub_agent_and_a_toolbox_that_ended_successfully_are_rebuilt(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX])
    pod_fails(world, "demo-1", phase="Succeeded")
    pod_fails(world, "demo-db", phase="Succeeded")
    await rest(world)
    assert world.phase == "Running"
    assert [reason for _, reason, _ in events(world)] == ["SubAgentRebuilding", "ToolboxRebuilding"]


@pytest.mark.scenario("S226")
@pytest.mark.asyncio
async def test_a_second_failure_waits_for_the_rest_of_its_second(world: World) -> None:
    await roles_up(world)
    pod_fails(world, "demo-1")
    await world.run()
    await world.run()
    world.agent.run()
    pod_fails(world, "demo-1")
    world.clock.advance(0.4)
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is None
    assert outcome.requeue_after == pytest.approx(0.6)
    assert [write for write in world.writes(mark) if "status" not in write] == []
    assert world.phase == "Scaling"
    world.clock.advance(0.6)
    await world.run()
    assert world.writes(mark)[-2:] == ["patch set/demo", "delete pod/demo-1"]
    assert history(world) == {"1": {"count": 2, "lastDeleted": "2026-11-30T10:00:01Z"}}


@pytest.mark.scenario("S232")
@pytest.mark.asyncio
async def test_of_several_that_wait_the_earliest_decides(world: World) -> None:
    await roles_up(world, 3)
    when = world.clock.text()
    counts = {"1": 3, "2": 2, "3": 3}
    text = json.dumps({slot: {"count": count, "lastDeleted": when} for slot, count in counts.items()})
    world.annotate({keys.REBUILD_HISTORY: text})
    for slot in counts:
        pod_fails(world, f"demo-{slot}")
    world.clock.advance(2)
    mark = world.mark
    outcome = await world.run()
    assert outcome.requeue_after == pytest.approx(3)
    assert not any(write.startswith("delete") for write in world.writes(mark))


@pytest.mark.scenario("S227")
@pytest.mark.asyncio
async def test_after_four_rebuilds_the_pod_is_left_as_a_dead_letter(world: World) -> None:
    await roles_up(world)
    remember(world, s1=4)
    pod_fails(world, "demo-1")
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch pod/demo-1", "patch/status set/demo"]
    assert bodies(world, mark, "patch pod/demo-1") == [{"metadata": {"annotations": {keys.DEAD_LETTER: "true"}}}]
    exhausted = "slot 1 exhausted 4 rebuilds; pod demo-1 left in dead-letter"
    assert rebuild_events(world) == [("Warning", "SubAgentDeadLetter", exhausted)]
    assert counters(world) == {GIVEN_UP: 1}
    await rest(world)
    mark = world.mark
    for _ in range(3):
        world.clock.advance(3600)
        world.start_operator()
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes(mark) == []
    assert world.phase == "Scaling"
    assert (counters(world), len(rebuild_events(world))) == ({GIVEN_UP: 1}, 1)


@pytest.mark.scenario("S223", "S225", "S227")
@pytest.mark.asyncio
async def test_the_whole_ladder_from_the_first_failure_to_the_dead_letter(world: World) -> None:
    await roles_up(world, 0)
    world.agent.fail.add("boot")
    world.edit(agent={"replicas": 1})
    begin, deleted = world.clock.now(), []
    for _ in range(120):
        before = len(bodies(world, 0, "delete pod/demo-1"))
        await world.run()
        world.agent.run()
        if len(bodies(world, 0, "delete pod/demo-1")) > before:
            deleted.append((world.clock.now() - begin).total_seconds())
        world.clock.advance(0.5)
    gaps = [later - earlier for earlier, later in pairwise(deleted)]
    assert gaps == [1, 5, 30]
    assert counters(world) == {REBUILT: 4, GIVEN_UP: 1}
    assert rebuild_events(world) == [
        *(("Normal", "SubAgentRebuilding", f"slot 1 attempt {attempt}/4") for attempt in (1, 2, 3, 4)),
        ("Warning", "SubAgentDeadLetter", "slot 1 exhausted 4 rebuilds; pod demo-1 left in dead-letter"),
    ]
    assert history(world)["1"]["count"] == 4


@pytest.mark.scenario("S220")
@pytest.mark.asyncio
async def test_a_dead_letter_is_lifted_by_an_edit(world: World) -> None:
    await roles_up(world, 2)
    remember(world, s1=4, s2=2)
    pod_fails(world, "demo-1")
    await rest(world)
    mark = world.mark
    world.clock.advance(3600)
    await rest(world)
    assert not any("pod/demo-1" in write for write in world.writes(mark))
    remember(world, s1=4, s2=2, ago=5)
    mark = world.mark
    world.edit(agent={"image": "other"})
    await rest(world)
    writes = [write for write in world.writes(mark) if write in ("patch set/demo", "delete pod/demo-1")]
    assert writes == ["patch set/demo", "delete pod/demo-1"]
    assert set(history(world)) == {"2"}
    assert world.phase == "Running"
    assert world.agent.vms["vk-ns-demo-1"].image == "other"


@pytest.mark.scenario("S228")
@pytest.mark.asyncio
async def test_a_history_that_cannot_be_written_deletes_nothing(world: World) -> None:
    await roles_up(world, 2)
    pod_fails(world, "demo-1")
    pod_fails(world, "demo-2")
    refuse(world, "patch demo", KubeError("etcd is gone", status=500))
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert not any(write.startswith("delete") for write in world.writes(mark))
    assert counters(world) == {}
    assert rebuild_events(world) == []
    heal(world)
    await rest(world)
    assert world.phase == "Running"
    assert counters(world) == {REBUILT: 2}


@pytest.mark.scenario("S228")
@pytest.mark.asyncio
async def test_a_delete_that_fails_does_not_get_around_the_back_off(world: World) -> None:
    await roles_up(world)
    pod_fails(world, "demo-1")
    refuse(world, "delete demo-1", KubeError("etcd is gone", status=500))
    outcome = await world.run()
    assert outcome.error is not None
    assert history(world)["1"]["count"] == 1
    assert (counters(world), rebuild_events(world)) == ({}, [])
    mark = world.mark
    outcome = await world.run()
    assert outcome.requeue_after == pytest.approx(1)
    assert not any(write.startswith("delete") for write in world.writes(mark))


@pytest.mark.scenario("S222")
@pytest.mark.asyncio
async def test_slots_that_the_spec_lacks_go_with_the_next_write(world: World) -> None:
    await roles_up(world, 2)
    remember(world, s1=1, s2=3, s3=4, s7=1, ago=20)
    pod_fails(world, "demo-1")
    await world.run()
    assert {slot: entry["count"] for slot, entry in history(world).items()} == {"1": 2, "2": 3}


@pytest.mark.scenario("S222")
@pytest.mark.asyncio
async def test_a_slot_that_was_scaled_away_comes_back_with_its_whole_budget(world: World) -> None:
    """The history goes with the slot (4.10): what was given up has nothing to do with what comes under its name later."""
    await roles_up(world, 2)
    remember(world, s2=4, ago=1)
    world.edit(agent={"replicas": 1})
    await rest(world)
    world.edit(agent={"replicas": 2})
    await rest(world)
    pod_fails(world, "demo-2")
    await world.run()
    assert rebuild_events(world) == [("Normal", "SubAgentRebuilding", "slot 2 attempt 1/4")]


# -- toolboxes under the same budget -----------------------------------------------------------------------------------


@pytest.mark.scenario("S239", "S243")
@pytest.mark.asyncio
async def test_w30_a_toolbox_has_the_same_budget(world: World) -> None:
    """Legacy S243 rebuilds it for ever; here it has a back-off, a budget and events, in a history of its own."""
    await roles_up(world, 1, [RUN_BOX])
    pod_fails(world, "demo-db")
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch set/demo", "delete pod/demo-db", "patch/status set/demo"]
    assert history(world, keys.TOOLBOX_REBUILD_HISTORY) == {
        "db": {"count": 1, "lastDeleted": "2026-11-30T10:00:00Z"},
    }
    assert history(world) is None
    await rest(world)
    for count in (1, 2, 3):
        pod_fails(world, "demo-db")
        await world.run()
        assert world.outcome.requeue_after == pytest.approx(backoff(count).total_seconds())
        world.clock.advance(backoff(count).total_seconds())
        await rest(world)
        assert world.phase == "Running"
    pod_fails(world, "demo-db")
    await rest(world)
    assert annotations_of(world, "demo-db")[keys.DEAD_LETTER] == "true"
    assert world.phase == "Scaling"
    assert rebuild_events(world) == [
        *(("Normal", "ToolboxRebuilding", f"toolbox db attempt {attempt}/4") for attempt in (1, 2, 3, 4)),
        ("Warning", "ToolboxDeadLetter", "toolbox db exhausted 4 rebuilds; pod demo-db left in dead-letter"),
    ]
    assert counters(world) == {}


@pytest.mark.scenario("S222", "S243")
@pytest.mark.asyncio
async def test_the_histories_of_agents_and_toolboxes_do_not_touch(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX])
    remember(world, s1=2, ago=20)
    remember(world, keys.TOOLBOX_REBUILD_HISTORY, db=3, gone=1, ago=20)
    pod_fails(world, "demo-1")
    await world.run()
    assert {slot: entry["count"] for slot, entry in history(world).items()} == {"1": 3}
    stored = history(world, keys.TOOLBOX_REBUILD_HISTORY)
    assert {slot: entry["count"] for slot, entry in stored.items()} == {"db": 3, "gone": 1}


# -- forgiveness -------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("pod", "slot", "key"),
    [("demo-1", "1", keys.REBUILD_HISTORY), ("demo-db", "db", keys.TOOLBOX_REBUILD_HISTORY)],
)
async def test_w30_a_vm_that_stays_ready_for_ten_minutes_has_its_budget_back(
    world: World, pod: str, slot: str, key: str
) -> None:
    await roles_up(world, 1, [RUN_BOX])
    pod_fails(world, pod)
    await rest(world)
    assert history(world, key)[slot]["count"] == 1
    left = world.outcome.requeue_after
    assert left is not None
    assert left == pytest.approx(600, abs=15)
    mark = world.mark
    world.clock.advance(left - 1)
    await world.run()
    assert world.writes(mark) == []
    world.clock.advance(1)
    world.start_operator()
    outcome = await world.run()
    assert world.writes(mark) == ["patch set/demo"]
    assert world.annotation(key) is None
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.asyncio
async def test_w30_time_alone_forgives_nothing(world: World) -> None:
    """A VM that is not ready, or is so for a moment only, has had no success."""
    await roles_up(world)
    remember(world, s1=3, ago=700)
    agent_shows(world, running_status(ready=False), "demo-1")
    await rest(world)
    assert history(world)["1"]["count"] == 3


@pytest.mark.asyncio
async def test_w30_the_ten_minutes_are_of_being_ready(world: World) -> None:
    """A boot of twelve minutes that ends in a crash a second later is no success."""
    await roles_up(world)
    pod_fails(world, "demo-1")
    await world.run()
    await world.run()
    world.clock.advance(720)
    world.agent.run()
    world.clock.advance(1)
    await world.run()
    assert history(world)["1"]["count"] == 1


@pytest.mark.asyncio
async def test_w30_a_budget_that_was_forgiven_is_whole_again(world: World) -> None:
    await roles_up(world)
    world.clock.advance(601)
    remember(world, s1=4, ago=601)
    await rest(world)
    assert world.annotation(keys.REBUILD_HISTORY) is None
    pod_fails(world, "demo-1")
    await world.run()
    assert rebuild_events(world) == [("Normal", "SubAgentRebuilding", "slot 1 attempt 1/4")]


@pytest.mark.asyncio
async def test_w31_rebuilds_are_counted_once_each_whoever_restarts(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX])
    for _ in range(2):
        pod_fails(world, "demo-1")
        for _ in range(3):
            world.start_operator()
            await world.run()
        world.clock.advance(5)
        await rest(world)
    assert counters(world) == {REBUILT: 2}
    assert len(rebuild_events(world)) == 2
