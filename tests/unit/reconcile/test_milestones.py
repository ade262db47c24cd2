"""Events that tell the course of a set: each once an edge, none twice, whoever restarts (W-33)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    RUN_BOX,
    STATIC_BOX,
    asleep,
    hibernation,
    made_by_go,
    milestones,
    rest,
    roles_asleep,
    roles_up,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

KEPT = ("Suspended", "saved; the pods keep their seats")
FREED = ("Suspended", "saved; the seat is free")
RESUMED = ("Resumed", "every VM is awake")
STARTED = ("MigrationStarted", "main agent moves to node node-b")
MIGRATED = ("Migrated", "main agent runs on node node-b")


def again(name: str) -> tuple[str, str]:
    return ("Recreating", f"{name} is made again for the edited spec")


async def rest_with_restarts(world: World) -> None:
    """As :func:`rest`, but every pass is another process's."""
    for _ in range(40):
        world.start_operator()
        await world.run()
        for pod in world.api.list("pod"):
            world.agent.step("ns", pod["metadata"]["name"])
    await rest(world)


async def test_w33_a_set_that_comes_up_tells_nothing(world: World) -> None:
    await roles_up(world, 2, [RUN_BOX, STATIC_BOX])
    world.edit(agent={"replicas": 1})
    await rest(world)
    assert milestones(world) == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_w33_suspend_and_wake_of_a_set_that_keeps_its_seats(world: World, restarts: bool) -> None:
    go_on = rest_with_restarts if restarts else rest
    await roles_up(world, 1, [RUN_BOX])
    world.edit(suspend=True)
    await go_on(world)
    assert milestones(world) == [KEPT]
    world.edit(suspend=False)
    await go_on(world)
    assert milestones(world) == [KEPT, RESUMED]
    await rest_with_restarts(world)
    assert milestones(world) == [KEPT, RESUMED]
    world.edit(suspend=True)
    await go_on(world)
    assert milestones(world) == [KEPT, RESUMED, KEPT]


@pytest.mark.parametrize("restarts", [False, True])
async def test_w33_suspend_and_wake_of_a_released_seat(world: World, restarts: bool) -> None:
    go_on = rest_with_restarts if restarts else rest
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await go_on(world)
    assert milestones(world) == [FREED]
    world.edit(suspend=False)
    await go_on(world)
    assert milestones(world) == [FREED, RESUMED]
    await rest_with_restarts(world)
    assert milestones(world) == [FREED, RESUMED]


async def test_w33_resumed_means_that_every_vm_is_awake(world: World) -> None:
    """Not told while a sub-agent or toolbox still sleeps."""
    await roles_asleep(world, 1, [RUN_BOX])
    world.edit(suspend=False)
    for _ in range(15):
        await world.run()
        world.agent.step("ns", "demo-0")
    assert (vm(0) in world.agent.vms, vm(1) in world.agent.vms) == (True, False)
    assert milestones(world) == [KEPT]
    await rest(world)
    assert milestones(world) == [KEPT, RESUMED]


async def test_w33_resumed_is_not_told_of_a_set_whose_seat_was_never_used(world: World) -> None:
    world.apply(suspend=True, hibernatePolicy="release")
    await rest(world)
    world.edit(suspend=False)
    await rest(world)
    assert milestones(world) == []


async def test_w33_a_suspend_that_is_taken_back_is_no_milestone(world: World) -> None:
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.edit(suspend=False)
    await rest(world)
    assert milestones(world) == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_w33_a_migration_begins_and_ends(world: World, restarts: bool) -> None:
    go_on = rest_with_restarts if restarts else rest
    await roles_up(world, 1, [RUN_BOX])
    world.edit(nodeName="node-b")
    await world.run()
    assert milestones(world) == [STARTED]
    await go_on(world)
    assert milestones(world) == [STARTED, MIGRATED]
    await rest_with_restarts(world)
    assert milestones(world) == [STARTED, MIGRATED]


