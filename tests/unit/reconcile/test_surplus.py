"""VMs that the spec no longer has: the pod goes, then its tags, then its name (contract 4.10, 4.11; rule 3)."""

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
    asked,
    events,
    heal,
    hibernation,
    judged_rest,
    pods,
    refuse,
    rest,
    restless,
    roles_asleep,
    roles_up,
    saved,
    terminating,
    vm,
)

pytestmark = pytest.mark.asyncio


def box(name: str) -> dict[str, Any]:
    return {"name": name, "image": "box", "mode": "run"}


def names(world: World) -> list[str]:
    return str(world.annotation(keys.DELETE_VM_NAMES)).split(",")


@pytest.mark.scenario("S229", "S085", "S105")
async def test_a_scale_down_removes_the_higher_slots_in_ascending_order(world: World) -> None:
    await roles_up(world, 11)
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(agent={"replicas": 1})
    await world.run()
    gone = list(range(2, 12))
    assert [w for w in world.writes(mark) if "status" not in w] == [
        "patch pod/demo-0",
        "patch set/demo",
        *(f"delete pod/demo-{slot}" for slot in gone),
        "patch pod/demo-1",
    ]
    removing = str(world.annotation(keys.REMOVING_VM_NAMES)).split(",")
    assert sorted(removing) == sorted(vm(slot) for slot in gone)
    assert asked(world, requests) == []
    mark = world.mark
    await rest(world)
    assert sorted(asked(world, requests)) == sorted(f"DELETE {vm(slot)}:hibernate" for slot in gone)
    assert [w for w in world.writes(mark) if "status" not in w] == ["patch set/demo"]
    assert names(world) == [vm(0), vm(1)]
    assert world.annotation(keys.REMOVING_VM_NAMES) is None
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]
    assert world.phase == "Running"


@pytest.mark.scenario("S105")
async def test_a_surplus_agent_counts_until_it_is_gone(world: World) -> None:
    await roles_up(world, 1)
    refuse(world, "delete demo-1", KubeError("etcd is gone", status=500))
    world.edit(agent={"replicas": 0})
    await world.run()
    status = world.set()["status"]
    assert (status["readyAgents"], status["desiredAgents"]) == (2, 1)
    assert world.condition("Ready")["status"] == "False"
    heal(world)
    await rest(world)
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.scenario("S241")
async def test_removed_toolboxes_go_in_name_order(world: World) -> None:
    """Removals before creations here, so that a seat is free for what comes; static ones have no tag to take along."""
    await roles_up(world, 0, [box("zz"), STATIC_BOX, box("aa")])
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(toolboxes=[box("new")])
    await rest(world)
    writes = [w for w in world.writes(mark) if w.startswith(("delete", "create"))]
    assert writes == ["delete pod/demo-aa", "delete pod/demo-vnc", "delete pod/demo-zz", "create pod/demo-new"]
    assert asked(world, requests) == [
        f"GET {vm('new')}:hibernate",
        f"DELETE {vm('aa')}:hibernate",
        f"DELETE {vm('zz')}:hibernate",
    ]
    assert names(world) == [vm(0), vm("new")]


@pytest.mark.scenario("S241")
async def test_what_was_gone_already_is_no_error(world: World) -> None:
    await roles_up(world, 2, [box("aa")])
    world.edit(agent={"replicas": 0}, toolboxes=[])
    world.observe()
    world.delete_pod("demo-1")
    world.delete_pod("demo-aa")
    outcome = await world.reconcile()
    assert outcome.error is None
    await rest(world)
    assert (pods(world), names(world)) == (["demo-0"], [vm(0)])


@pytest.mark.parametrize(
    ("policy", "tags"),
    [("always", ["hibernate"]), ("main-only", ["hibernate", "latest"]), ("never", ["hibernate", "latest"])],
)
async def test_w16_a_removed_vm_takes_its_tags_along(world: World, policy: str, tags: list[str]) -> None:
    """Legacy: the names are forgotten and the tags stay for ever. Here: after the pod, and `latest` by the policy."""
    await roles_asleep(world, 1, [box("db")], snapshotPolicy=policy)
    for name in (vm(1), vm("db")):
        world.registry.push(name, "latest", {"memory": [], "image": "base", "id": "x"})
    requests = len(world.registry.requests)
    world.edit(suspend=False, agent={"replicas": 0}, toolboxes=[])
    await rest(world)
    dropped = [r for r in asked(world, requests) if r.startswith("DELETE") and vm(0) not in r]
    assert dropped == [f"DELETE {name}:{tag}" for name in (vm(1), vm("db")) for tag in tags]
    assert sorted(tag for _, tag in world.registry.tags) == (["latest", "latest"] if policy == "always" else [])
    assert names(world) == [vm(0)]
    assert world.phase == "Running"
    assert world.memory(vm(0)) == ["work of vk-ns-demo-0"]


