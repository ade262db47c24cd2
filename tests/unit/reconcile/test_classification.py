"""Which pods are a set's own, and what they are in it (contract 3.7, scenarios E)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from cocoon_operator.reconcile.members import owned, slot_number, vm_name_of
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    annotations_of,
    built_main,
    built_sub,
    built_toolbox,
    read,
    running_status,
    set_object,
    stand,
    terminating,
    up,
)

TARGET = set_object(agent={"replicas": 2}, toolboxes=[{"name": "tb", "mode": "run", "image": "tools"}])


def stray(name: str = "demo-9", *, role: str = "sub-agent", slot: str = "x") -> Object:
    """A pod of the set whose labels give it no place."""
    body = built_sub(TARGET)
    body["metadata"]["name"] = name
    body["metadata"]["annotations"][keys.VM_NAME] = f"vk-ns-{name}"
    body["metadata"]["labels"].update({keys.LABEL_ROLE: role, keys.LABEL_SLOT: slot})
    return body


@pytest.mark.scenario("S086")
def test_each_pod_lands_in_its_role() -> None:
    bodies = [built_toolbox(TARGET), built_sub(TARGET, "2"), built_main(TARGET), built_sub(TARGET, "1")]
    pods = owned(TARGET, map(read, bodies))
    assert [pod.name for pod in pods] == ["demo-0", "demo-1", "demo-2", "demo-tb"]
    assert [pod.role for pod in pods] == ["main", "sub-agent", "sub-agent", "toolbox"]
    assert [slot_number(pod) for pod in pods[:3]] == [0, 1, 2]
    assert pods[3].slot == "tb"
    assert [vm_name_of(TARGET, pod) for pod in pods] == [
        "vk-ns-demo-0",
        "vk-ns-demo-1",
        "vk-ns-demo-2",
        "vk-ns-demo-tb",
    ]


@pytest.mark.scenario("S087")
def test_a_pod_without_role_is_seen_and_has_no_place() -> None:
    body = built_main(TARGET)
    del body["metadata"]["labels"][keys.LABEL_ROLE]
    pods = owned(TARGET, [read(body)])
    assert [pod.name for pod in pods] == ["demo-0"]
    assert vm_name_of(TARGET, pods[0]) == ""


@pytest.mark.scenario("S089")
@pytest.mark.parametrize("slot", ["x", "99999999999", "", "1.0", "-1", "+1", "01", "1_0", " 1"])
def test_a_slot_that_is_no_int32_is_no_slot(slot: str) -> None:
    pod = read(stray(slot=slot))
    assert slot_number(pod) is None
    assert vm_name_of(TARGET, pod) == ""


@pytest.mark.asyncio
@pytest.mark.scenario("S088")
async def test_a_terminating_main_is_no_main(world: World) -> None:
    await up(world)
    terminating(world)
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch/status set/demo"]
    status = world.set()["status"]
    assert (status["phase"], status["readyAgents"]) == ("Pending", 0)
    assert "agents" not in status
    assert world.condition("Ready")["status"] == "False"


@pytest.mark.asyncio
@pytest.mark.scenario("S089")
@pytest.mark.parametrize("slot", ["x", "99999999999"])
async def test_a_pod_without_slot_is_stamped_suspended_and_deleted_with_the_set(world: World, slot: str) -> None:
    await up(world)
    stand(world, stray(slot=slot), annotations=AWAKE, status=running_status())
    world.edit(snapshotPolicy="never")
    await world.run()
    assert annotations_of(world, "demo-9")[keys.GENERATION] == "2"
    assert len(world.set()["status"]["agents"]) == 1
    world.edit(suspend=True)
    await world.run()
    assert annotations_of(world, "demo-9")[keys.HIBERNATE] == "true"
    world.delete_set()
    await world.settle()
    assert world.api.list("pod") == []
    assert world.api.list("set") == []


@pytest.mark.asyncio
@pytest.mark.scenario("S087")
async def test_a_pod_without_role_is_waited_for_when_it_is_managed(world: World) -> None:
    await up(world)
    body = stray(role="", slot="")
    stand(world, body, annotations=AWAKE, status=running_status())
    world.edit(suspend=True)
    world.agent.fail.add("push")
    await world.settle()
    assert world.phase == "Suspending"
    assert "demo-9" in world.condition("Progressing")["message"]


@pytest.mark.asyncio
@pytest.mark.scenario("S090")
async def test_a_pod_that_only_carries_the_label_outlives_the_set(world: World) -> None:
    await up(world)
    body = stray("bystander")
    del body["metadata"]["ownerReferences"]
    world.api.create("pod", body, by="user")
    world.delete_set()
    await world.settle()
    assert world.api.list("set") == []
    assert [pod["metadata"]["name"] for pod in world.api.list("pod")] == ["bystander"]


@pytest.mark.asyncio
@pytest.mark.scenario("S091")
async def test_a_pod_of_an_earlier_namesake_is_left_alone(world: World) -> None:
    world.apply(suspend=True)
    body = stray("demo-9", slot="9")
    body["metadata"]["ownerReferences"][0]["uid"] = "uid-of-another"
    world.api.create("pod", {**body, "status": running_status()}, by="user")
    before = world.pod("demo-9")
    await world.settle()
    world.delete_set()
    await world.settle()
    assert world.api.list("set") == []
    after = world.pod("demo-9")
    assert before is not None
    assert after is not None
    assert after["metadata"].get("deletionTimestamp") is None
    assert keys.HIBERNATE not in after["metadata"]["annotations"]
    assert after["metadata"]["annotations"][keys.GENERATION] == before["metadata"]["annotations"][keys.GENERATION]


@pytest.mark.asyncio
@pytest.mark.scenario("S091")
async def test_a_referrer_that_is_not_the_controller_does_not_own(world: World) -> None:
    await up(world)
    body = stray("demo-9", slot="9")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c", "controller": True},
        {"apiVersion": keys.API_VERSION, "kind": "CocoonSet", "name": "demo", "uid": world.set()["metadata"]["uid"]},
    ]
    world.api.create("pod", body, by="user")
    world.edit(snapshotPolicy="never")
    await world.settle()
    assert annotations_of(world, "demo-9")[keys.GENERATION] == "1"
    assert len(world.set()["status"]["agents"]) == 1
