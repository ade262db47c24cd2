"""Suspend and wake of a set with every role: all are saved, all come back, each with its own memory (4.3, 4.4, 4.8)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.staging import (
    RUN_BOX,
    STATIC_BOX,
    annotations_of,
    asked,
    bodies,
    events,
    heal,
    hibernation,
    judged_rest,
    orphan,
    pod_fails,
    pod_writes,
    pods,
    refuse,
    rest,
    restless,
    roles_asleep,
    roles_up,
    vm,
)

pytestmark = pytest.mark.asyncio

MANAGED = [vm(0), vm(1), vm(2), vm("db")]
ALL = ["demo-0", "demo-1", "demo-2", "demo-db", "demo-vnc"]
BOXES = [RUN_BOX, STATIC_BOX]


def work_of_all(world: World) -> dict[str, list[str] | None]:
    return {name: world.memory(name) for name in MANAGED}


def fall_asleep(world: World, *names: str) -> None:
    """The agent puts these pods' VMs to sleep and leaves the others as they are."""
    for name in names:
        for _ in range(20):
            world.agent.step("ns", name)


# -- suspend -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S134", "S136", "S141", "S113")
async def test_every_pod_gets_flag_and_stamp_in_one_patch(world: World) -> None:
    """Static toolboxes and failed sub-agents too; neither is waited for."""
    await roles_up(world, 2, BOXES)
    pod_fails(world, "demo-2")
    world.observe()
    world.edit(suspend=True)
    mark = world.mark
    await world.run()
    assert pod_writes(world, mark) == [f"patch pod/{pod}" for pod in ALL]
    for pod in ALL:
        (body,) = bodies(world, mark, f"patch pod/{pod}")
        assert body == {"metadata": {"annotations": {keys.HIBERNATE: "true", keys.GENERATION: "2"}}}
    await rest(world)
    assert (world.phase, world.agent.vms) == ("Suspended", {})
    assert sorted(repo for repo, _ in world.registry.tags) == [vm(0), vm(1), vm("db")]
    mark, requests = world.mark, len(world.registry.requests)
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert (world.writes(mark), asked(world, requests)) == ([], [])


@pytest.mark.scenario("S135", "S139", "S142")
async def test_the_set_is_asleep_when_its_last_vm_is(world: World) -> None:
    await roles_up(world, 2, BOXES)
    world.edit(suspend=True)
    await world.run()
    fall_asleep(world, "demo-0", "demo-1", "demo-db")
    await world.run()
    assert world.phase == "Suspending"
    world.clock.advance(10)
    await world.run()
    message = world.condition("Progressing")["message"]
    assert message == "Suspending: 3 of 4 VMs saved; waiting for demo-2 (ready), since 10:00:00Z"
    fall_asleep(world, "demo-2", "demo-vnc")
    await world.run()
    assert world.phase == "Suspended"
    status = world.set()["status"]
    digests = {entry["vmName"]: entry.get("snapshotDigest") for entry in status["agents"] + status["toolboxes"]}
    assert digests == {**{name: world.tag(name) for name in MANAGED}, vm("vnc"): None}
    world.edit(snapshotPolicy="main-only")
    await world.run()
    assert world.phase == "Suspending"
    await rest(world)
    assert world.phase == "Suspended"


@pytest.mark.scenario("S135", "S138")
@pytest.mark.parametrize("name", [vm(1), vm("db")])
@pytest.mark.parametrize("answer", ["absent", "unknown"])
async def test_one_tag_that_is_not_seen_holds_the_whole_set(world: World, name: str, answer: str) -> None:
    await roles_up(world, 2, BOXES)
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    digest = world.registry.tags.pop((name, "hibernate"))
    if answer == "unknown":
        world.registry.down = "503 Service Unavailable"
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
    assert world.phase == "Suspending"
    wanted = "RegistryUnreachable" if answer == "unknown" else "SnapshotMissing"
    assert world.condition("Ready")["reason"] == wanted
    world.registry.down = ""
    world.registry.tags[(name, "hibernate")] = digest
    await rest(world)
    assert world.phase == "Suspended"


@pytest.mark.scenario("S137")
async def test_a_sub_agent_that_failed_for_good_is_not_waited_for_and_rebuilt_at_the_wake(world: World) -> None:
    await roles_up(world, 2)
    world.edit(suspend=True)
    await world.run()
    pod_fails(world, "demo-2")
    mark = world.mark
    await rest(world)
    assert world.phase == "Suspended"
    assert "delete pod/demo-2" not in world.writes(mark)
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert "delete pod/demo-2" in world.writes(mark)
    assert world.registry.tags == {}
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


