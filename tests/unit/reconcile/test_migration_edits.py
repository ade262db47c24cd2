"""A migration that meets another edit, other roles or another's work on its way (contract 4.6)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from tests.model.world import World
from tests.unit.reconcile.moves import lifecycle, moving, node, restoring, step, until
from tests.unit.reconcile.staging import (
    DROP,
    GET,
    HEAD,
    RUN_BOX,
    STATIC_BOX,
    VM,
    annotations_of,
    asked,
    asleep,
    bodies,
    events,
    heal,
    hibernation,
    made_by_go,
    pod_writes,
    pods,
    refuse,
    rest,
    roles_up,
    saved,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio


# -- another edit on the way -------------------------------------------------------------------------------------------


@pytest.mark.scenario("S205")
async def test_a_living_main_on_the_wrong_node_moves_and_its_stale_tag_goes_with_the_proof(world: World) -> None:
    """Legacy S205 drops at once. Here: a wake that was asked for together with the move ends first, then it moves."""
    await asleep(world)
    world.edit(suspend=False)
    await world.run()
    step(world, 2)
    digest = world.tag()
    world.edit(nodeName="node-b")
    for _ in range(3):
        await world.run()
    assert (world.tag(), node(world)) == (digest, "node-a")
    await rest(world)
    assert (world.memory(), node(world), world.tag(), world.phase) == (["work"], "node-b", None, "Running")


@pytest.mark.scenario("S206", "S211")
@pytest.mark.parametrize("target", ["node-a", None])
@pytest.mark.parametrize("moment", ["ready", "hibernating", "hibernated"])
async def test_a_move_that_is_taken_back_ends_where_it_began(world: World, target: str | None, moment: str) -> None:
    """Sleeping or not: the flag goes, the tag only behind a VM that is proven awake."""
    await moving(world)
    if moment != "ready":
        await until(world, lambda: lifecycle(world) == moment)
    uid, digest = world.pod()["metadata"]["uid"], world.tag()  # type: ignore[index]
    mark = world.mark
    world.edit(nodeName=target)
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world)
    assert world.tag() == digest
    await rest(world)
    assert not any(write.startswith("delete") for write in world.writes(mark))
    assert world.pod()["metadata"]["uid"] == uid  # type: ignore[index]
    assert (world.memory(), world.tag(), world.phase) == (["work"], None, "Running")
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.scenario("S208")
async def test_a_pin_that_is_given_up_between_the_nodes_restores_anywhere(world: World) -> None:
    await moving(world)
    await until(world, lambda: world.pod() is None)
    mark = world.mark
    world.edit(nodeName=None)
    await rest(world)
    (body,) = bodies(world, mark, "create pod/demo-0")
    assert body["metadata"]["annotations"][keys.RESTORE] == "true"
    assert "affinity" not in body["spec"]
    assert (world.memory(), world.phase, world.tag()) == (["work"], "Running", None)


@pytest.mark.scenario("S213")
async def test_w01_a_new_target_during_the_restore_keeps_the_only_copy(world: World) -> None:
    """Legacy: the tag is dropped under a restore in flight. Here it stays until the VM is awake, which then moves on."""
    digest = await restoring(world)
    world.agent.nodes.append("node-c")
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(nodeName="node-c")
    for _ in range(4):
        await world.run()
    assert (world.tag(), DROP in asked(world, requests)) == (digest, False)
    assert not any(write.startswith("delete") for write in world.writes(mark))
    await rest(world)
    assert (node(world), world.memory(), world.tag(), world.phase) == ("node-c", ["work"], None, "Running")


@pytest.mark.scenario("S214")
async def test_w01_a_target_during_the_wake_of_a_released_seat_keeps_the_only_copy(world: World) -> None:
    digest = await asleep(world, hibernatePolicy="release")
    await rest(world)
    world.edit(suspend=False)
    await until(world, lambda: lifecycle(world) == "creating")
    requests = len(world.registry.requests)
    world.edit(nodeName="node-b")
    for _ in range(4):
        await world.run()
    assert (world.tag(), DROP in asked(world, requests)) == (digest, False)
    await rest(world)
    assert (node(world), world.memory(), world.tag(), world.phase) == ("node-b", ["work"], None, "Running")
    assert world.annotation(keys.HINT_NODE) is None


async def test_w01_a_hibernation_that_wakes_on_another_node_keeps_the_only_copy(world: World) -> None:
    digest = await asleep(world)
    hibernation(world, phase="Hibernated")
    world.edit(suspend=False, nodeName="node-b")
    await rest(world)
    world.api.patch("hibernation", "ns", "demo-0", {"spec": {"desire": "Wake"}}, by="user")
    await world.run()
    step(world, 1)
    for _ in range(3):
        await world.run()
    assert world.tag() == digest
    await rest(world)
    assert (node(world), world.memory(), world.tag()) == ("node-b", ["work"], None)


@pytest.mark.scenario("S205")
async def test_w59_a_run_sees_the_flag_it_set_itself(world: World) -> None:
    """Legacy: the own flag is not in the cache yet, so the new tag looks stale and is dropped. Memory lost."""
    await up(world)
    world.edit(nodeName="node-b")
    world.observe()
    mark = world.mark
    await world.reconcile()
    assert world.writes(mark) == ["patch/status set/demo", "patch pod/demo-0"]
    requests = len(world.registry.requests)
    for _ in range(3):
        await world.reconcile()
    assert [w for w in world.writes(mark) if "status" not in w] == ["patch pod/demo-0"]
    world.agent.run()
    assert world.tag() is not None
    for _ in range(4):
        await world.reconcile()
    assert world.tag() is not None
    assert [r for r in asked(world, requests) if r.startswith("DELETE")] == []
    await rest(world)
    assert (node(world), world.memory(), world.phase) == ("node-b", ["work"], "Running")


async def test_w59_a_run_sees_the_delete_and_the_create_of_a_migration(world: World) -> None:
    await moving(world)
    await until(world, lambda: lifecycle(world) == "hibernated")
    step(world, 3)
    world.observe()
    mark = world.mark
    for _ in range(3):
        await world.reconcile()
    assert pod_writes(world, mark) == ["delete pod/demo-0"]
    world.agent.run()
    world.observe()
    for _ in range(3):
        await world.reconcile()
    assert pod_writes(world, mark) == ["delete pod/demo-0", "create pod/demo-0"]


# -- with the other roles, and after others ----------------------------------------------------------------------------


@pytest.mark.scenario("S196", "S060")
async def test_sub_agents_and_toolboxes_stay_awake_and_where_they_are(world: World) -> None:
    await roles_up(world, 2, [RUN_BOX, STATIC_BOX])
    others = {pod: world.pod(pod)["metadata"]["uid"] for pod in pods(world) if pod != "demo-0"}  # type: ignore[index]
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(nodeName="node-b")
    await rest(world)
    assert world.phase == "Running"
    assert {pod: world.pod(pod)["metadata"]["uid"] for pod in others} == others  # type: ignore[index]
    assert {pod: node(world, pod) for pod in others} == dict.fromkeys(others, "node-a")
    assert node(world) == "node-b"
    for pod in others:
        (stamp,) = bodies(world, mark, f"patch pod/{pod}")
        assert stamp == {"metadata": {"annotations": {keys.GENERATION: "2"}}}
    drops = [f"DELETE {vm(member)}:hibernate" for member in (0, 1, 2, "db")]
    assert sorted(asked(world, requests)) == sorted([HEAD, GET, *drops])
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"]


@pytest.mark.scenario("S216")
async def test_a_first_creation_with_a_pin_does_not_trust_a_tag(world: World) -> None:
    """Legacy S216 restores it as `Migrating` (W-06). Here it is a leftover: put aside, and the boot is fresh."""
    saved(world, memory=["of a namesake"])
    saved(world, vm(1), memory=["of a namesake"])
    world.apply(nodeName="node-b", agent={"replicas": 1})
    await world.run()
    assert world.phase == "Pending"
    await rest(world)
    assert (world.memory(), world.memory(vm(1)), node(world)) == ([], ["fork of vk-ns-demo-0"], "node-b")
    assert world.tag() is None
    assert [reason for _, reason, _ in events(world)] == ["LeftoverSnapshotMoved", "LeftoverSnapshotMoved"]


@pytest.mark.scenario("S208", "S199")
@pytest.mark.parametrize("target", ["node-b", None])
async def test_a_migration_of_the_go_operator_goes_on(world: World, target: str | None) -> None:
    """Phase `Migrating`, no pod, a tag under a listed name: restored where the spec says."""
    spec = {"nodeName": target} if target else {}
    made_by_go(world, {"phase": "Migrating"}, {keys.DELETE_VM_NAMES: VM}, **spec)
    saved(world, memory=["kept"])
    await rest(world)
    assert (world.memory(), world.tag(), world.phase) == (["kept"], None, "Running")
    assert node(world) == (target or "node-a")


@pytest.mark.scenario("S206", "S208")
async def test_a_pod_that_vanishes_asleep_in_the_middle_is_restored(world: World) -> None:
    await moving(world)
    await until(world, lambda: lifecycle(world) == "hibernated" and not world.agent.vms)
    await world.run()
    world.delete_pod()
    world.start_operator()
    await rest(world)
    assert (world.memory(), node(world), world.phase) == (["work"], "node-b", "Running")


async def test_a_delete_that_is_refused_is_tried_again(world: World) -> None:
    await moving(world)
    await until(world, lambda: lifecycle(world) == "hibernated")
    refuse(world, "delete demo-0", KubeError("etcd is gone", status=500))
    await rest(world)
    assert (world.phase, world.condition("Ready")["message"]) == ("Migrating", "etcd is gone")
    heal(world)
    await rest(world)
    assert (world.memory(), node(world), world.phase) == (["work"], "node-b", "Running")


async def test_a_sub_agent_that_is_asleep_elsewhere_does_not_bind_the_move(world: World) -> None:
    """A held sub-agent stays asleep on its node while main moves, and wakes there with its memory."""
    await roles_up(world, 1)
    hibernation(world, "demo-1", phase="Hibernated")
    world.api.patch("pod", "ns", "demo-1", {"metadata": {"annotations": {keys.HIBERNATE: "true"}}}, by="operator")
    await rest(world)
    assert vm(1) not in world.agent.vms
    world.edit(nodeName="node-b")
    await rest(world)
    assert (node(world), node(world, "demo-1"), world.tag(vm(1)) is not None) == ("node-b", "node-a", True)
    world.api.remove("hibernation", "ns", "demo-1")
    await rest(world)
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]
    assert (world.phase, world.tag(vm(1))) == ("Running", None)
