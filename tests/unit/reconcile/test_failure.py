"""A main agent that failed (contract 4.9.1, scenarios H; design 4.4)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    VM,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    asleep,
    counters,
    events,
    running_status,
    up,
)

pytestmark = pytest.mark.asyncio

FAILED = {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "the disk is gone"}
COUNTER = "lifecycle_state_failed_observed_total"


async def failed(world: World, values: dict[str, str | None] | None = None, **spec: Any) -> int:
    """A running set whose main agent failed for good; returns the mark before the pass that sees it."""
    await up(world, **spec)
    agent_says(world, values or dict(FAILED))
    mark = world.mark
    await world.run()
    return mark


@pytest.mark.scenario("S120", "S121", "S125", "S126")
@pytest.mark.parametrize(
    ("annotations", "phase", "event", "counted"),
    [
        (FAILED, "Running", ("PodLifecycleFailed", "main pod ns/demo-0: the disk is gone"), 1),
        ({keys.LIFECYCLE_STATE: "failed"}, "Running", ("PodLifecycleFailed", "main pod ns/demo-0: Running"), 1),
        (FAILED, "Failed", ("PodLifecycleFailed", "main pod ns/demo-0: the disk is gone"), 1),
        ({}, "Failed", ("MainAgentFailed", "main pod ns/demo-0: Failed"), 0),
        ({keys.LIFECYCLE_MESSAGE: "boom"}, "Failed", ("MainAgentFailed", "main pod ns/demo-0: boom"), 0),
    ],
)
async def test_the_reason_of_a_failure(
    world: World, annotations: dict[str, str], phase: str, event: tuple[str, str], counted: int
) -> None:
    await up(world)
    agent_says(world, annotations)
    agent_shows(world, {"phase": phase})
    mark = world.mark
    outcome = await world.run()
    assert world.phase == "Failed"
    assert world.writes(mark) == ["patch/status set/demo"]
    assert events(world) == [("Warning", *event)]
    assert counters(world) == ({COUNTER + "{phase=Running}": 1} if counted else {})
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.condition("Ready")["reason"] == event[0]
    assert world.condition("Ready")["message"] == event[1]


@pytest.mark.scenario("S122", "S123")
async def test_a_failed_main_is_made_again_for_an_edited_spec(world: World) -> None:
    """As in the Go operator, without event and counter; the status is written (W-23)."""
    await up(world)
    agent_says(world, dict(FAILED))
    agent_shows(world, {"phase": "Failed"})
    world.edit(agent={"image": "other"})
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["delete pod/demo-0", "patch/status set/demo"]
    assert events(world) == []
    assert counters(world) == {}
    await world.settle()
    assert world.phase == "Running"
    assert annotations_of(world)[keys.IMAGE] == "other"


@pytest.mark.scenario("S122")
@pytest.mark.parametrize("message", ["hibernate: push failed", "hibernate: "])
async def test_a_failed_hibernation_is_not_made_again(world: World, message: str) -> None:
    """Design 4.4, W-62: there is a living VM behind it; it is replaced when it is ready, as any edited VM."""
    await up(world)
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: message})
    world.edit(agent={"network": "blue"})
    mark = world.mark
    await world.run()
    assert "delete pod/demo-0" not in world.writes(mark)
    assert world.memory() == ["work"]
    assert world.phase != "Failed"
    assert counters(world) == {}


@pytest.mark.scenario("S124")
async def test_a_failure_is_told_and_counted_once(world: World) -> None:
    """Legacy W-31: the Go operator repeats event and counter in every pass, the second with ``phase="Failed"``."""
    world.apply()
    await world.run()
    agent_says(world, dict(FAILED))
    agent_shows(world, {"phase": "Failed"})
    for _ in range(3):
        await world.run()
    assert world.phase == "Failed"
    assert [reason for _, reason, _ in events(world)] == ["PodLifecycleFailed"]
    assert counters(world) == {COUNTER + "{phase=Pending}": 1}


@pytest.mark.scenario("S124")
async def test_a_failure_before_any_status_counts_as_pending(world: World) -> None:
    world.apply()
    await world.run()
    world.api.objects[("set", "ns", "demo")]["status"] = {}
    agent_says(world, dict(FAILED))
    agent_shows(world, {"phase": "Failed"})
    world.start_operator()
    await world.run()
    assert counters(world) == {COUNTER + "{phase=Pending}": 1}


@pytest.mark.scenario("S124")
async def test_a_restart_tells_nothing_again(world: World) -> None:
    await failed(world)
    world.start_operator()
    await world.run()
    assert len(events(world)) == 1
    assert sum(counters(world).values()) == 1


@pytest.mark.scenario("S127")
async def test_a_recovery_is_told_and_the_same_pass_reports_running(world: World) -> None:
    await failed(world)
    assert world.phase == "Failed"
    agent_says(world, {keys.LIFECYCLE_STATE: "ready", keys.LIFECYCLE_MESSAGE: None})
    mark = world.mark
    await world.run()
    assert world.phase == "Running"
    assert world.writes(mark) == ["patch/status set/demo"]
    assert events(world)[1:] == [("Normal", "RecoveredFromFailure", "main pod ns/demo-0 is Ready again")]
    await world.run()
    assert len(events(world)) == 2
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.scenario("S127")
async def test_no_recovery_is_told_while_the_pod_is_still_failed(world: World) -> None:
    """A pod whose lifecycle is ``failed`` may still be Ready; recovery means that it stopped being terminal."""
    await failed(world)
    agent_says(world, {keys.LIFECYCLE_MESSAGE: "the disk is still gone"})
    await world.run()
    assert [reason for _, reason, _ in events(world)] == ["PodLifecycleFailed"]
    assert world.phase == "Failed"


@pytest.mark.scenario("S128")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_a_failed_main_holds_back_a_suspend(world: World, policy: str) -> None:
    """Design 4: and the status says what holds it, and why."""
    await failed(world, hibernatePolicy=policy)
    world.edit(suspend=True)
    await world.run()
    assert world.phase == "Failed"
    assert keys.HIBERNATE not in annotations_of(world)
    assert world.pod() is not None
    assert world.set()["status"]["observedGeneration"] == 2
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "PodLifecycleFailed")
    assert "the disk is gone" in world.condition("Ready")["message"]


@pytest.mark.scenario("S129")
async def test_failed_with_a_capital_is_no_state(world: World) -> None:
    await up(world)
    agent_says(world, {keys.LIFECYCLE_STATE: "Failed"})
    await world.run()
    assert world.phase == "Running"
    assert events(world) == []


@pytest.mark.scenario("S130")
@pytest.mark.parametrize("suspend", [False, True])
async def test_a_failed_main_without_drift_is_never_deleted(world: World, suspend: bool) -> None:
    await failed(world)
    world.edit(suspend=suspend, snapshotPolicy="never")
    mark = world.mark
    for _ in range(5):
        await world.run()
        world.clock.advance(600)
    assert world.pod() is not None
    assert [write for write in world.writes(mark) if write.startswith(("delete", "create"))] == []


@pytest.mark.scenario("S130")
async def test_a_failed_main_that_a_user_deletes_is_made_again(world: World) -> None:
    await failed(world)
    world.delete_pod()
    await world.settle()
    assert world.phase == "Running"
    assert world.memory() == []


@pytest.mark.scenario("S120")
async def test_a_wake_that_failed_is_a_sleeping_vm(world: World) -> None:
    """Design 4.4: ``failed`` without a VM while the tag exists; the agent retries, the set is not ``Failed``."""
    digest = await asleep(world)
    world.agent.fail.add("wake")
    world.edit(suspend=False)
    await world.settle()
    assert annotations_of(world)[keys.LIFECYCLE_STATE] == "failed"
    assert world.phase != "Failed"
    assert world.tag() == digest
    assert [reason for _, reason, _ in events(world)] == ["WakeFailed"]
    assert counters(world) == {}
    world.agent.fail.clear()
    await world.settle()
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S122")
async def test_a_wake_that_failed_is_not_deleted_while_the_registry_says_nothing(world: World) -> None:
    """I6: whether there is saved state is unknown, and *unknown* deletes nothing, whatever was edited."""
    await asleep(world)
    world.agent.fail.add("wake")
    world.edit(suspend=False)
    await world.settle()
    world.registry.down = "connection refused"
    world.edit(agent={"network": "blue"})
    world.start_operator()
    mark = world.mark
    outcome = await world.run()
    assert "delete pod/demo-0" not in world.writes(mark)
    assert outcome.error is not None


@pytest.mark.scenario("S122")
async def test_a_boot_that_failed_is_not_deleted_while_the_registry_says_nothing(world: World) -> None:
    """As above for a VM of which no save is on record: only an absent tag makes it dead (design 4.4)."""
    world.agent.fail.add("boot")
    world.apply()
    await world.settle()
    world.registry.down = "connection refused"
    world.edit(agent={"network": "blue"})
    mark = world.mark
    outcome = await world.run()
    assert "delete pod/demo-0" not in world.writes(mark)
    assert outcome.error is not None


@pytest.mark.scenario("S122")
async def test_an_edit_meets_a_failed_wake_and_the_memory_survives(world: World) -> None:
    """Design 4.4: a sleeping VM is made again from the new spec around the same snapshot."""
    digest = await asleep(world)
    world.agent.fail.add("wake")
    world.edit(suspend=False)
    await world.settle()
    world.edit(agent={"network": "blue"})
    await world.settle()
    assert world.tag() == digest
    world.agent.fail.clear()
    await world.settle()
    assert world.phase == "Running"
    assert annotations_of(world)[keys.NETWORK] == "blue"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S121", "S130")
async def test_a_boot_that_failed_is_failed_and_asked_about_by_head_alone(world: World) -> None:
    world.agent.fail.add("boot")
    world.apply()
    await world.settle()
    assert world.phase == "Failed"
    assert [reason for _, reason, _ in events(world)] == ["PodLifecycleFailed"]
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [f"HEAD {VM}:hibernate"]


async def test_a_pod_that_never_was_ready_and_fails_by_phase(world: World) -> None:
    world.apply()
    await world.run()
    agent_shows(world, {"phase": "Failed", "conditions": running_status(ready=False)["conditions"]})
    await world.run()
    assert world.phase == "Failed"
    assert events(world) == [("Warning", "MainAgentFailed", "main pod ns/demo-0: Failed")]