@pytest.mark.scenario("S137")
async def test_a_dead_letter_neither_holds_a_suspend_nor_a_wake(world: World) -> None:
    """Suspend works on a set that is unhealthy in part, and its wake ends."""
    await roles_up(world, 2)
    world.annotate({keys.REBUILD_HISTORY: '{"2":{"count":4,"lastDeleted":"2026-11-30T09:00:00Z"}}'})
    pod_fails(world, "demo-2")
    await rest(world)
    assert annotations_of(world, "demo-2")[keys.DEAD_LETTER] == "true"
    world.edit(suspend=True)
    await rest(world)
    assert world.phase == "Suspended"
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Scaling"
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.registry.tags == {}


@pytest.mark.scenario("S143")
async def test_while_suspended_roles_are_neither_made_nor_removed_nor_edited(world: World) -> None:
    await roles_up(world, 2, BOXES)
    world.delete_pod("demo-1")
    mark = world.mark
    edited = [{**RUN_BOX, "network": "blue"}, {"name": "new", "image": "box", "mode": "run"}]
    world.edit(suspend=True, agent={"replicas": 3, "network": "blue"}, toolboxes=edited)
    await rest(world)
    assert world.phase == "Suspended"
    assert not any(write.startswith(("delete", "create")) for write in world.writes(mark))
    world.edit(suspend=False, agent={"replicas": 1})
    await rest(world)
    assert world.phase == "Running"
    assert pods(world) == ["demo-0", "demo-1", "demo-db", "demo-new"]
    assert world.memory(vm("db")) == ["work of vk-ns-demo-db"]
    assert world.memory(vm(0)) == ["work of vk-ns-demo-0"]
    for pod in ("demo-0", "demo-1", "demo-db"):
        assert annotations_of(world, pod)[keys.NETWORK] == "blue"
    assert world.registry.tags == {}


@pytest.mark.scenario("S131", "S132")
async def test_a_set_born_suspended_boots_main_alone(world: World) -> None:
    world.apply(suspend=True, agent={"replicas": 2}, toolboxes=BOXES)
    await rest(world)
    assert (world.phase, pods(world), list(world.registry.tags)) == ("Suspended", ["demo-0"], [(vm(0), "hibernate")])
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, pods(world), world.registry.tags) == ("Running", ALL, {})


@pytest.mark.scenario("S133")
async def test_a_terminating_sub_agent_does_not_hold_a_suspend(world: World) -> None:
    await roles_up(world, 1)
    world.api.delete("pod", "ns", "demo-1", by="user")
    world.edit(suspend=True)
    outcome = await world.run()
    assert outcome.error is None
    fall_asleep(world, "demo-0")
    await world.run()
    assert world.phase == "Suspended"


@pytest.mark.scenario("S115")
async def test_w50_a_flag_that_is_refused_does_not_keep_the_others_awake(world: World) -> None:
    await roles_up(world, 2, BOXES)
    world.edit(suspend=True)
    refuse(world, "patch demo-1", KubeError("etcd is gone", status=500))
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert pod_writes(world, mark) == [f"patch pod/{pod}" for pod in ALL if pod != "demo-1"]
    assert (world.phase, world.condition("Ready")["message"]) == ("Suspending", "etcd is gone")
    heal(world)
    await rest(world)
    assert world.phase == "Suspended"


@pytest.mark.scenario("S144")
@pytest.mark.parametrize("roles", [{"agent": {"replicas": 1}}, {"toolboxes": [RUN_BOX]}])
async def test_release_is_for_a_main_agent_alone(world: World, roles: dict[str, Any]) -> None:
    await roles_up(world, roles.get("agent", {}).get("replicas", 0), roles.get("toolboxes", []))
    world.edit(suspend=True, hibernatePolicy="release")
    mark = world.mark
    await rest(world)
    assert [write for write in world.writes(mark) if write.startswith("delete")] == []
    assert world.condition("Ready")["message"] == (
        "spec.hibernatePolicy: release requires agent.replicas=0 and no toolboxes"
    )
    assert len(world.agent.vms) == 2


# -- wake --------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S188", "S192")
@pytest.mark.parametrize("pinned", [False, True])
async def test_all_flags_go_and_each_tag_behind_its_own_vm(world: World, pinned: bool) -> None:
    """W-17 for every role; legacy S192 leaves the tags."""
    await roles_asleep(world, 2, BOXES, **({"nodeName": "node-a"} if pinned else {}))
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(suspend=False)
    await world.run()
    assert sorted(pod_writes(world, mark)) == sorted(f"patch pod/{pod}" for pod in ALL)
    assert world.phase == "Pending"
    assert sorted(asked(world, requests)) == sorted(f"HEAD {name}:hibernate" for name in MANAGED)
    await rest(world)
    assert world.phase == "Running"
    dropped = [request for request in asked(world, requests) if request.startswith("DELETE")]
    assert sorted(dropped) == sorted(f"DELETE {name}:hibernate" for name in MANAGED)
    assert len(asked(world, requests)) == 8
    assert world.registry.tags == {}
    assert work_of_all(world) == {
        vm(0): ["work of vk-ns-demo-0"],
        vm(1): ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"],
        vm(2): ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"],
        vm("db"): ["work of vk-ns-demo-db"],
    }
    assert events(world) == []


