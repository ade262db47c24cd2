"""What one hibernation and one wake cost: writes, registry requests, events and samples, counted exactly (contract 4.20, 5.5)."""

from __future__ import annotations

import json

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.holders import ends, gone, phase, samples, solo, told, wants
from tests.unit.reconcile.staging import (
    RUN_BOX,
    agent_says,
    agent_shows,
    asked,
    bodies,
    hibernation,
    milestones,
    rest,
    roles_up,
    running_status,
)

pytestmark = pytest.mark.asyncio

PODS = pytest.mark.parametrize("pod", ["demo-0", "demo-1", "demo-db", "solo"])
"""A main agent, a sub-agent, a toolbox, and a pod of no set."""


class Count:
    """What happened since it was made."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.mark = world.mark
        self.requests = len(world.registry.requests)
        self.events = len(world.recorder.events)
        self.durations = len(world.measures.durations)

    def writes(self) -> list[str]:
        return self.world.writes(self.mark)

    def asked(self) -> list[str]:
        return [request.split(" ")[0] for request in asked(self.world, self.requests)]

    def nothing(self) -> bool:
        quiet = self.events == len(self.world.recorder.events)
        return quiet and not self.writes() and not self.asked() and self.durations == len(self.world.measures.durations)


async def everybody(world: World, pod: str) -> None:
    """A set with all roles, or the pod of no set where that is meant."""
    await (solo(world) if pod == "solo" else roles_up(world, 1, [RUN_BOX]))


async def asleep(world: World, pod: str) -> None:
    await everybody(world, pod)
    hibernation(world, pod)
    await rest(world)
    assert phase(world, pod) == "Hibernated"


# -- a transition ------------------------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S286")
async def test_a_hibernation(world: World, pod: str) -> None:
    """Of a set: finalizer, flag, and at its begin and end a status of each. Without one the phase stands before the flag."""
    await everybody(world, pod)
    count = Count(world)
    hibernation(world, pod)
    world.clock.advance(7)
    await world.run()
    world.clock.advance(42)
    await world.settle()
    own = f"hibernation/{pod}"
    both = ["patch/status set/demo", f"patch/status {own}"]
    flag = f"patch pod/{pod}"
    in_a_set = [f"patch {own}", flag, *both, *both]
    alone = [f"patch {own}", f"patch/status {own}", flag, f"patch/status {own}"]
    assert count.writes() == (alone if pod == "solo" else in_a_set)
    assert count.asked() == ["HEAD"]
    assert [reason for _, reason, _ in told(world, pod)] == ["Hibernated"]
    assert samples(world) == [("hibernate_phase_duration_seconds", 42.0, "ok")]
    assert bodies(world, count.mark, flag) == [{"metadata": {"annotations": {keys.HIBERNATE: "true"}}}]


@PODS
@pytest.mark.scenario("S293")
async def test_a_wake(world: World, pod: str) -> None:
    await asleep(world, pod)
    count = Count(world)
    wants(world, "Wake", pod)
    await world.run()
    world.clock.advance(11)
    await world.settle()
    own = f"hibernation/{pod}"
    both = ["patch/status set/demo", f"patch/status {own}"]
    in_a_set = [f"patch pod/{pod}", *both, *both]
    assert count.writes() == ([f"patch pod/{pod}", *[f"patch/status {own}"] * 2] if pod == "solo" else in_a_set)
    assert count.asked() == ["HEAD", "DELETE"]
    assert [reason for _, reason, _ in told(world, pod)] == ["Hibernated", "WokenActive"]
    assert samples(world)[1:] == [("wake_phase_duration_seconds", 11.0, "ok")]


@PODS
async def test_its_deletion_when_awake(world: World, pod: str) -> None:
    await everybody(world, pod)
    hibernation(world, pod, desire="Wake")
    await rest(world)
    count = Count(world)
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)
    assert (count.writes(), count.asked()) == ([f"patch hibernation/{pod}"], [])


@PODS
@pytest.mark.scenario("S299")
async def test_its_deletion_when_asleep(world: World, pod: str) -> None:
    await asleep(world, pod)
    count = Count(world)
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)
    in_a_set = [f"patch hibernation/{pod}", f"patch pod/{pod}", *["patch/status set/demo"] * 2]
    assert count.writes() == ([f"patch pod/{pod}", f"patch hibernation/{pod}"] if pod == "solo" else in_a_set)
    assert count.asked() == ["HEAD", "DELETE"]
    assert [reason for _, reason, _ in told(world, pod)] == ["Hibernated"]
    assert len(samples(world)) == 1


@PODS
async def test_a_transition_that_fails_is_one_event_and_one_sample_an_attempt(world: World, pod: str) -> None:
    await everybody(world, pod)
    hibernation(world, pod)
    for _ in range(12):
        await world.run()
        world.clock.advance(60)
    own = [reason for _, reason, _ in told(world, pod)]
    assert own == ["HibernateTimedOut", "RetryRequested", "HibernateTimedOut"]
    assert [(name.split("_")[0], result) for name, _, result in samples(world)] == [("hibernate", "timeout")] * 2


async def test_the_end_of_a_wake_by_hand_is_a_milestone_of_the_set(world: World) -> None:
    """Sleeping on somebody's wish is told by the CocoonHibernation; that the set has all its VMs again, by the set."""
    await asleep(world, "demo-0")
    assert milestones(world) == []
    wants(world, "Wake", "demo-0")
    await rest(world)
    assert milestones(world) == [("Resumed", "every VM is awake")]


# -- at rest -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", ["demo-0", "demo-1", "demo-db"])
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
@pytest.mark.scenario("S296")
async def test_whatever_else_its_set_or_its_pod_is_about_costs_nothing(world: World, pod: str, desire: str) -> None:
    await everybody(world, pod)
    hibernation(world, pod, desire=desire)
    await rest(world)
    world.clock.advance(60)
    await rest(world)
    count = Count(world)
    for beat in range(20):
        world.clock.advance(60)
        agent_says(world, {"vm.cocoonstack.io/snapshot-status": json.dumps({"ref": str(beat)})}, pod)
        if desire == "Wake":
            agent_shows(world, running_status() | {"message": str(beat)}, pod)
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert count.nothing()


@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
async def test_a_pod_of_no_set_costs_one_look_and_while_it_sleeps_one_question(world: World, desire: str) -> None:
    """Its own events run it, and the slow resync; nothing else does."""
    await everybody(world, "solo")
    hibernation(world, "solo", desire=desire)
    await rest(world)
    count = Count(world)
    world.clock.advance(300)
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert (count.writes(), count.asked()) == ([], ["HEAD"] if desire == "Hibernate" else [])


@PODS
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
@pytest.mark.scenario("S315")
async def test_a_new_process_tells_nothing_again(world: World, pod: str, desire: str) -> None:
    await everybody(world, pod)
    hibernation(world, pod, desire=desire)
    await rest(world)
    for _ in range(3):
        count = Count(world)
        world.start_operator()
        await rest(world)
        assert (count.writes(), count.events, count.durations) == (
            [],
            len(world.recorder.events),
            len(world.measures.durations),
        )
        assert pod == "solo" or count.asked() == []