async def test_w16_a_removed_vm_whose_pod_is_gone_already_takes_its_tags_along(world: World) -> None:
    await roles_asleep(world, 2, [box("db")])
    for pod in ("demo-1", "demo-2", "demo-db"):
        world.delete_pod(pod)
    world.edit(suspend=False, agent={"replicas": 1}, toolboxes=[])
    await rest(world)
    assert world.registry.tags == {}
    assert names(world) == [vm(0), vm(1)]
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


async def test_w16_a_name_outlives_a_registry_that_is_down(world: World) -> None:
    """And is tried again by the next process: what is owed is in the set, not in memory."""
    await roles_asleep(world, 1)
    world.edit(suspend=False, agent={"replicas": 0})
    for _ in range(12):
        await world.run()
        world.agent.run()
        world.registry.down = "" if "demo-1" in pods(world) else "503 Service Unavailable"
    assert world.annotation(keys.REMOVING_VM_NAMES) == vm(1)
    assert names(world) == [vm(0), vm(1)]
    assert world.outcome.error is not None
    world.start_operator()
    world.registry.down = ""
    await rest(world)
    assert world.annotation(keys.REMOVING_VM_NAMES) is None
    assert world.registry.tags == {}


async def test_w16_a_slot_is_not_used_again_before_its_tag_is_gone(world: World) -> None:
    """Scaled up while the drop is refused: waits with a reason, then comes up as a new VM, not with what was given up."""
    await roles_asleep(world, 1)
    world.registry.refuse_drops = "405 UNSUPPORTED"
    world.edit(suspend=False, agent={"replicas": 0})
    await rest(world)
    assert pods(world) == ["demo-0"]
    world.edit(agent={"replicas": 1})
    for _ in range(3):
        await world.run()
    assert pods(world) == ["demo-0"]
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "TagDropPending")
    assert f"{vm(1)}:hibernate: 405 UNSUPPORTED" in ready["message"]
    world.registry.refuse_drops = ""
    await rest(world)
    assert world.phase == "Running"
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0"]


@pytest.mark.parametrize(("fault", "why"), [("refuse_drops", "405 UNSUPPORTED"), ("down", "503 Service Unavailable")])
async def test_w16_what_is_left_of_a_removed_vm_is_owed_and_said(world: World, fault: str, why: str) -> None:
    """As after a wake: the set that has all its VMs is ready, its tags are not what they shall be, and one event says so."""
    await roles_up(world, 2)
    world.edit(agent={"replicas": 1})
    await world.run()
    setattr(world.registry, fault, why)
    await rest(world)
    saying = f"{vm(2)}: {vm(2)}:hibernate: {why}"
    snapshot = world.condition("SnapshotCurrent")
    assert (snapshot["status"], snapshot["reason"], snapshot["message"]) == ("False", "TagDropPending", saying)
    assert (world.phase, world.condition("Ready")["status"]) == ("Running", "True")
    mark = world.mark
    for _ in range(3):
        world.start_operator()
        outcome = await world.run()
        assert repr(outcome.error) == f"TagDropPendingError('{vm(2)}:hibernate: {why}')"
    assert world.writes(mark) == []
    assert events(world) == [("Warning", "TagDropPending", f"{saying}; tried again until it is answered")]
    setattr(world.registry, fault, "")
    await rest(world)
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.annotation(keys.REMOVING_VM_NAMES) is None
    assert names(world) == [vm(0), vm(1)]


async def test_w16_what_is_owed_of_a_removed_vm_holds_up_neither_move_nor_suspend(world: World) -> None:
    await roles_up(world, 1)
    world.registry.refuse_drops = "405 UNSUPPORTED"
    world.edit(agent={"replicas": 0})
    await rest(world)
    world.edit(nodeName="node-b")
    await rest(world)
    main = world.pod()
    assert main is not None
    assert (world.phase, main["spec"]["nodeName"]) == ("Running", "node-b")
    assert world.condition("SnapshotCurrent")["message"].startswith(f"{vm(0)}, {vm(1)}: ")
    world.edit(suspend=True)
    await rest(world)
    assert world.phase == "Suspended"
    world.registry.refuse_drops = ""
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, world.registry.tags) == ("Running", {})
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.annotation(keys.REMOVING_VM_NAMES) is None


async def test_w16_a_terminating_pod_keeps_name_and_tag(world: World) -> None:
    await roles_up(world, 1)
    digest = saved(world, vm(1))
    world.edit(agent={"replicas": 0})
    terminating(world, "demo-1")
    requests = len(world.registry.requests)
    for _ in range(3):
        await world.run()
    assert world.tag(vm(1)) == digest
    assert vm(1) in names(world)
    assert not [r for r in asked(world, requests) if vm(1) in r]
    await rest(world)
    assert world.tag(vm(1)) is None


