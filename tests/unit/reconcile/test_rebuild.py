"""The rebuild budget of sub-agents and toolboxes: the ladder, and forgiveness (contract 4.10.1)."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from cocoon_operator.reconcile.rebuild import backoff
from tests.model.world import World
from tests.unit.reconcile.histories import GIVEN_UP, REBUILT, history, rebuild_events, remember
from tests.unit.reconcile.staging import (
    RUN_BOX,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    bodies,
    counters,
    events,
    pod_fails,
    refuse,
    rest,
    roles_up,
    running_status,
)

# -- the ladder --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S223")
@pytest.mark.parametrize(("count", "seconds"), [(0, 0), (1, 1), (2, 5), (3, 30), (10, 30)])
def test_the_ladder(count: int, seconds: int) -> None:
    assert backoff(count) == timedelta(seconds=seconds)


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