@pytest.mark.scenario("S192")
async def test_the_tag_of_a_sub_agent_that_is_still_asleep_stays(world: World) -> None:
    """Main is awake long before the others: only its own tag goes, and the status says that a wake is under way."""
    await roles_asleep(world, 1, [RUN_BOX])
    world.edit(suspend=False)
    for _ in range(12):
        await world.run()
        world.agent.step("ns", "demo-0")
    assert (world.tag(vm(0)), world.tag(vm(1)) is None, world.tag(vm("db")) is None) == (None, False, False)
    assert world.condition("SnapshotCurrent")["reason"] == "WakeInProgress"
    await rest(world)
    assert (world.registry.tags, world.condition("SnapshotCurrent")["reason"]) == ({}, "NoSnapshot")


@pytest.mark.scenario("S190", "S191")
@pytest.mark.parametrize(("desire", "phase"), [("Hibernate", "Hibernated"), ("Hibernate", "")])
@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_what_a_hibernation_holds_sleeps_on_and_the_others_wake(
    world: World, pod: str, name: str, desire: str, phase: str
) -> None:
    await roles_asleep(world, 2, BOXES)
    hibernation(world, pod, desire=desire, phase=phase)
    digest = world.tag(name)
    world.edit(suspend=False)
    await rest(world)
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"
    assert world.tag(name) == digest
    assert sorted(world.agent.vms) == sorted(set(MANAGED) - {name})
    assert world.registry.tags == {(name, "hibernate"): digest}
    world.api.remove("hibernation", "ns", pod)
    await rest(world)
    assert (world.phase, world.registry.tags) == ("Running", {})
    assert f"work of {name}" in (world.memory(name) or [])


@pytest.mark.scenario("S190")
@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_w07_a_hibernation_that_is_deleted_leaves_the_wake_to_the_set(world: World, pod: str, name: str) -> None:
    await roles_up(world, 2, BOXES)
    hibernation(world, pod, phase="Hibernating")
    world.api.patch("pod", "ns", pod, {"metadata": {"annotations": {keys.HIBERNATE: "true"}}}, by="operator")
    await rest(world)
    digest = world.tag(name)
    assert digest is not None
    assert name not in world.agent.vms
    world.api.remove("hibernation", "ns", pod)
    await world.run()
    assert (world.tag(name), keys.HIBERNATE in annotations_of(world, pod)) == (digest, False)
    await rest(world)
    assert (world.phase, world.tag(name)) == ("Running", None)
    assert f"work of {name}" in (world.memory(name) or [])


@pytest.mark.parametrize("name", [vm(1), vm("db")])
async def test_w14_a_tag_that_cannot_be_dropped_is_owed_by_name(world: World, name: str) -> None:
    await roles_asleep(world, 2, BOXES)
    world.registry.refuse_drops = "405 UNSUPPORTED"
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    snapshot = world.condition("SnapshotCurrent")
    assert (snapshot["status"], snapshot["reason"]) == ("False", "TagDropPending")
    assert name in snapshot["message"].partition(": ")[0].split(", ")
    mark = world.mark
    world.edit(agent={"network": "blue"}, toolboxes=[{**RUN_BOX, "network": "blue"}, STATIC_BOX])
    await rest(world)
    assert not any(write.startswith("delete") for write in world.writes(mark))
    world.registry.refuse_drops = ""
    world.start_operator()
    await rest(world)
    assert (world.phase, world.registry.tags) == ("Running", {})


@pytest.mark.scenario("S250", "S251", "S252", "S253")
@pytest.mark.parametrize(("policy", "kept"), [("always", MANAGED), ("main-only", [vm(0)]), ("never", [])])
async def test_a_sleeping_set_that_is_deleted_takes_the_tags_of_every_role_along(
    world: World, policy: str, kept: list[str]
) -> None:
    await roles_asleep(world, 2, BOXES, snapshotPolicy=policy)
    for name in MANAGED:
        world.registry.push(name, "latest", {"memory": [], "image": "base", "id": "x"})
    world.delete_pod("demo-2")
    world.delete_set()
    await rest(world)
    assert world.api.list("set") == []
    assert world.api.list("pod") == []
    assert sorted(world.registry.tags) == sorted((name, "latest") for name in kept)


# -- two edits in the same second --------------------------------------------------------------------------------------

FLIPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"suspend": False}, {"suspend": True}),
    ({"suspend": True}, {"suspend": False}),
    ({"suspend": False}, {"agent": {"replicas": 0}}),
    ({"agent": {"replicas": 0}}, {"suspend": False}),
    ({"agent": {"replicas": 0}, "toolboxes": []}, {"agent": {"replicas": 1}, "toolboxes": [RUN_BOX]}),
    ({"agent": {"network": "blue"}}, {"suspend": False, "agent": {"network": ""}}),
]


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize(("first", "last"), FLIPS)
async def test_two_edits_at_every_step_of_a_suspend_and_a_wake_end_where_the_last_one_says(
    first: dict[str, Any], last: dict[str, Any], begin: bool
) -> None:
    """After 0, 1, 2, ... small steps of operator and agent, until the transition is over; then a wake, if it sleeps."""
    for steps in range(80):
        world = JudgedWorld()
        world.agent.works = True
        await (roles_up if begin else roles_asleep)(world, 1, [RUN_BOX])
        world.edit(suspend=begin)
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
        slots = [*range(spec["agent"]["replicas"] + 1), *(box["name"] for box in spec.get("toolboxes", []))]
        assert (world.phase, sorted(world.agent.vms)) == ("Running", [vm(slot) for slot in slots]), where
        assert world.registry.tags == {}, where
        assert "work of vk-ns-demo-0" in (world.memory() or []), where
        assert world.annotation(keys.REMOVING_VM_NAMES) is None, where
        if over:
            return
    raise AssertionError("the transition does not end")


# -- what must not come back, and the user's way out ----------------------------------------------------------------------


@pytest.mark.scenario("S186")
async def test_w13_old_memory_of_no_role_comes_up_in_another_machine(world: World) -> None:
    """An edit of the image of a sleeping sub-agent or toolbox: put aside, not destroyed, and booted fresh."""
    await roles_asleep(world, 1, [RUN_BOX])
    digests = {name: world.tag(name) for name in (vm(0), vm(1), vm("db"))}
    world.edit(suspend=False, agent={"image": "other"}, toolboxes=[{**RUN_BOX, "image": "newer"}])
    await rest(world)
    assert world.phase == "Running"
    images = {name: machine.image for name, machine in world.agent.vms.items()}
    assert images == {vm(0): "other", vm(1): "other", vm("db"): "newer"}
    memories = [world.memory(name) for name in digests]
    assert memories == [[], ["fork of vk-ns-demo-0"], []]
    kept = {(name, orphan(str(digest))): digest for name, digest in digests.items()}
    assert world.registry.tags == kept
    assert [reason for _, reason, _ in events(world)] == ["SnapshotMovedAside"] * 3


@pytest.mark.parametrize("asleep", [False, True])
@pytest.mark.parametrize(
    ("pod", "name", "fresh"), [("demo-1", vm(1), ["fork of vk-ns-demo-0"]), ("demo-db", vm("db"), [])]
)
async def test_a_fresh_start_of_one_vm_is_asked_for_by_its_name(
    world: World, pod: str, name: str, fresh: list[str], asleep: bool
) -> None:
    await (roles_asleep if asleep else roles_up)(world, 1, [RUN_BOX])
    digest = world.tag(name)
    world.annotate({keys.START_FRESH: name})
    await rest(world)
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, world.memory(name)) == ("Running", fresh)
    assert world.annotation(keys.START_FRESH) is None
    assert world.memory(vm(0)) == ["work of vk-ns-demo-0"]
    assert list(world.registry.tags.values()) == ([digest] if asleep else [])
    assert len([event for event in events(world) if event[1] == "SnapshotMovedAside"]) == int(asleep)


@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
@pytest.mark.parametrize("gone", [False, True])
async def test_a_snapshot_that_went_missing_is_never_a_fresh_boot(
    world: World, pod: str, name: str, gone: bool
) -> None:
    """Rule 4 for every role, with its pod and without; the others wake, and a fresh start ends the wait."""
    await roles_asleep(world, 1, [RUN_BOX])
    digest = world.registry.tags.pop((name, "hibernate"))
    del world.registry.manifests[(name, digest)]
    if gone:
        world.delete_pod(pod)
    world.edit(suspend=False)
    await rest(world)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SnapshotMissing")
    assert f"the saved state of {name} ({digest}) is on record" in ready["message"]
    assert name not in world.agent.vms
    assert vm(0) in world.agent.vms
    assert [reason for _, reason, _ in events(world)] == ["SnapshotMissing"]
    world.annotate({keys.START_FRESH: name})
    await rest(world)
    assert (world.phase, name in world.agent.vms) == ("Running", True)
    assert (world.registry.tags, world.condition("Ready")["status"]) == ({}, "True")
