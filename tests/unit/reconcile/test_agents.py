"""Sub-agents: forked from the main agent, made together, each looked after on its own (contract 4.10)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Answer
from cocoon_operator.api.errors import KubeError
from cocoon_operator.api.pod import Pod
from tests.model.apiserver import cocoonset
from tests.model.world import World
from tests.unit.reconcile.staging import (
    RUN_BOX,
    SLEEPING,
    STATIC_BOX,
    VM,
    agent_says,
    annotations_of,
    asked,
    bodies,
    built_sub,
    events,
    heal,
    hibernation,
    pod_fails,
    pod_writes,
    pods,
    refuse,
    rest,
    roles_asleep,
    roles_up,
    running_status,
    saved,
    set_object,
    stand,
    terminating,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio


async def main_alone(world: World, replicas: int, **spec: Any) -> None:
    """A ready main agent of a set that was just asked for more."""
    await up(world)
    world.edit(agent={"replicas": replicas}, **spec)


# -- made ------------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S109", "S046", "S093")
async def test_sub_agent_and_toolbox_are_made_in_one_pass_with_the_status(world: World) -> None:
    await main_alone(world, 1, toolboxes=[RUN_BOX])
    mark, requests = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert outcome.error is None
    assert world.writes(mark) == [
        "patch pod/demo-0",
        "patch set/demo",
        "create pod/demo-1",
        "patch set/demo",
        "create pod/demo-db",
        "patch/status set/demo",
    ]
    assert asked(world, requests) == [f"GET {vm(1)}:hibernate", f"GET {vm('db')}:hibernate"]
    assert world.phase == "Scaling"
    sub = world.pod("demo-1")
    assert sub is not None
    assert (sub["spec"]["nodeName"], annotations_of(world, "demo-1")[keys.FORK_FROM]) == ("node-a", VM)
    assert world.annotation(keys.DELETE_VM_NAMES) == f"{VM},{vm(1)},{vm('db')}"


@pytest.mark.scenario("S118")
async def test_everything_that_is_missing_is_made_together(world: World) -> None:
    """No CocoonHibernation is listed: the view has them."""
    await main_alone(world, 2, toolboxes=[STATIC_BOX])
    mark, requests = world.mark, len(world.registry.requests)
    await world.run()
    made = [write for write in pod_writes(world, mark) if write.startswith("create")]
    assert made == ["create pod/demo-1", "create pod/demo-2", "create pod/demo-vnc"]
    assert asked(world, requests) == [f"GET {vm(1)}:hibernate", f"GET {vm(2)}:hibernate"]


@pytest.mark.scenario("S111")
async def test_while_main_is_not_ready_neither_roles_are_made_nor_removed(world: World) -> None:
    world.apply(agent={"replicas": 1}, toolboxes=[RUN_BOX, STATIC_BOX])
    await world.run()
    world.agent.step("ns", "demo-0")
    mark = world.mark
    await world.run()
    assert not any(write.startswith("create") for write in world.writes(mark))
    await rest(world)
    agent_says(world, {}, "demo-0")
    world.api.patch("pod", "ns", "demo-0", {"status": running_status(ready=False)}, by="agent", subresource="status")
    pod_fails(world, "demo-1")
    world.edit(toolboxes=[])
    mark = world.mark
    await world.run()
    assert not any(write.startswith(("delete", "create")) for write in world.writes(mark))
    assert world.phase == "Pending"


@pytest.mark.scenario("S108", "S110")
async def test_a_set_with_all_roles_rests_without_a_timer(world: World) -> None:
    await roles_up(world, 2, [RUN_BOX, STATIC_BOX])
    mark, requests = world.mark, len(world.registry.requests)
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert (world.writes(mark), asked(world, requests)) == ([], [])


@pytest.mark.scenario("S230")
async def test_twenty_are_made_eight_at_a_time(world: World) -> None:
    """Creates and the questions before them alike."""
    await main_alone(world, 20)
    world.observe()
    flying = {"create": 0, "ask": 0}
    most = dict(flying)
    create, inspect = world.cluster.create_pod, world.registry.inspect

    async def counted(kind: str) -> None:
        flying[kind] += 1
        most[kind] = max(most[kind], flying[kind])
        for _ in range(3):
            await asyncio.sleep(0)
        flying[kind] -= 1

    async def slow_create(namespace: str, body: Mapping[str, Any]) -> Pod:
        await counted("create")
        return await create(namespace, body)

    async def slow_inspect(vm_name: str, reference: str) -> Answer:
        await counted("ask")
        return await inspect(vm_name, reference)

    world.cluster.create_pod = slow_create  # type: ignore[method-assign]
    world.registry.inspect = slow_inspect  # type: ignore[method-assign]
    mark = world.mark
    await world.reconcile()
    assert most == {"create": 8, "ask": 8}
    assert sorted(bodies_of_creates(world, mark)) == sorted(f"demo-{slot}" for slot in range(1, 21))
    assert [write for write in world.writes(mark) if "set/" in write] == ["patch set/demo", "patch/status set/demo"]


def bodies_of_creates(world: World, since: int) -> list[str]:
    return [w.name for w in world.api.writes[since:] if (w.by, w.verb) == ("operator", "create")]


@pytest.mark.scenario("S230")
async def test_w50_a_create_that_is_refused_stops_no_other(world: World) -> None:
    """The Go operator cancels the rest; here every other one is made, the error surfaces and the status says it."""
    await main_alone(world, 3, toolboxes=[RUN_BOX])
    refuse(world, "create demo-1", KubeError("exceeded quota", status=403))
    mark = world.mark
    outcome = await world.run()
    assert str(outcome.error) == "exceeded quota"
    assert bodies_of_creates(world, mark) == ["demo-2", "demo-3", "demo-db"]
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "APIError", "exceeded quota")
    assert world.set()["status"]["observedGeneration"] == 2
    await rest(world)
    await world.run()
    assert events(world) == [("Warning", "CreateFailed", "pod demo-1: exceeded quota")]
    heal(world)
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.parametrize("call", ["delete demo-1", "patch demo-2", "delete demo-3"])
async def test_w50_a_write_that_fails_stops_neither_the_others_nor_the_status(world: World, call: str) -> None:
    """A rebuild, a stamp, a scale-down."""
    await roles_up(world, 3, [RUN_BOX, STATIC_BOX])
    pod_fails(world, "demo-1")
    world.delete_pod("demo-vnc")
    world.edit(agent={"replicas": 2}, toolboxes=[{**RUN_BOX, "network": "blue"}, STATIC_BOX])
    refuse(world, call, KubeError("etcd is gone", status=500))
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert world.set()["status"]["observedGeneration"] == 2
    writes = pod_writes(world, mark)
    assert "create pod/demo-vnc" in writes
    assert "delete pod/demo-db" in writes
    assert world.condition("Ready")["message"] == "etcd is gone"
    heal(world)
    await rest(world)
    assert world.phase == "Running"
    assert pods(world) == ["demo-0", "demo-1", "demo-2", "demo-db", "demo-vnc"]


async def test_a_list_that_cannot_be_written_makes_nothing_and_leaves_a_status(world: World) -> None:
    """The name is listed before the first create: without that the tag of a VM could outlive its set."""
    await main_alone(world, 1)
    refuse(world, "patch demo", KubeError("etcd is gone", status=500))
    mark = world.mark
    outcome = await world.run()
    assert str(outcome.error) == "etcd is gone"
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo"]
    assert world.condition("Ready")["reason"] == "APIError"
    heal(world)
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S230", "S238")
async def test_a_sub_agent_that_the_cache_does_not_show_is_taken_over(world: World) -> None:
    await main_alone(world, 1)
    world.observe()
    await world.reconcile()
    world.agent.run()
    world.cache.objects.pop(("pod", "ns", "demo-1"))
    mark = world.mark
    outcome = await world.reconcile()
    assert outcome.error is None
    assert pod_writes(world, mark) == []
    assert world.phase == "Running"


async def test_w25_a_foreign_pod_with_a_sub_agents_name_is_told_once_and_waited_out(world: World) -> None:
    await main_alone(world, 2)
    body = cocoonset("other")
    world.api.create("pod", {"metadata": {"name": "demo-1", "namespace": "ns"}, "spec": body["spec"]}, by="user")
    await rest(world)
    assert (world.outcome.requeue_after, world.outcome.error) == (30, None)
    message = "pod demo-1 exists and is controlled by nobody; vk-ns-demo-1 is made when it is gone"
    assert world.condition("Ready")["message"] == message
    assert events(world) == [("Warning", "PodNameCollision", message)]
    assert (world.phase, pods(world)) == ("Scaling", ["demo-0", "demo-1", "demo-2"])
    world.api.remove("pod", "ns", "demo-1")
    await rest(world)
    assert world.phase == "Running"


async def test_a_sub_agent_of_a_namesake_is_never_adopted(world: World) -> None:
    """Same name, same labels, another UID: I3, I7."""
    await main_alone(world, 1)
    stand(world, built_sub(set_object(agent={"replicas": 1})), status=running_status())
    world.api.objects[("pod", "ns", "demo-1")]["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-first-life"
    world.start_operator()
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert not any("demo-1" in write for write in world.writes(mark))
    assert [reason for _, reason, _ in events(world)] == ["PodNameCollision"]
    assert world.phase == "Scaling"


async def test_w31_two_troubles_at_once_are_told_once_each(world: World) -> None:
    """A name that is taken, and a toolbox list that cannot work: neither makes the other a new incident every pass."""
    await main_alone(world, 1, toolboxes=[{**RUN_BOX, "name": "7"}])
    world.api.create("pod", {"metadata": {"name": "demo-1", "namespace": "ns"}, "spec": {}}, by="user")
    for _ in range(4):
        await world.run()
    assert sorted(reason for _, reason, _ in events(world)) == ["InvalidSpec", "PodNameCollision"]


async def test_w31_two_refused_creates_are_told_once_each(world: World) -> None:
    await main_alone(world, 2)

    def hook(moment: str, call: str) -> None:
        if moment == "before" and call.startswith("create"):
            raise KubeError(f"{call} is refused", status=403)

    world.hook = hook
    for _ in range(4):
        await world.run()
    assert sorted(message for _, _, message in events(world)) == [
        "pod demo-1: create demo-1 is refused",
        "pod demo-2: create demo-2 is refused",
    ]


# -- fork source and node ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S060")
async def test_a_pin_binds_sub_agents_to_mains_node(world: World) -> None:
    world.apply(agent={"replicas": 1}, nodeName="node-b")
    await rest(world)
    sub = world.pod("demo-1")
    assert sub is not None
    assert (sub["spec"]["nodeName"], "affinity" in sub["spec"]) == ("node-b", False)


async def test_w29_sub_agents_stay_when_main_moved_and_new_ones_are_forked_where_it_is(world: World) -> None:
    await roles_up(world, 1, nodeName="node-a")
    uid = world.pod("demo-1")["metadata"]["uid"]  # type: ignore[index]
    world.edit(nodeName="node-b")
    await rest(world)
    mark = world.mark
    world.edit(agent={"replicas": 2})
    await rest(world)
    assert world.phase == "Running"
    first, second = world.pod("demo-1"), world.pod("demo-2")
    assert first is not None
    assert second is not None
    assert (first["metadata"]["uid"], first["spec"]["nodeName"]) == (uid, "node-a")
    assert second["spec"]["nodeName"] == "node-b"
    assert [write for write in world.writes(mark) if write.startswith("delete")] == []
    world.delete_pod("demo-1")
    await rest(world)
    first = world.pod("demo-1")
    assert first is not None
    assert first["spec"]["nodeName"] == "node-b"
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0"]


async def test_w29_what_vanished_asleep_is_restored_for_every_role(world: World) -> None:
    await roles_asleep(world, 2, [RUN_BOX])
    world.delete_pod("demo-1")
    world.delete_pod("demo-db")
    mark = world.mark
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]
    assert world.memory(vm("db")) == ["work of vk-ns-demo-db"]
    for pod in ("demo-1", "demo-db"):
        (body,) = bodies(world, mark, f"create pod/{pod}")
        assert body["metadata"]["annotations"][keys.RESTORE] == "true"
    assert world.registry.tags == {}
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


# -- a CocoonHibernation on one of them ----------------------------------------------------------------------------------------


@pytest.mark.scenario("S247", "S248", "S244", "S246")
@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_a_missing_vm_that_is_held_is_restored_once_it_is_not(world: World, pod: str, name: str) -> None:
    """While the hibernation asks for sleep nothing is booted (row 5); when it asks for a wake, the tag decides."""
    await roles_up(world, 1, [RUN_BOX])
    saved(world, name, image="box" if pod == "demo-db" else "base", memory=["kept"])
    hibernation(world, pod, phase="Hibernated")
    world.delete_pod(pod)
    mark = world.mark
    await rest(world)
    assert pod not in pods(world)
    world.api.patch("hibernation", "ns", pod, {"spec": {"desire": "Wake"}}, by="user")
    await rest(world)
    (body,) = bodies(world, mark, f"create pod/{pod}")
    assert body["metadata"]["annotations"][keys.RESTORE] == "true"
    assert world.memory(name) == ["kept"]
    assert world.phase == "Running"
    assert world.tag(name) is None


@pytest.mark.scenario("S248")
@pytest.mark.parametrize("pod", ["demo-1", "demo-db"])
async def test_while_the_registry_says_nothing_nothing_is_made(world: World, pod: str) -> None:
    await roles_up(world, 1, [RUN_BOX])
    world.delete_pod(pod)
    world.registry.down = "503 Service Unavailable"
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
    assert not any(write.startswith("create") for write in world.writes(mark))
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "RegistryUnreachable")
    world.registry.down = ""
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S249")
async def test_an_edit_leaves_a_held_sub_agent_alone_and_meets_it_at_its_wake(world: World) -> None:
    """Legacy S249 boots it fresh and saves that over the real one; here it stays asleep, and keeps its memory."""
    await roles_asleep(world, 1)
    hibernation(world, "demo-1", phase="Hibernated")
    world.edit(suspend=False)
    await rest(world)
    digest, uid = world.tag(vm(1)), world.pod("demo-1")["metadata"]["uid"]  # type: ignore[index]
    world.edit(agent={"network": "blue"})
    await rest(world)
    assert world.pod("demo-1")["metadata"]["uid"] == uid  # type: ignore[index]
    assert world.tag(vm(1)) == digest
    world.api.remove("hibernation", "ns", "demo-1")
    await rest(world)
    assert world.phase == "Running"
    assert annotations_of(world, "demo-1")[keys.NETWORK] == "blue"
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


# -- drift -------------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S233", "S081")
async def test_a_drifted_sub_agent_is_deleted_at_once_and_its_history_stays(world: World) -> None:
    await roles_up(world, 2)
    text = '{"1":{"count":2,"lastDeleted":"2026-11-30T09:59:59Z"}}'
    world.annotate({keys.REBUILD_HISTORY: text})
    world.api.patch("pod", "ns", "demo-1", {"metadata": {"annotations": {keys.NETWORK: "mine"}}}, by="user")
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["delete pod/demo-1", "patch/status set/demo"]
    assert world.annotation(keys.REBUILD_HISTORY) == text
    world.api.patch("pod", "ns", "demo-2", {"metadata": {"annotations": {keys.FORK_FROM: "vk-ns-x-0"}}}, by="user")
    await rest(world)
    assert bodies(world, mark, "delete pod/demo-2") == []


@pytest.mark.scenario("S067", "S116")
async def test_an_edit_of_the_agent_makes_main_again_then_its_sub_agents(world: World) -> None:
    """The sub-agents are made again from the new main: forks of what the user asks for now."""
    await roles_up(world, 2, [RUN_BOX])
    mark = world.mark
    world.edit(agent={"image": "other"})
    await rest(world)
    writes = [w for w in world.writes(mark) if w.startswith(("delete", "create"))]
    assert writes == [
        "delete pod/demo-0",
        "create pod/demo-0",
        "delete pod/demo-1",
        "delete pod/demo-2",
        "create pod/demo-1",
        "create pod/demo-2",
    ]
    assert world.memory(vm("db")) == ["work of vk-ns-demo-db"]
    assert {name: machine.image for name, machine in world.agent.vms.items()} == {
        vm(0): "other",
        vm(1): "other",
        vm(2): "other",
        vm("db"): "box",
    }


@pytest.mark.scenario("S084")
async def test_w12_the_snapshot_policy_is_patched_on_every_managed_pod(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX, STATIC_BOX])
    mark = world.mark
    world.edit(snapshotPolicy="never")
    await rest(world)
    assert pod_writes(world, mark) == [
        "patch pod/demo-0",
        "patch pod/demo-1",
        "patch pod/demo-db",
        "patch pod/demo-vnc",
    ]
    for pod in ("demo-0", "demo-1", "demo-db"):
        assert annotations_of(world, pod)[keys.SNAPSHOT_POLICY] == "never"
        assert annotations_of(world, pod)[keys.GENERATION] == "2"


@pytest.mark.scenario("S085")
@pytest.mark.parametrize(
    "edit",
    [
        {"agent": {"replicas": 3}},
        {"hibernatePolicy": "retain", "nodeName": "node-a"},
        {"toolboxes": [RUN_BOX, {"name": "more", "image": "box", "mode": "run"}]},
    ],
)
async def test_what_concerns_others_never_touches_a_pod_that_is_there(world: World, edit: dict[str, Any]) -> None:
    await roles_up(world, 2, [RUN_BOX])
    world.edit(**edit)
    await rest(world)
    assert [str(w) for w in world.api.writes if w.verb == "delete"] == []
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"]


async def test_w11_making_pods_does_not_change_the_spec(world: World) -> None:
    """Storage is added to the pod's resources, twenty times over, and none of that comes back into the set."""
    resources = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
    agent = {"replicas": 20, "storage": "10Gi", "resources": resources, "envFrom": [{"secretRef": {"name": "s"}}]}
    world.apply(agent=agent, toolboxes=[{**RUN_BOX, "storage": "5Gi", "resources": resources}])
    before = world.set()["spec"]
    target = world.reconciler
    world.observe()
    view = world.view()
    assert view.set is not None
    assert view.set.spec is not None
    options = view.set.spec.agent
    for _ in range(4):
        await target.reconcile(view)
        world.agent.run()
        world.observe()
        view = type(view)(view.set, world.view().pods, (), view.now)
    await rest(world)
    assert world.phase == "Running"
    assert world.set()["spec"] == before
    assert (dict(options.resources.limits), dict(options.resources.requests)) == ({"cpu": "1"}, {"cpu": "500m"})
    limits = world.pod("demo-20")["spec"]["containers"][0]["resources"]["limits"]  # type: ignore[index]
    assert limits == {"cpu": "1", "ephemeral-storage": "10Gi"}


