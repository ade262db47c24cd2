"""Migration of the main agent to ``spec.nodeName`` (contract 4.6): saved, deleted, restored where the user wants it."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.moves import lifecycle, moving, node, restoring, step, until
from tests.unit.reconcile.staging import (
    DROP,
    GET,
    HEAD,
    VM,
    agent_says,
    annotations_of,
    asked,
    asleep,
    bodies,
    events,
    hibernation,
    pod_writes,
    rest,
    saved,
    up,
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
    assert world.condition("Ready")["reason"] == (
        "HeldByHibernation" if phase == "Hibernated" else "RegistryUnreachable"
    )
    assert set(asked(world, requests)) <= {"HEAD vk-ns-demo-0:hibernate"}
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
    assert world.condition("Ready")["reason"] == "AgentsNotReady"
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