async def test_w16_a_pod_that_only_the_api_server_knows_keeps_the_tag(world: World) -> None:
    await roles_up(world, 1)
    saved(world, vm(1))
    world.edit(agent={"replicas": 0})
    world.observe()
    world.cache.objects.pop(("pod", "ns", "demo-1"))
    await world.reconcile()
    assert world.tag(vm(1)) is not None
    world.start_operator()
    await rest(world)
    assert (world.tag(vm(1)), pods(world)) == (None, ["demo-0"])


@pytest.mark.scenario("S229")
async def test_names_are_written_down_before_the_first_delete(world: World) -> None:
    await roles_up(world, 2)
    refuse(world, "patch demo", KubeError("etcd is gone", status=500))
    world.edit(agent={"replicas": 0})
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert not any(w.startswith("delete") for w in world.writes(mark))
    heal(world)
    await rest(world)
    assert pods(world) == ["demo-0"]


# -- held by a CocoonHibernation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_a_held_vm_is_not_removed_before_it_is_let_go(world: World, pod: str, name: str) -> None:
    await roles_asleep(world, 1, [box("db")])
    hibernation(world, pod, phase="Hibernated")
    digest = world.tag(name)
    world.edit(suspend=False, agent={"replicas": 0}, toolboxes=[])
    await rest(world)
    assert pods(world) == ["demo-0", pod]
    assert world.tag(name) == digest
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "HeldByHibernation")
    assert ready["message"] == f"{pod} is not removed: CocoonHibernation {pod} holds its VM"
    mark, requests = world.mark, len(world.registry.requests)
    await world.run()
    assert (world.writes(mark), asked(world, requests)) == ([], [])
    world.api.remove("hibernation", "ns", pod)
    await rest(world)
    assert (pods(world), world.tag(name)) == (["demo-0"], None)
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_the_snapshot_of_a_held_vm_without_pod_is_not_collected(world: World, pod: str, name: str) -> None:
    """I7: a scale-down never takes what a CocoonHibernation holds, pod or no pod."""
    await roles_asleep(world, 1, [box("db")])
    hibernation(world, pod, phase="Hibernated")
    digest = world.tag(name)
    world.delete_pod(pod)
    world.edit(suspend=False, agent={"replicas": 0}, toolboxes=[])
    await rest(world)
    assert world.tag(name) == digest
    assert name in names(world)
    world.api.remove("hibernation", "ns", pod)
    await rest(world)
    assert world.tag(name) is None


# -- two edits in the same second --------------------------------------------------------------------------------------

SCALES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"agent": {"replicas": 0}}, {"agent": {"replicas": 2}}, {"agent": {"replicas": 1}}),
    ({"agent": {"replicas": 3}}, {"agent": {"replicas": 0}}, {"agent": {"replicas": 2}}),
    ({"agent": {"replicas": 0}}, {"agent": {"replicas": 1}}, {"agent": {"replicas": 0}}),
    ({"toolboxes": []}, {"toolboxes": [RUN_BOX]}, {"toolboxes": []}),
    ({"toolboxes": []}, {"toolboxes": []}, {"toolboxes": [RUN_BOX]}),
    ({"toolboxes": [box("other")]}, {"toolboxes": [RUN_BOX]}, {"toolboxes": [RUN_BOX, box("other")]}),
]


@pytest.mark.parametrize(("transition", "first", "last"), SCALES)
async def test_two_edits_at_every_step_of_a_scale_end_where_the_last_one_says(
    transition: dict[str, Any], first: dict[str, Any], last: dict[str, Any]
) -> None:
    """After 0, 1, 2, ... small steps of operator and agent, until the transition is over."""
    for steps in range(60):
        world = JudgedWorld()
        world.agent.works = True
        await roles_up(world, 2, [RUN_BOX])
        world.edit(**transition)
        over = await restless(world, steps) if steps else False
        world.edit(**first)
        world.edit(**last)
        await judged_rest(world)
        where = f"after {steps} steps"
        spec = world.set()["spec"]
        slots = [*range(spec["agent"]["replicas"] + 1), *sorted(b["name"] for b in spec.get("toolboxes", []))]
        assert world.phase == "Running", where
        assert pods(world) == [f"demo-{slot}" for slot in slots], where
        assert names(world) == [vm(slot) for slot in slots], where
        assert world.annotation(keys.REMOVING_VM_NAMES) is None, where
        assert world.registry.tags == {}, where
        if over:
            return
    raise AssertionError("the transition does not end")
