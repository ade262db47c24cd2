"""What the Go operator does not say, counts wrongly or writes for nothing (contract, section 10.4), each by its number."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import ConflictError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    agent_says,
    agent_shows,
    counters,
    events,
    heal,
    released,
    rest,
    running_status,
    up,
)

pytestmark = pytest.mark.asyncio


async def test_w23_every_pass_leaves_a_status(world: World) -> None:
    """On creation, a drift delete, an error of the registry, an error of the API server, a spec that cannot be read."""
    world.apply()
    await world.run()
    assert world.set()["status"]["observedGeneration"] == 1
    await rest(world)
    world.edit(agent={"image": "other"})
    await world.run()
    assert (world.set()["status"]["observedGeneration"], world.phase) == (2, "Pending")
    await rest(world)
    world.delete_pod()
    world.registry.down = "503 Service Unavailable"
    world.edit(snapshotPolicy="never")
    await world.run()
    assert world.set()["status"]["observedGeneration"] == 3
    assert world.condition("Ready")["message"] == "503 Service Unavailable"
    world.registry.down = ""
    world.edit(hibernatePolicy="release", agent={"replicas": 1})
    await world.run()
    assert world.set()["status"]["observedGeneration"] == 4
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    assert ready["message"] == "spec.hibernatePolicy: release requires agent.replicas=0 and no toolboxes"


@pytest.mark.scenario("S106")
async def test_w24_ready_and_progressing_follow_the_phase(world: World) -> None:
    seen: list[tuple[str, str, str]] = []

    def look() -> None:
        conditions = (world.condition("Ready")["status"], world.condition("Progressing")["status"])
        if not seen or seen[-1][0] != world.phase:
            seen.append((world.phase, *conditions))

    await up(world, hibernatePolicy="release")
    look()
    world.edit(suspend=True)
    await world.run()
    look()
    await rest(world)
    look()
    world.edit(suspend=False)
    await world.run()
    look()
    await rest(world)
    look()
    assert seen == [
        ("Running", "True", "False"),
        ("Suspending", "False", "True"),
        ("Suspended", "False", "False"),
        ("Waking", "False", "True"),
        ("Running", "True", "False"),
    ]


@pytest.mark.scenario("S124", "S171")
async def test_w31_incidents_are_counted_not_passes(world: World) -> None:
    await released(world)
    world.measures.counts.clear()
    world.agent.capacity = False
    world.edit(suspend=False)
    await rest(world)
    for _ in range(3):
        world.start_operator()
        await world.run()
    assert counters(world) == {"slot_release_wake_unschedulable_total{cocoonset=demo,namespace=ns}": 1}
    assert [reason for _, reason, _ in events(world)] == ["WakeNoCapacity"]
    world.agent.capacity = True
    await rest(world)
    world.measures.counts.clear()
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "gone"})
    for _ in range(3):
        world.start_operator()
        await world.run()
    assert counters(world) == {"lifecycle_state_failed_observed_total{phase=Running}": 1}
    assert [reason for _, reason, _ in events(world)] == ["WakeNoCapacity", "PodLifecycleFailed"]


@pytest.mark.scenario("S157")
async def test_w32_a_pod_that_was_gone_already_is_not_counted_as_released(world: World) -> None:
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.observe()

    def hook(moment: str, call: str) -> None:
        if (moment, call) == ("before", "delete demo-0"):
            world.delete_pod()

    world.hook = hook
    await world.reconcile()
    heal(world)
    await rest(world)
    assert world.phase == "Suspended"
    assert counters(world) == {}


@pytest.mark.scenario("S104")
async def test_w55_counters_are_always_stored(world: World) -> None:
    world.agent.capacity = False
    world.apply()
    await rest(world)
    status = world.set()["status"]
    found = {key: status[key] for key in ("readyAgents", "desiredAgents", "readyToolboxes", "desiredToolboxes")}
    assert found == {"readyAgents": 0, "desiredAgents": 1, "readyToolboxes": 0, "desiredToolboxes": 0}
    del world.api.objects[("set", "ns", "demo")]["status"]["readyToolboxes"]
    world.start_operator()
    world.clock.advance(10)
    await rest(world)
    assert world.set()["status"]["readyToolboxes"] == 0


@pytest.mark.scenario("S261")
async def test_w57_the_users_spec_is_not_rewritten(world: World) -> None:
    spec: dict[str, Any] = {
        "agent": {"image": "base", "storage": "1024Gi", "forcePull": False, "probePort": 0, "network": ""},
        "toolboxes": [],
        "suspend": False,
    }
    world.apply(**copy.deepcopy(spec))
    before = world.set()["spec"]
    await rest(world)
    world.delete_set()
    await world.run()
    for write in world.api.writes:
        if write.by == "operator" and write.kind == "set":
            assert "spec" not in write.body
    assert world.set()["spec"] == before


@pytest.mark.scenario("S103")
async def test_w60_a_status_is_compared_with_the_newest_one(world: World) -> None:
    """A phase that was overwritten in the meantime is written again though the watch shows none of our status writes."""
    await up(world)
    world.edit(suspend=True)
    world.observe()
    await world.reconcile()
    assert world.phase == "Suspending"
    world.edit(suspend=False)
    agent_says(world, {keys.LIFECYCLE_GENERATION: "3"})
    world.observe()
    await world.reconcile()
    assert world.phase == "Running"
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    mark = world.mark
    await world.reconcile()
    assert world.writes(mark) == []


@pytest.mark.scenario("S103")
async def test_w60_a_run_behind_the_watch_fails_instead_of_showing_an_old_phase(world: World) -> None:
    """Somebody else's write since: the patch's resourceVersion does not fit, and the next run sees it."""
    await up(world)
    world.observe()
    agent_shows(world, running_status(ready=False))
    world.observe()
    world.api.patch("set", "ns", "demo", {"status": {"phase": "Suspending"}}, by="go", subresource="status")
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert world.phase == "Suspending"
    agent_shows(world, running_status())
    await rest(world)
    assert world.phase == "Running"
