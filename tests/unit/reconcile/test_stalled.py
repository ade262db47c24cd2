"""A node agent that died between removing the VM and saying so (N192, design 4.4)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World

VM = "vk-ns-demo-0"


async def stall(world: World) -> None:
    world.apply()
    await world.settle()
    world.agent.work(VM, "a")
    world.agent.fail.add("report")
    world.edit(suspend=True)
    await world.settle()
    world.agent.fail.clear()


@pytest.mark.asyncio
async def test_a_stalled_save_is_begun_again_after_two_minutes_and_loses_nothing(world: World) -> None:
    await stall(world)
    assert world.phase == "Suspending"
    assert world.condition("HibernationStalled")["reason"] == "AgentSilent"
    world.clock.advance(121)
    await world.settle()
    assert world.phase == "Suspended"
    assert world.recorder.reasons() == ["HibernationStalled", "Suspended"]
    assert world.condition("HibernationStalled") | {"lastTransitionTime": ""} == {
        "type": "HibernationStalled",
        "status": "False",
        "reason": "Resumed",
        "message": "the node agent goes on",
        "observedGeneration": 2,
        "lastTransitionTime": "",
    }
    world.edit(suspend=False)
    await world.settle()
    assert world.memory() == ["a"]


@pytest.mark.asyncio
async def test_a_stalled_save_is_never_taken_for_a_confirmed_one(world: World) -> None:
    await stall(world)
    world.edit(hibernatePolicy="release")
    await world.settle()
    assert world.pod() is not None
    assert world.phase == "Suspending"


@pytest.mark.asyncio
async def test_the_clock_of_a_stalled_save_survives_a_restart(world: World) -> None:
    await stall(world)
    world.clock.advance(60)
    world.start_operator()
    await world.settle()
    world.clock.advance(61)
    world.start_operator()
    await world.settle()
    assert world.phase == "Suspended"


@pytest.mark.asyncio
async def test_a_stalled_save_without_a_tag_is_held(world: World) -> None:
    await stall(world)
    world.registry.tags.clear()
    world.clock.advance(121)
    await world.settle()
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    pod = world.pod()
    assert pod is not None
    assert pod["metadata"]["annotations"][keys.HIBERNATE] == "true"


@pytest.mark.asyncio
async def test_a_flag_that_the_agent_missed_at_its_create_is_set_again(world: World) -> None:
    """The Go operator flags a pod before the agent has looked at it; nothing moves any more then (R3.1, R2.18)."""
    world.apply(suspend=True)
    await world.run()
    pod = world.pod()
    assert pod is not None
    world.api.patch("pod", "ns", "demo-0", {"metadata": {"annotations": {keys.HIBERNATE: "true"}}}, by="go")
    await world.settle()
    assert world.phase == "Suspending"
    assert world.condition("HibernationStalled")["reason"] == "AgentSilent"
    world.clock.advance(121)
    await world.settle()
    assert world.phase == "Suspended"
