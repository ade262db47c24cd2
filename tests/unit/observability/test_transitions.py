"""How long transitions take: observed once, when the status that ends one is written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.world import World
from tests.unit.reconcile.staging import agent_says, asleep, made_by_go, released, rest, up

pytestmark = pytest.mark.asyncio


def observed(world: World) -> list[tuple[str, float, dict[str, str]]]:
    return world.measures.durations


async def begin(world: World, phase: str, **edit: Any) -> None:
    """Edit the set, and let the operator take note, but nobody act on it yet."""
    world.edit(**edit)
    await world.run()
    assert world.phase == phase
    world.measures.durations.clear()


async def end(world: World, phase: str, *, after: float) -> None:
    """Let the rest happen in a moment, so much later, by another process."""
    world.clock.advance(after)
    world.start_operator()
    world.agent.run()
    await world.run()
    await rest(world)
    assert world.phase == phase


@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_a_suspend_is_measured_by_policy(world: World, policy: str) -> None:
    await up(world, hibernatePolicy=policy)
    await begin(world, "Suspending", suspend=True)
    await end(world, "Suspended", after=42)
    assert observed(world) == [("suspend_duration_seconds", 42, {"mode": policy, "outcome": "done"})]


async def test_a_wake_is_measured(world: World) -> None:
    await released(world)
    await begin(world, "Waking", suspend=False)
    await end(world, "Running", after=7)
    assert observed(world) == [("wake_duration_seconds", 7, {"mode": "release", "outcome": "done"})]


async def test_a_migration_is_measured_to_its_arrival(world: World) -> None:
    await up(world)
    await begin(world, "Migrating", nodeName="node-b")
    await end(world, "Running", after=100)
    assert observed(world) == [("migration_duration_seconds", 100, {"outcome": "done"})]


async def test_a_slow_suspend_is_measured_from_its_beginning(world: World) -> None:
    await up(world)
    await begin(world, "Suspending", suspend=True)
    for _ in range(5):
        world.clock.advance(60)
        await world.run()
    assert world.condition("OnTime")["reason"] == "SuspendSlow"
    await end(world, "Suspended", after=60)
    assert observed(world) == [("suspend_duration_seconds", 360, {"mode": "retain", "outcome": "done"})]


async def test_a_suspend_that_is_taken_back_is_reversed(world: World) -> None:
    await up(world)
    await begin(world, "Suspending", suspend=True)
    world.clock.advance(30)
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert observed(world) == [("suspend_duration_seconds", 30, {"mode": "retain", "outcome": "reversed"})]


async def test_a_wake_that_is_taken_back_is_reversed(world: World) -> None:
    await released(world)
    await begin(world, "Waking", suspend=False)
    world.clock.advance(5)
    world.edit(suspend=True)
    await world.run()
    assert observed(world)[0] == ("wake_duration_seconds", 5, {"mode": "release", "outcome": "reversed"})


async def test_a_migration_that_is_taken_back_is_reversed(world: World) -> None:
    await up(world)
    await begin(world, "Migrating", nodeName="node-b")
    world.clock.advance(5)
    world.edit(nodeName="node-a")
    await rest(world)
    assert observed(world)[0] == ("migration_duration_seconds", 5, {"outcome": "reversed"})


async def test_a_suspend_of_a_vm_that_dies_meanwhile_has_failed(world: World) -> None:
    await up(world)
    await begin(world, "Suspending", suspend=True)
    world.clock.advance(9)
    agent_says(world, {"vm.cocoonstack.io/lifecycle-state": "failed", "vm.cocoonstack.io/id": None})
    await world.run()
    assert world.phase == "Failed"
    assert observed(world) == [("suspend_duration_seconds", 9, {"mode": "retain", "outcome": "failed"})]


async def test_a_set_at_rest_or_coming_up_is_not_measured(world: World) -> None:
    await up(world)
    world.edit(agent={"replicas": 1})
    await rest(world)
    assert observed(world) == []
    await asleep_again(world)


async def asleep_again(world: World) -> None:
    """Passes over a set that sleeps add nothing."""
    world.edit(suspend=True)
    await rest(world)
    count = len(observed(world))
    for _ in range(3):
        world.clock.advance(300)
        world.start_operator()
        await rest(world)
    assert len(observed(world)) == count == 1


async def test_a_transition_that_the_go_operator_began_has_no_clock_and_is_not_measured(world: World) -> None:
    made_by_go(world, {"phase": "Suspending"})
    await rest(world)
    assert world.phase == "Running"
    assert observed(world) == []


async def test_a_wake_in_place_is_measured_too(world: World) -> None:
    await asleep(world)
    world.measures.durations.clear()
    world.edit(suspend=False)
    await world.run()
    await end(world, "Running", after=8)
    assert observed(world) == [("wake_duration_seconds", 8, {"mode": "retain", "outcome": "done"})]


async def test_two_suspends_are_two_observations(world: World) -> None:
    await asleep(world)
    world.measures.durations.clear()
    for suspend in (False, True, False):
        world.edit(suspend=suspend)
        await rest(world)
    names = [name for name, _, _ in observed(world)]
    assert names == ["wake_duration_seconds", "suspend_duration_seconds", "wake_duration_seconds"]