# -- failed is not dead --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S218", "S219", "S239", "S137")
@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_w62_a_failed_save_of_a_sub_agent_or_toolbox_is_a_living_vm(world: World, pod: str, name: str) -> None:
    """It blocks the suspend and keeps its work; woken again without having been saved, it is neither rebuilt nor counted."""
    await roles_up(world, 1, [RUN_BOX])
    work = list(world.memory(name) or ())
    world.agent.fail.add("push")
    world.edit(suspend=True)
    await rest(world)
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "failed"
    assert world.phase == "Suspending"
    assert pod in world.condition("Progressing")["message"]
    mark = world.mark
    world.edit(suspend=False)
    await world.run()
    await world.run()
    assert not any(write.startswith("delete") for write in world.writes(mark))
    world.agent.fail.clear()
    await rest(world)
    assert world.phase == "Running"
    assert world.memory(name) == work
    main_too = "main pod ns/demo-0: hibernate: push failed; the node agent retries"
    assert events(world) == [("Warning", "HibernateFailed", main_too)]
    assert world.measures.counts == {}
    assert world.annotation(keys.REBUILD_HISTORY) is None
    assert world.annotation(keys.TOOLBOX_REBUILD_HISTORY) is None


@pytest.mark.scenario("S218", "S239")
@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_w62_a_failed_save_that_a_hibernation_asked_for_costs_no_vm(world: World, pod: str, name: str) -> None:
    """The deterministic loss of the Go operator: a hibernation on a sub-agent, and a registry that answers 503."""
    await roles_up(world, 1, [RUN_BOX])
    hibernation(world, pod, phase="Hibernating")
    world.api.patch("pod", "ns", pod, {"metadata": {"annotations": {keys.HIBERNATE: "true"}}}, by="operator")
    world.registry.down = "503 Service Unavailable"
    mark = world.mark
    await rest(world)
    world.edit(agent={"network": "blue"}, toolboxes=[{**RUN_BOX, "network": "blue"}])
    await rest(world)
    assert annotations_of(world, pod)[keys.LIFECYCLE_MESSAGE] == "hibernate: push failed"
    assert f"delete pod/{pod}" not in world.writes(mark)
    world.api.remove("hibernation", "ns", pod)
    await world.run()
    assert f"delete pod/{pod}" not in world.writes(mark)
    assert f"work of {name}" in (world.memory(name) or [])


