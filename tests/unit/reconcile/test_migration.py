"""Migration of the main agent to ``spec.nodeName`` (contract 4.6): saved, deleted, restored where the user wants it."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.staging import (
    DROP,
    GET,
    HEAD,
    RUN_BOX,
    STATIC_BOX,
    VM,
    agent_says,
    annotations_of,
    asked,
    asleep,
    bodies,
    events,
    heal,
    hibernation,
    judged_rest,
    look,
    made_by_go,
    pods,
    refuse,
    rest,
    restless,
    roles_up,
    saved,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

PIN = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"]}]}
            ]
        }
    }
}


def pod_writes(world: World, since: int = 0) -> list[str]:
    return [write for write in world.writes(since) if "pod/" in write]


def node(world: World, pod: str = "demo-0") -> str:
    found = world.pod(pod)
    assert found is not None, f"pod {pod} does not exist"
    return str(found["spec"].get("nodeName", ""))


def step(world: World, times: int, pod: str = "demo-0") -> None:
    for _ in range(times):
        world.agent.step("ns", pod)


async def until(world: World, done: Any, *, limit: int = 60) -> None:
    """Operator and agent in turn, the agent one small step of main at a time, until something is so."""
    for _ in range(limit):
        if done():
            return
        await world.run()
        if done():
            return
        step(world, 1)
    raise AssertionError("it never happens")


def lifecycle(world: World) -> str:
    return annotations_of(world).get(keys.LIFECYCLE_STATE, "") if world.pod() else ""


async def moving(world: World, target: str = "node-b", **spec: Any) -> None:
    """A set whose main agent was just asked to go to another node, and got its flag."""
    await up(world, **spec)
    world.edit(nodeName=target)
    await world.run()
    assert world.phase == "Migrating"
    assert annotations_of(world)[keys.HIBERNATE] == "true"


async def restoring(world: World, **spec: Any) -> str:
    """The same, saved; its new pod is bound to node-b, and the restore has begun. Returns the digest."""
    await moving(world, **spec)
    await until(world, lambda: lifecycle(world) == "creating" and node(world) == "node-b")
    assert annotations_of(world)[keys.RESTORE] == "true"
    return str(world.tag())


# -- not handled -------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S194")
async def test_without_a_node_name_there_is_nothing_to_do(world: World) -> None:
    await up(world)
    mark, requests = world.mark, len(world.registry.requests)
    await rest(world)
    assert (world.writes(mark), asked(world, requests)) == ([], [])


@pytest.mark.scenario("S195", "S077")
async def test_a_main_that_is_there_already_stays_and_the_registry_is_not_asked(world: World) -> None:
    await up(world)
    world.registry.down = "connection refused"
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(nodeName="node-a")
    await rest(world)
    assert pod_writes(world, mark) == ["patch pod/demo-0"]
    assert bodies(world, mark, "patch pod/demo-0") == [{"metadata": {"annotations": {keys.GENERATION: "2"}}}]
    assert asked(world, requests) == []
    assert (world.phase, world.outcome.error) == ("Running", None)


@pytest.mark.scenario("S217")
async def test_a_main_without_a_node_is_waited_for(world: World) -> None:
    world.agent.capacity = False
    world.apply(nodeName="node-b")
    await rest(world)
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert (world.writes(mark), world.phase) == ([], "Pending")
    world.agent.capacity = True
    await rest(world)
    assert (node(world), world.phase) == ("node-b", "Running")


@pytest.mark.scenario("S217", "S203")
async def test_a_pin_that_is_changed_before_there_is_a_node_moves_the_pod(world: World) -> None:
    """A pod that is bound to a node nobody wants any more holds no VM: it is made again for the new one."""
    world.agent.capacity = False
    world.apply(nodeName="node-b")
    await rest(world)
    world.edit(nodeName="node-a")
    world.agent.capacity = True
    await rest(world)
    assert (node(world), world.phase) == ("node-a", "Running")


@pytest.mark.scenario("S207", "S209")
@pytest.mark.parametrize(("desire", "phase"), [("Hibernate", "Hibernated"), ("Hibernate", ""), ("Hibernate", "Failed")])
@pytest.mark.parametrize("target", ["node-a", "node-b"])
async def test_a_held_main_does_not_migrate(world: World, desire: str, phase: str, target: str) -> None:
    digest = await asleep(world)
    hibernation(world, desire=desire, phase=phase)
    world.edit(suspend=False, nodeName=target)
    world.registry.down = "connection refused"
    requests = len(world.registry.requests)
    await rest(world)
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.condition("Ready")["reason"] == ("HeldByHibernation" if phase == "Hibernated" else "RegistryUnreachable")
    assert set(asked(world, requests)) <= {"probe vk-ns-demo-0:hibernate"}
    assert (node(world), world.tag()) == ("node-a", digest)
    world.registry.down = ""
    world.api.remove("hibernation", "ns", "demo-0")
    await rest(world)
    assert (world.phase, node(world), world.memory(), world.tag()) == ("Running", target, ["work"], None)


@pytest.mark.scenario("S209")
async def test_a_main_that_wakes_on_the_target_keeps_its_tag(world: World) -> None:
    """Unflagged, not live, tag there, phase not Migrating: a wake in place like any other."""
    digest = await asleep(world, nodeName="node-a")
    world.edit(suspend=False)
    await world.run()
    step(world, 2)
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert (pod_writes(world, mark), world.tag()) == ([], digest)
    await rest(world)
    assert (world.phase, world.tag(), world.memory()) == ("Running", None, ["work"])


# -- put to sleep ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S196", "S197")
async def test_the_status_is_written_before_the_flag_and_nothing_is_repeated(world: World) -> None:
    await up(world)
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(nodeName="node-b")
    await world.run()
    assert world.writes(mark) == ["patch/status set/demo", "patch pod/demo-0"]
    flagged = {keys.HIBERNATE: "true", keys.GENERATION: "2"}
    assert bodies(world, mark, "patch pod/demo-0") == [{"metadata": {"annotations": flagged}}]
    assert world.phase == "Migrating"
    snapshot = world.condition("SnapshotCurrent")
    assert (snapshot["status"], snapshot["reason"]) == ("False", "Saving")
    assert asked(world, requests) == []
    mark = world.mark
    for _ in range(4):
        outcome = await world.run()
        assert outcome.error is None
    assert [write for write in world.writes(mark) if "status" not in write] == []
    assert len(world.writes(mark)) <= 1
    assert "waiting for vk-ns-demo-0 to be saved" in world.condition("Progressing")["message"]


@pytest.mark.scenario("S197", "S199", "S202", "S153")
async def test_a_migration_write_by_write(world: World) -> None:
    """Phase, flag, record, delete, create with restore mark and pin, one drop: no request more (4.20)."""
    await up(world)
    mark, requests = world.mark, len(world.registry.requests)
    uid = world.pod()["metadata"]["uid"]  # type: ignore[index]
    world.edit(nodeName="node-b")
    await rest(world)
    assert world.writes(mark) == [
        "patch/status set/demo",
        "patch pod/demo-0",
        "patch/status set/demo",
        "delete pod/demo-0",
        "create pod/demo-0",
        "patch/status set/demo",
        "patch/status set/demo",
    ]
    assert asked(world, requests) == [HEAD, GET, DROP]
    (body,) = bodies(world, mark, "create pod/demo-0")
    assert body["metadata"]["annotations"][keys.RESTORE] == "true"
    assert body["spec"]["affinity"] == PIN
    assert world.pod()["metadata"]["uid"] != uid  # type: ignore[index]
    assert (node(world), world.memory(), world.tag(), world.phase) == ("node-b", ["work"], None, "Running")
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert events(world) == []
    mark, requests = world.mark, len(world.registry.requests)
    world.start_operator()
    await rest(world)
    assert (world.writes(mark), asked(world, requests)) == ([], [])


@pytest.mark.scenario("S198")
async def test_the_pod_goes_only_when_the_agent_said_so_in_this_generation(world: World) -> None:
    await moving(world)
    await until(world, lambda: lifecycle(world) == "hibernating" and world.tag() is not None)
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert pod_writes(world, mark) == []
    await until(world, lambda: lifecycle(world) == "hibernated")
    agent_says(world, {keys.LIFECYCLE_GENERATION: "1"})
    await world.run()
    assert not any(write.startswith("delete") for write in world.writes(mark))
    agent_says(world, {keys.LIFECYCLE_GENERATION: "2"})
    digest = world.tag()
    await world.run()
    assert pod_writes(world, mark) == ["delete pod/demo-0"]
    assert world.tag() == digest


@pytest.mark.scenario("S215", "S198")
@pytest.mark.parametrize("state", ["ready", "hibernating"])
async def test_w05_flag_and_an_old_tag_are_no_proof_of_a_save(world: World, state: str) -> None:
    """Legacy S215 deletes the running pod at once. Here: lifecycle `hibernated` of this generation, and then the tag."""
    await moving(world)
    old = saved(world, memory=["older"])
    await until(world, lambda: lifecycle(world) == state)
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert not any(write.startswith("delete") for write in world.writes(mark))
    assert world.memory() == ["work"]
    await rest(world)
    assert (world.memory(), node(world)) == (["work"], "node-b")
    assert world.tag() != old


@pytest.mark.scenario("S204")
@pytest.mark.parametrize("answer", ["unknown", "absent"])
async def test_without_a_tag_that_was_seen_the_pod_stays(world: World, answer: str) -> None:
    await moving(world)
    await until(world, lambda: lifecycle(world) == "hibernated")
    digest = world.tag()
    assert digest is not None
    if answer == "unknown":
        world.registry.down = "503 Service Unavailable"
    else:
        del world.registry.tags[(VM, "hibernate")]
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
    assert pod_writes(world, mark) == []
    assert world.phase == "Migrating"
    ready = world.condition("Ready")
    wanted = ("Unknown", "RegistryUnreachable") if answer == "unknown" else ("False", "SnapshotMissing")
    assert (ready["status"], ready["reason"]) == wanted
    world.registry.down = ""
    world.registry.tags[(VM, "hibernate")] = digest
    await rest(world)
    assert (node(world), world.memory(), world.phase) == ("node-b", ["work"], "Running")


async def test_a_save_that_fails_keeps_the_vm_where_it_is(world: World) -> None:
    """W-62 for a migration: the VM lives, says so, and moves when the agent gets through."""
    await up(world)
    world.agent.fail.add("push")
    mark = world.mark
    world.edit(nodeName="node-b")
    await rest(world)
    assert (world.memory(), node(world), world.phase) == (["work"], "node-a", "Migrating")
    assert not any(write.startswith("delete") for write in world.writes(mark))
    assert world.condition("Ready")["reason"] == "HibernateFailed"
    world.agent.fail.clear()
    await rest(world)
    assert (world.memory(), node(world), world.phase) == (["work"], "node-b", "Running")


async def test_a_save_that_its_agent_left_half_done_is_begun_again(world: World) -> None:
    """N192 in a migration: never taken for a save, ends after two minutes."""
    await up(world)
    world.agent.fail.add("report")
    world.edit(nodeName="node-b")
    await rest(world)
    assert lifecycle(world) == "hibernating"
    mark = world.mark
    world.clock.advance(100)
    await rest(world)
    assert not any(write.startswith("delete") for write in world.writes(mark))
    world.agent.fail.clear()
    world.clock.advance(130)
    await rest(world)
    assert (world.memory(), node(world), world.phase) == (["work"], "node-b", "Running")
    assert [reason for _, reason, _ in events(world)] == ["HibernationStalled"]


# -- restored where it shall be ----------------------------------------------------------------------------------------


@pytest.mark.scenario("S199", "S203")
async def test_a_pod_that_finds_no_node_is_not_deleted(world: World) -> None:
    await moving(world)
    await until(world, lambda: world.pod() is None)
    digest = world.tag()
    world.agent.capacity = False
    await rest(world)
    assert (node(world), annotations_of(world)[keys.RESTORE]) == ("", "true")
    mark = world.mark
    for _ in range(3):
        world.start_operator()
        await world.run()
    assert (pod_writes(world, mark), world.tag(), world.phase) == ([], digest, "Migrating")
    world.agent.capacity = True
    await rest(world)
    assert (node(world), world.memory(), world.phase) == ("node-b", ["work"], "Running")


@pytest.mark.scenario("S200", "S201", "S202")
async def test_the_tag_stays_until_the_vm_is_awake_and_goes_with_the_end(world: World) -> None:
    """Legacy S202: the phase lags a pass behind. Here the drop and `Running` are one pass."""
    digest = await restoring(world)
    await until(world, lambda: VM in world.agent.vms)
    for _ in range(3):
        await world.run()
    assert (world.tag(), world.phase) == (digest, "Migrating")
    requests = len(world.registry.requests)
    await until(world, lambda: lifecycle(world) == "ready")
    mark = world.mark
    await world.run()
    assert asked(world, requests) == [DROP]
    assert (world.tag(), world.phase) == (None, "Running")
    assert world.writes(mark) == ["patch/status set/demo"]


@pytest.mark.scenario("S201", "S212")
@pytest.mark.parametrize("fault", ["refused", "unreachable"])
async def test_a_drop_that_fails_does_not_hold_back_the_end(world: World, fault: str) -> None:
    """Legacy S212: an error for ever. Here the migration ends, the drop is owed and named, and tried again."""
    await restoring(world)
    await until(world, lambda: lifecycle(world) == "ready")
    if fault == "refused":
        world.registry.refuse_drops = "405 UNSUPPORTED"
    else:
        world.registry.down = "connection refused"
    outcome = await world.run()
    assert outcome.error is not None
    assert world.phase == "Running"
    snapshot = world.condition("SnapshotCurrent")
    assert (snapshot["status"], snapshot["reason"]) == ("False", "TagDropPending")
    assert snapshot["message"].startswith(f"{VM}: ")
    for _ in range(3):
        await world.run()
    assert [reason for _, reason, _ in events(world)] == ["TagDropPending"]
    world.registry.down = world.registry.refuse_drops = ""
    world.start_operator()
    await rest(world)
    assert (world.tag(), world.condition("SnapshotCurrent")["reason"]) == (None, "NoSnapshot")


@pytest.mark.scenario("S212")
async def test_while_a_drop_is_not_answered_the_next_migration_waits(world: World) -> None:
    """A late effect of the first drop would hit the next save (rule 2): no flag before a drop was answered."""
    await restoring(world)
    await until(world, lambda: lifecycle(world) == "ready")
    world.registry.down = "connection refused"
    await rest(world)
    world.edit(nodeName="node-a")
    for _ in range(4):
        await world.run()
        world.agent.run()
    assert (node(world), keys.HIBERNATE in annotations_of(world)) == ("node-b", False)
    world.registry.down = ""
    await rest(world)
    assert (node(world), world.memory(), world.phase) == ("node-a", ["work"], "Running")


@pytest.mark.scenario("S210")
async def test_a_name_that_is_still_taken_is_waited_for(world: World) -> None:
    """Legacy S210: no status. Here the terminating pod is named by it, or found by the create."""
    await moving(world)
    await until(world, lambda: bool(world.pod() and world.pod()["metadata"].get("deletionTimestamp")))  # type: ignore[index]
    outcome = await world.run()
    assert (outcome.error, world.phase) == (None, "Migrating")
    world.cache.objects.pop(("pod", "ns", "demo-0"))
    outcome = await world.reconcile()
    assert (outcome.error, world.phase) == (None, "Migrating")
    await rest(world)
    assert (node(world), world.memory()) == ("node-b", ["work"])


@pytest.mark.scenario("S199")
@pytest.mark.parametrize("answer", ["unknown", "absent", "lost"])
async def test_between_the_nodes_no_answer_means_a_fresh_boot(world: World, answer: str) -> None:
    await moving(world)
    await until(world, lambda: world.pod() is None)
    digest = world.tag()
    assert digest is not None
    manifest = world.registry.manifests[(VM, digest)]
    if answer == "unknown":
        world.registry.down = "connection refused"
    else:
        del world.registry.tags[(VM, "hibernate")]
    if answer == "lost":
        del world.registry.manifests[(VM, digest)]
    for _ in range(3):
        world.start_operator()
        await world.run()
    if answer == "absent":
        await rest(world)
        assert [reason for _, reason, _ in events(world)] == ["SnapshotTagRestored"]
        assert (world.memory(), node(world)) == (["work"], "node-b")
        return
    assert world.pod() is None
    reason = "RegistryUnreachable" if answer == "unknown" else "SnapshotMissing"
    assert world.condition("Ready")["reason"] == reason
    world.registry.down = ""
    world.registry.manifests[(VM, digest)] = manifest
    world.registry.tags[(VM, "hibernate")] = digest
    await rest(world)
    assert (world.memory(), node(world), world.phase) == (["work"], "node-b", "Running")


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


# -- with the other roles ----------------------------------------------------------------------------------------------


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
    assert asked(world, requests) == [HEAD, GET, DROP]
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


# -- crash and race, at every step -------------------------------------------------------------------------------------

FLIPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"nodeName": "node-a"}, {"nodeName": "node-b"}),
    ({"nodeName": "node-a"}, {"nodeName": None}),
    ({"nodeName": None}, {"nodeName": "node-a"}),
    ({"nodeName": "node-c"}, {"nodeName": "node-a"}),
    ({"nodeName": "node-b"}, {"nodeName": "node-c"}),
    ({"suspend": True}, {"suspend": False}),
    ({"suspend": False}, {"suspend": True}),
    ({"nodeName": "node-a"}, {"suspend": True}),
    ({"suspend": True}, {"suspend": False, "nodeName": "node-a"}),
    ({"suspend": True, "hibernatePolicy": "release"}, {"suspend": True, "nodeName": "node-c"}),
    ({"agent": {"network": "blue"}}, {"nodeName": "node-a"}),
]


@pytest.mark.scenario("S205", "S206", "S208", "S211", "S213")
@pytest.mark.parametrize(("first", "last"), FLIPS)
async def test_two_edits_at_every_step_of_a_migration_end_where_the_last_one_says(
    first: dict[str, Any], last: dict[str, Any]
) -> None:
    """After 0, 1, 2, ... small steps of operator and agent, until the migration is over; then a wake, if it sleeps."""
    for steps in range(60):
        world = JudgedWorld()
        world.agent.works = True
        world.agent.nodes.append("node-c")
        await up(world)
        world.edit(nodeName="node-b")
        over = await restless(world, steps) if steps else False
        world.edit(**first)
        world.edit(**last)
        await judged_rest(world)
        where = f"after {steps} steps"
        spec = world.set()["spec"]
        if spec.get("suspend"):
            assert (world.phase, world.agent.vms) == ("Suspended", {}), where
            world.edit(suspend=False)
            await judged_rest(world)
        assert world.phase == "Running", where
        assert not spec.get("nodeName") or node(world) == spec["nodeName"], where
        memory = world.memory() or []
        assert spec["agent"].get("network") or "work" in memory, where
        assert world.registry.tags == {}, where
        if over:
            return
    raise AssertionError("the migration does not end")


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost before", "lost after"])
async def test_a_migration_survives_a_fault_at_every_call(kind: str) -> None:
    """The operator dies, or an answer is lost, at the first, second, ... call of a migration."""
    for call in range(1, 60):
        world = JudgedWorld()
        world.agent.works = True
        await up(world)
        world.edit(nodeName="node-b")
        world.calls = 0
        world.fault = (call, kind)
        for _ in range(12):
            world.observe()
            await world.one_run()
            world.agent.run()
            look(world)
        broke, world.fault = world.fault is None, None
        await judged_rest(world)
        where = f"{kind} call {call}"
        assert (world.phase, node(world), world.tag()) == ("Running", "node-b", None), where
        assert "work" in (world.memory() or []), where
        if not broke and world.calls < call:
            return
    raise AssertionError("a migration has no end of calls")
