"""Pods of no set: which tag may go, and which stays (contract 5, design 4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.gaps import long_rest, quiet, sleeping, tags
from tests.unit.reconcile.holders import SOLO, ends, gone, phase, solo, solo_held, wants
from tests.unit.reconcile.moves import step
from tests.unit.reconcile.staging import annotations_of, hibernation, rest

pytestmark = pytest.mark.asyncio


def pod_of_no_set(namespace: str, name: str, vm_name: str, **annotations: str) -> Object:
    """A pod as its own controller makes it."""
    known = {keys.VM_NAME: vm_name, keys.MANAGED: "true", keys.IMAGE: "base", **annotations}
    return {"metadata": {"name": name, "namespace": namespace, "annotations": known, "labels": {}}, "spec": {}}


def asleep_in(world: World, namespace: str, name: str) -> None:
    """A pod of another namespace and the CocoonHibernation that keeps its VM asleep."""
    vm_name = f"vk-{namespace}-{name}"
    slept = {keys.HIBERNATE: "true", keys.LIFECYCLE_STATE: "hibernated", "model/trace": "slept"}
    world.api.create("pod", pod_of_no_set(namespace, name, vm_name, **slept), by="user")
    body: dict[str, Any] = {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_HIBERNATION,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podRef": {"name": name}, "desire": "Hibernate"},
        "status": {"phase": "Hibernated", "vmName": vm_name},
    }
    world.api.create("hibernation", body, by="user")


async def rests_awake(world: World, *memory: str) -> None:
    """The VM lives with all that was ever done in it, no tag is behind it, and nothing is written any more."""
    await quiet(world)
    assert world.memory(SOLO) == list(memory)
    assert tags(world) == []
    assert keys.HIBERNATE not in annotations_of(world, "solo")


async def test_the_heir_of_a_wake_is_not_active_before_the_tag_was_dropped(world: World) -> None:
    await solo_held(world)
    world.clock.advance(1)
    hibernation(world, "second", desire="Wake", pod="solo")
    await rest(world)
    wants(world, "Wake", "solo")
    await world.run()
    world.agent.run()
    ends(world, "solo")
    await rest(world)
    assert gone(world, "solo")
    world.agent.work(SOLO, "newer")
    assert phase(world, "second") == "Active"
    await rests_awake(world, "work", "newer")


async def test_a_pod_that_is_lost_in_its_save_comes_back_awake_and_without_a_tag(world: World) -> None:
    await solo(world)
    hibernation(world, "solo")
    await world.run()
    await world.run()
    for _ in range(6):
        if not world.tag(SOLO):
            step(world, 1, "solo")
    assert world.tag(SOLO)
    world.delete_pod("solo")
    await world.run()
    wants(world, "Wake", "solo")
    await world.run()
    assert phase(world, "solo") == "Pending"
    assert tags(world) == sleeping(SOLO)
    world.api.create("pod", pod_of_no_set("ns", "solo", SOLO), by="user")
    world.agent.run()
    world.clock.advance(40)
    await rest(world)
    world.agent.work(SOLO, "newer")
    assert phase(world, "solo") == "Active"
    await rests_awake(world, "work", "newer")


@pytest.mark.parametrize("blind", [False, True])
async def test_w63_a_lone_pod_that_is_gone_takes_no_tag_of_another_namespace_along(world: World, blind: bool) -> None:
    """``ns/x-y`` and ``ns-x/y`` are both ``vk-ns-x-y``; who sees not every namespace cannot know that nobody sleeps by it."""
    await solo(world, "x-y")
    hibernation(world, "x-y")
    await rest(world)
    world.delete_pod("x-y")
    await world.run()
    if blind:
        world.claims.complete = False
    else:
        asleep_in(world, "ns-x", "y")
    ends(world, "x-y")
    await rest(world)
    assert gone(world, "x-y")
    assert tags(world) == sleeping("vk-ns-x-y")
    await quiet(world)


@pytest.mark.scenario("S299")
async def test_the_tag_goes_with_the_last_one_that_asked_for_a_pod_that_is_gone(world: World) -> None:
    """Nobody can tell a pod that is about to come back from one that never does: who deletes it gives the VM up."""
    await solo_held(world)
    world.delete_pod("solo")
    ends(world, "solo")
    await rest(world)
    assert gone(world, "solo")
    assert tags(world) == []
    await quiet(world)


async def test_a_pod_that_no_agent_saves_is_tried_again_ever_more_rarely(world: World) -> None:
    body = pod_of_no_set("ns", "solo", SOLO, **{keys.LIFECYCLE_STATE: "ready"})
    del body["metadata"]["annotations"][keys.MANAGED]
    world.api.create("pod", {**body, "spec": {"nodeName": "node-a"}}, by="user")
    hibernation(world, "solo")
    for _ in range(400):
        await world.run()
        world.clock.advance(10)
    assert len(world.writes()) == 25
    assert phase(world, "solo") == "Hibernating"
    assert tags(world) == []


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("how", ["wake", "delete"])
async def test_whenever_a_save_is_called_off_the_vm_ends_awake_with_its_memory(
    world: World, steps: int, how: str
) -> None:
    """Also between the removal of the VM and the agent's word: it can only come up from the tag of that very save."""
    await solo(world)
    hibernation(world, "solo")
    await world.run()
    await world.run()
    step(world, steps, "solo")
    if how == "wake":
        wants(world, "Wake", "solo")
    else:
        ends(world, "solo")
    await long_rest(world)
    world.agent.work(SOLO, "newer")
    await rests_awake(world, "work", "newer")
    if how == "wake":
        assert phase(world, "solo") == "Active"
    else:
        assert gone(world, "solo")