@pytest.mark.scenario("S218", "S239")
@pytest.mark.parametrize(("pod", "name"), [("demo-1", vm(1)), ("demo-db", vm("db"))])
async def test_w62_a_failed_wake_is_a_sleeping_vm(world: World, pod: str, name: str) -> None:
    """Its tag is there: the agent retries, nothing is rebuilt, and the memory comes back."""
    await roles_asleep(world, 1, [RUN_BOX])
    world.agent.fail.add("wake")
    mark = world.mark
    world.edit(suspend=False)
    await rest(world)
    assert annotations_of(world, "demo-0")[keys.LIFECYCLE_STATE] == "failed"
    world.agent.fail.clear()
    for _ in range(40):
        await world.run()
        world.agent.step("ns", "demo-0")
    world.agent.fail.add("wake")
    await rest(world)
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "failed"
    world.clock.advance(3600)
    await rest(world)
    assert not any(write.startswith("delete") for write in world.writes(mark))
    world.agent.fail.clear()
    await rest(world)
    assert world.phase == "Running"
    assert f"work of {name}" in (world.memory(name) or [])
    assert [event for event in events(world) if "Rebuild" in event[1]] == []


@pytest.mark.scenario("S089")
@pytest.mark.parametrize("slot", ["0", "-1", "x", "99999999999"])
async def test_a_sub_agent_without_a_slot_is_left_alone(world: World, slot: str) -> None:
    """A pod that says sub-agent and has no slot above 0: never made again, never removed, stamped like the others."""
    await roles_up(world, 1)
    body = built_sub(set_object(agent={"replicas": 1}))
    body["metadata"]["name"] = "demo-odd"
    body["metadata"]["labels"][keys.LABEL_SLOT] = slot
    body["metadata"]["annotations"].update(SLEEPING, **{keys.HIBERNATE: "", keys.VM_NAME: "vk-ns-odd-1"})
    stand(world, body, status={"phase": "Failed"})
    mark = world.mark
    world.edit(agent={"replicas": 0})
    for _ in range(3):
        await world.run()
    assert [w for w in pod_writes(world, mark) if "odd" in w] == ["patch pod/demo-odd"]


async def test_a_terminating_sub_agent_is_waited_for(world: World) -> None:
    await roles_up(world, 1)
    terminating(world, "demo-1")
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is None
    assert pod_writes(world, mark) == []
    assert world.phase == "Scaling"
    await rest(world)
    assert world.phase == "Running"