async def test_w33_a_new_target_does_not_begin_the_same_migration_again(world: World) -> None:
    world.agent.nodes.append("node-c")
    await up(world)
    world.edit(nodeName="node-b")
    await world.run()
    world.edit(nodeName="node-c")
    await rest(world)
    assert milestones(world) == [STARTED, ("Migrated", "main agent runs on node node-c")]


@pytest.mark.parametrize("target", ["node-a", None])
async def test_w33_a_migration_that_is_taken_back_does_not_end_as_one(world: World, target: str | None) -> None:
    """The main agent never left its node: nothing migrated."""
    await up(world)
    world.edit(nodeName="node-b")
    await world.run()
    world.edit(nodeName=target)
    await rest(world)
    assert world.phase == "Running"
    assert milestones(world) == [STARTED]


@pytest.mark.parametrize("restarts", [False, True])
async def test_w33_every_vm_that_is_made_again_is_told_once(world: World, restarts: bool) -> None:
    go_on = rest_with_restarts if restarts else rest
    await roles_up(world, 1, [RUN_BOX, STATIC_BOX])
    world.edit(agent={"image": "other"})
    await go_on(world)
    assert milestones(world) == [again(vm(0)), again(vm(1))]
    world.edit(toolboxes=[{**RUN_BOX, "network": "blue"}, STATIC_BOX])
    await go_on(world)
    assert milestones(world) == [again(vm(0)), again(vm(1)), again(vm("db"))]


async def test_w33_a_pod_that_was_gone_already_is_not_made_again(world: World) -> None:
    """As W-32 for releases: what is told is what was done."""
    await roles_up(world, 1)
    world.api.patch("pod", "ns", "demo-1", {"metadata": {"annotations": {keys.NETWORK: "mine"}}}, by="user")
    world.observe()
    world.delete_pod("demo-1")
    await world.reconcile()
    await rest(world)
    assert world.phase == "Running"
    assert milestones(world) == []


async def test_w33_an_edit_of_a_sleeping_set_is_told_when_it_is_met(world: World) -> None:
    """The pod is made again around its memory at the wake; asleep is said again, since the edit had to be echoed."""
    await asleep(world)
    world.edit(agent={"network": "blue"})
    await rest(world)
    before = milestones(world)
    assert [reason for reason, _ in before] == ["Suspended", "Suspended"]
    world.edit(suspend=False)
    await rest(world)
    assert world.memory() == ["work"]
    assert milestones(world)[len(before) :] == [RESUMED]


async def test_w33_a_held_set_tells_nothing(world: World) -> None:
    await up(world)
    hibernation(world, phase="Hibernating")
    world.api.patch("pod", "ns", "demo-0", {"metadata": {"annotations": {keys.HIBERNATE: "true"}}}, by="operator")
    await rest(world)
    assert milestones(world) == []


@pytest.mark.parametrize(
    ("status", "told"),
    [({"phase": "Suspended"}, []), ({"phase": "Running"}, [KEPT]), ({"phase": "Suspending"}, [KEPT])],
)
async def test_w33_what_the_go_operator_did_is_not_told_again(
    world: World, status: dict[str, Any], told: list[tuple[str, str]]
) -> None:
    await up(world)
    uid = world.set()["metadata"]["uid"]
    world.edit(suspend=True)
    world.agent.run()
    del world.api.objects[("set", "ns", "demo")]
    world.recorder.events.clear()
    made_by_go(world, status, {keys.DELETE_VM_NAMES: vm(0)}, suspend=True)
    owner = world.api.objects[("pod", "ns", "demo-0")]["metadata"]["ownerReferences"][0]
    assert owner["uid"] == uid
    owner["uid"] = world.set()["metadata"]["uid"]
    world.start_operator()
    await rest(world)
    assert world.phase == "Suspended"
    reasons = milestones(world)
    assert reasons[len(reasons) - len(told) :] == told
    assert len(reasons) <= 1
