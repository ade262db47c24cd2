"""Wake of a released seat: its pod, and what may happen on the way (contract 4.7, scenarios K; design 4.3)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import UnavailableError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    GET,
    POOL,
    VM,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    counters,
    events,
    heal,
    hibernation,
    refuse,
    released,
    rest,
    terminating,
    up,
    waking,
)

pytestmark = pytest.mark.asyncio


UNSCHEDULABLE = "slot_release_wake_unschedulable_total{cocoonset=demo,namespace=ns}"


def affinity(world: World) -> Any:
    pod = world.pod()
    assert pod is not None
    return pod["spec"].get("affinity", {}).get("nodeAffinity", {})


# -- the pod -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S159")
async def test_a_wake_is_announced_then_made_around_the_snapshot(world: World) -> None:
    digest = await released(world, snapshotCompatibilityClass="one")
    world.edit(suspend=False)
    mark, before = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert world.writes(mark) == ["patch/status set/demo", "create pod/demo-0"]
    assert world.phase == "Waking"
    assert world.condition("SnapshotCurrent")["reason"] == "WakeInProgress"
    assert world.set()["status"]["observedGeneration"] == 3
    pod = world.pod()
    assert pod is not None
    assert "nodeName" not in pod["spec"]
    assert pod["spec"]["nodeSelector"]["cocoonstack.io/snapshot-cpu-class"] == "one"
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a"]}
    assert affinity(world) == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [expression]}}
        ]
    }
    assert annotations_of(world)[keys.RESTORE] == "true"
    assert keys.HIBERNATE not in annotations_of(world)
    assert asked(world, before) == [GET]
    assert world.tag() == digest
    assert outcome.error is None


@pytest.mark.scenario("S160")
async def test_a_pin_takes_the_place_of_the_preference(world: World) -> None:
    await released(world)
    world.edit(suspend=False, nodeName="node-b")
    await world.run()
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"]}
    assert affinity(world) == {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert counters(world) == {POOL: 1}


@pytest.mark.scenario("S161")
async def test_a_fast_unsuspend_restores_though_the_phase_is_still_suspending(world: World) -> None:
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    refuse(world, "patchstatus demo", UnavailableError("timeout", status=504))
    await world.run()
    heal(world)
    world.agent.run()
    assert (world.phase, world.pod(), world.annotation(keys.HINT_NODE)) == ("Suspending", None, "node-a")
    world.edit(suspend=False)
    await world.run()
    assert world.phase == "Waking"
    assert annotations_of(world)[keys.RESTORE] == "true"
    await rest(world)
    assert world.memory() == ["work"]


@pytest.mark.scenario("S163", "S164")
@pytest.mark.parametrize("phase", ["Suspended", "Suspending"])
async def test_a_cached_main_that_is_gone_is_not_woken_in_place(world: World, phase: str) -> None:
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.observe()
    key = ("pod", "ns", "demo-0")
    stale = copy.deepcopy(world.cache.objects[key])
    if phase == "Suspending":
        refuse(world, "patchstatus demo", UnavailableError("timeout", status=504))
    await world.run()
    heal(world)
    world.agent.run()
    digest = world.tag()
    assert (world.phase, world.pod()) == (phase, None)
    world.edit(suspend=False)
    world.observe()
    world.cache.gone.clear()
    world.cache.objects[key] = stale
    await world.reconcile()
    assert world.tag() == digest
    if world.pod() is not None:
        assert annotations_of(world)[keys.RESTORE] == "true"
    world.start_operator()
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S165")
async def test_a_main_that_really_exists_is_woken_in_place(world: World) -> None:
    """And the hint goes (W-46): nothing of the interrupted release is left behind."""
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    refuse(world, "delete demo-0", UnavailableError("timeout", status=504))
    await world.run()
    heal(world)
    assert (world.phase, world.annotation(keys.HINT_NODE)) == ("Suspending", "node-a")
    world.edit(suspend=False)
    mark = world.mark
    await world.run()
    assert "patch pod/demo-0" in world.writes(mark)
    assert keys.HIBERNATE not in annotations_of(world)
    assert keys.KEEP_SNAPSHOT not in annotations_of(world)
    await rest(world)
    assert world.phase == "Running"
    assert [w for w in world.writes(mark) if w.startswith(("create", "delete"))] == []
    assert world.memory() == ["work"]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
    assert counters(world) == {}


@pytest.mark.scenario("S166")
async def test_a_live_read_that_fails_drops_nothing(world: World) -> None:
    digest = await waking(world)
    world.agent.run()
    refuse(world, "get demo-0", UnavailableError("timeout", status=504))
    before = len(world.registry.requests)
    outcome = await world.run()
    assert outcome.error is not None
    assert asked(world, before) == []
    assert world.tag() == digest
    assert world.phase == "Waking"
    heal(world)
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S167")
async def test_a_terminating_released_pod_is_waited_for(world: World) -> None:
    """Its deletion is the event; the Go operator polls every 5 s."""
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    await world.run()
    pod = world.pod()
    assert pod is not None
    assert pod["metadata"]["deletionTimestamp"]
    digest = world.tag()
    world.edit(suspend=False)
    mark = world.mark
    outcome = await world.run()
    assert [w for w in world.writes(mark) if "pod" in w] == []
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.tag() == digest
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S184")
async def test_the_policy_of_today_does_not_matter_for_a_wake(world: World) -> None:
    await released(world)
    world.edit(hibernatePolicy="retain")
    await rest(world)
    assert world.phase == "Suspended"
    assert world.pod() is None
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


# -- on the way --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S170")
@pytest.mark.parametrize("steps", range(7))
async def test_while_the_vm_is_not_live_the_tag_stays(world: World, steps: int) -> None:
    digest = await waking(world)
    for _ in range(steps):
        world.agent.step("ns", "demo-0")
    assert annotations_of(world).get(keys.LIFECYCLE_STATE) != "ready"
    before = len(world.registry.requests)
    outcome = await world.run()
    assert world.tag() == digest
    assert asked(world, before) == []
    assert world.phase == "Waking"
    assert outcome.error is None
    assert world.annotation(keys.HINT_NODE) == "node-a"


@pytest.mark.scenario("S172")
async def test_a_vm_that_is_only_said_to_live_keeps_its_tag(world: World) -> None:
    """I2, the lifecycle has to be ``ready`` for the stamp that the patch wrote which cleared the flag."""
    digest = await waking(world)
    world.agent.run()
    for values in (
        {keys.LIFECYCLE_STATE: "creating"},
        {keys.LIFECYCLE_STATE: "ready", keys.LIFECYCLE_GENERATION: "2"},
        {keys.LIFECYCLE_GENERATION: "3", keys.VM_ID: None},
    ):
        agent_says(world, values)
        await world.run()
        assert world.tag() == digest
        assert world.phase == "Waking"


@pytest.mark.scenario("S171")
async def test_a_wake_without_capacity_is_told_once(world: World) -> None:
    """Legacy W-31: event and counter grow with every pass in the Go operator; here with every incident."""
    await released(world)
    world.agent.capacity = False
    world.edit(suspend=False)
    await world.settle()
    await world.run()
    outcome = await world.run()
    message = "main pod demo-0 unschedulable: 0/2 nodes are available"
    assert events(world) == [("Warning", "WakeNoCapacity", message)]
    assert counters(world) == {UNSCHEDULABLE: 1}
    assert world.phase == "Waking"
    assert (outcome.requeue_after, outcome.error) == (None, None)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "WakeNoCapacity", message)
    world.agent.capacity = True
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S171")
@pytest.mark.parametrize(
    "condition",
    [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": ""},
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"},
        {"type": "PodScheduled", "status": "True", "reason": "Unschedulable", "message": "old"},
    ],
)
async def test_what_is_not_a_lack_of_capacity_is_not_told(world: World, condition: dict[str, str]) -> None:
    await waking(world)
    agent_shows(world, {"conditions": [condition]})
    await world.run()
    assert events(world) == []
    assert counters(world) == {}


@pytest.mark.scenario("S183")
async def test_a_crash_before_the_pod_is_gone_on_from(world: World) -> None:
    await released(world)
    refuse(world, "create demo-0", UnavailableError("timeout", status=504))
    world.edit(suspend=False)
    await world.run()
    assert (world.phase, world.pod()) == ("Waking", None)
    world.start_operator()
    heal(world)
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [GET]
    assert "create pod/demo-0" in world.writes(mark)
    assert annotations_of(world)[keys.RESTORE] == "true"
    await rest(world)
    assert world.memory() == ["work"]


@pytest.mark.scenario("S170")
async def test_a_suspend_in_the_middle_of_a_wake_ends_asleep(world: World) -> None:
    """An edit in the middle ends where the last edit says; the digest of before or a newer one is the tag."""
    for steps in range(10):
        world = World()
        await waking(world)
        for _ in range(steps):
            world.agent.step("ns", "demo-0")
        world.edit(suspend=True)
        await rest(world)
        assert world.phase == "Suspended", steps
        assert world.pod() is None, steps
        assert world.registry.content(VM, "hibernate")["memory"] == ["work"], steps  # type: ignore[index]
        world.edit(suspend=False)
        await rest(world)
        assert world.memory() == ["work"], steps


@pytest.mark.scenario("S170", "S191")
async def test_a_waking_vm_that_a_hibernation_asks_for_ends_asleep_at_its_hands(world: World) -> None:
    """W-28: the Go operator waits in ``Waking`` for ever; here the set lets go of a VM that is held."""
    digest = await waking(world)
    hibernation(world)
    await world.run()
    assert world.tag() == digest
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is None
    assert world.writes(mark) == []
    assert world.tag() == digest


@pytest.mark.scenario("S167", "S170")
async def test_a_wake_pod_that_is_deleted_is_made_again(world: World) -> None:
    await waking(world)
    world.agent.step("ns", "demo-0")
    terminating(world)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None
