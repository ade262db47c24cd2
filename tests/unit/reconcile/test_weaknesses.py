"""Loops, churn and crashes of the Go operator that must not come back (contract, section 10.3), each by its number."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import ConflictError, NotFoundError
from tests.model.apiserver import cocoonset
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    VM,
    agent_says,
    agent_shows,
    annotations_of,
    bodies,
    built_main,
    built_sub,
    events,
    heal,
    made_by_go,
    pod_writes,
    refuse,
    rest,
    running_status,
    set_object,
    stand,
    terminating,
    up,
)

pytestmark = pytest.mark.asyncio

POD = ("pod", "ns", "demo-0")


@pytest.mark.scenario("S082", "S083")
@pytest.mark.parametrize("from_go", [False, True])
async def test_w10_resources_that_the_api_changes_do_not_recreate_the_vm(world: World, from_go: bool) -> None:
    agent = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}}
    body = built_main(set_object(agent=agent))
    body["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1", "memory": "4Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }
    if from_go:
        del body["metadata"]["annotations"][keys.APPLIED_RESOURCES]
    made_by_go(world, {"phase": "Running"}, agent=agent)
    stand(world, body, annotations=AWAKE, status=running_status())
    await rest(world)
    assert pod_writes(world) == []
    assert world.phase == "Running"


@pytest.mark.scenario("S084")
@pytest.mark.parametrize(
    ("edit", "key", "value"),
    [
        ({"snapshotPolicy": "never"}, keys.SNAPSHOT_POLICY, "never"),
        ({"agent": {"connType": "rdp"}}, keys.CONN_TYPE, "rdp"),
        ({"agent": {"forcePull": True}}, keys.FORCE_PULL, "true"),
    ],
)
async def test_w12_what_the_agent_reads_later_is_patched_in_place(
    world: World, edit: dict[str, Any], key: str, value: str
) -> None:
    await up(world)
    mark = world.mark
    world.edit(**edit)
    await rest(world)
    assert bodies(world, mark, "patch pod/demo-0") == [
        {"metadata": {"annotations": {key: value, keys.GENERATION: "2"}}}
    ]
    assert pod_writes(world, mark) == ["patch pod/demo-0"]
    assert world.memory() == ["work"]


async def test_w25_a_foreign_pod_with_mains_name_is_told_and_waited_out(world: World) -> None:
    world.api.create("pod", {"metadata": {"name": "demo-0", "namespace": "ns", "labels": {}}, "spec": {}}, by="user")
    world.apply()
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (30, None)
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "PodNameCollision")
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "PodNameCollision")]
    assert pod_writes(world) == []
    world.api.remove("pod", "ns", "demo-0")
    world.clock.advance(30)
    await rest(world)
    assert world.phase == "Running"


async def test_w25_two_sets_that_share_a_vm_name_do_not_share_a_tag(world: World) -> None:
    world.api.create("set", cocoonset("b-c", "a"), by="user")
    await world.settle("b-c", "a")
    world.clock.advance(1)
    world.api.create("set", cocoonset("c", "a-b"), by="user")
    await world.settle("c", "a-b")
    assert world.pod("c-0", "a-b") is None
    world.api.patch("set", "a", "b-c", {"spec": {"suspend": True}}, by="user")
    await world.settle("b-c", "a")
    digest = world.tag("vk-a-b-c-0")
    assert digest is not None
    await world.settle("c", "a-b")
    assert world.tag("vk-a-b-c-0") == digest
    assert [e[1] for e in events(world)] == ["NameCollision"]
    world.api.delete("set", "a-b", "c", by="user")
    await world.settle("c", "a-b")
    assert world.tag("vk-a-b-c-0") == digest


@pytest.mark.scenario("S133")
async def test_w26_a_suspend_under_a_terminating_main_is_no_error(world: World) -> None:
    await up(world)
    terminating(world)
    world.edit(suspend=True)
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S158")
async def test_w27_a_release_with_dead_pods_left_ends(world: World) -> None:
    made_by_go(world, {"phase": "Suspending"}, hibernatePolicy="release", suspend=True)
    body = built_sub(set_object(agent={"replicas": 1}))
    stand(world, body, annotations={keys.HIBERNATE: "true"}, status={"phase": "Failed"})
    await world.run()
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes(mark) == []
    assert world.phase == "Suspended"


@pytest.mark.scenario("S155")
async def test_w34_a_namesake_that_was_made_since_is_not_deleted(world: World) -> None:
    """The stale view fails by its UID instead of acting."""
    await up(world)
    world.edit(agent={"image": "other"})
    world.observe()
    stale = copy.deepcopy(world.cache.objects[POD])
    await rest(world)
    assert annotations_of(world)[keys.IMAGE] == "other"
    world.agent.work(VM, "new")
    world.cache.gone.clear()
    world.cache.objects[POD] = stale
    mark = world.mark
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert pod_writes(world, mark) == []
    assert world.memory() == ["new"]


@pytest.mark.scenario("S155")
async def test_w34_a_pod_that_woke_since_is_not_released(world: World) -> None:
    """The resourceVersion is a precondition too: same pod, other state."""
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.observe()
    agent_says(world, {keys.HIBERNATE: None})
    world.agent.run()
    assert world.memory() == ["work"]
    mark = world.mark
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert "delete pod/demo-0" not in world.writes(mark)
    assert world.memory() == ["work"]


@pytest.mark.scenario("S256")
async def test_w36_a_terminating_pod_is_not_deleted_again(world: World) -> None:
    await up(world)
    world.delete_set()
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert world.writes(mark) == ["delete pod/demo-0"]


async def test_w47_a_name_that_is_no_label_value_is_told(world: World) -> None:
    name = "x" * 64
    world.apply(name)
    for _ in range(3):
        outcome = await world.run(name)
        assert outcome.error is None
    assert world.api.list("pod") == []
    conditions = world.set(name)["status"]["conditions"]
    ready = next(c for c in conditions if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    assert ready["message"].startswith("metadata.name: 64 characters")
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "InvalidSpec")]
    world.delete_set(name)
    await world.settle(name)
    assert world.api.list("set") == []


async def test_w47_a_name_of_63_characters_works(world: World) -> None:
    name = "x" * 63
    world.apply(name)
    await world.settle(name)
    assert world.set(name)["status"]["phase"] == "Running"


async def test_w47_a_set_whose_name_is_no_label_value_can_be_deleted(world: World) -> None:
    """Its pods cannot be asked for by label, and it never had any."""
    name = "n" * 64
    world.apply(name)
    await world.settle(name)
    world.delete_set(name)
    await world.settle(name)
    assert world.api.get("set", "ns", name) is None


async def test_w52_a_pod_that_vanishes_under_its_patch_does_not_stop_the_pass(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 1}}
    target = set_object(**options)
    made_by_go(world, {"phase": "Running"}, **options)
    for body in (built_main(target), built_sub(target)):
        stand(world, body, annotations=AWAKE, status=running_status())
    world.edit(suspend=True)
    world.observe()
    world.api.remove("pod", "ns", "demo-1")
    outcome = await world.reconcile()
    assert outcome.error is None
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.phase == "Suspending"
    assert [agent["podName"] for agent in world.set()["status"]["agents"]] == ["demo-0"]


async def test_w52_a_main_that_vanishes_under_its_stamp_is_made_again(world: World) -> None:
    await up(world)
    world.edit(snapshotPolicy="never")
    refuse(world, "patch demo-0", NotFoundError("gone", status=404))
    outcome = await world.run()
    assert outcome.error is None
    heal(world)
    world.delete_pod()
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.parametrize("lifecycle", ["ready", ""])
async def test_w54_a_main_that_ended_successfully_is_failed(world: World, lifecycle: str) -> None:
    await up(world)
    agent_says(world, {keys.LIFECYCLE_STATE: lifecycle or None})
    agent_shows(world, {"phase": "Succeeded", "conditions": running_status(ready=False)["conditions"]})
    for _ in range(2):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.phase == "Failed"
    assert events(world) == [("Warning", "MainAgentFailed", "main pod ns/demo-0: Succeeded")]
