"""A CocoonHibernation is deleted, or there are several on one VM (contract 5.6, 5.7, design 4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import ConflictError, UnavailableError
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.holders import (
    SOLO,
    ends,
    gone,
    held,
    phase,
    ready,
    says,
    solo,
    solo_held,
    stored,
    told,
    wants,
)
from tests.unit.reconcile.staging import (
    VM,
    agent_says,
    annotations_of,
    asked,
    bodies,
    heal,
    hibernation,
    refuse,
    rest,
    saved,
    up,
)

pytestmark = pytest.mark.asyncio

PODS = pytest.mark.parametrize("pod", ["demo-0", "solo"])
"""Of a set and of no set."""


async def asleep(world: World, pod: str) -> None:
    await (held(world) if pod == "demo-0" else solo_held(world))


async def second(world: World, pod: str, desire: str = "Hibernate") -> None:
    """A younger one on the same pod."""
    world.clock.advance(1)
    hibernation(world, "second", pod=pod, desire=desire)
    await rest(world)


# -- deleted while its VM sleeps -------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S299", "S306")
async def test_its_vm_wakes_and_no_tag_is_left(world: World, pod: str) -> None:
    await asleep(world, pod)
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)
    assert (world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == (["work"], None)


@pytest.mark.scenario("S306")
async def test_in_a_set_the_finalizer_goes_at_once_and_the_tag_behind_the_living_vm(world: World) -> None:
    await held(world)
    ends(world)
    await world.run()
    assert gone(world)
    assert world.tag() is not None
    assert keys.HIBERNATE not in annotations_of(world)
    await rest(world)
    assert (world.phase, world.tag()) == ("Running", None)
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.scenario("S300")
async def test_in_a_set_neither_the_registry_nor_the_node_holds_it_back(world: World) -> None:
    """The namespace can go; the VM sleeps on until its tag is seen."""
    await held(world)
    world.registry.down = "connection refused"
    ends(world)
    await world.run()
    assert gone(world)
    await rest(world)
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.condition("Ready")["reason"] == "RegistryUnreachable"
    world.registry.down = ""
    await rest(world)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


@pytest.mark.scenario("S299")
async def test_of_no_set_it_waits_until_the_vm_is_awake(world: World) -> None:
    await solo_held(world)
    ends(world, "solo")
    await world.run()
    assert not gone(world, "solo")
    assert keys.HIBERNATE not in annotations_of(world, "solo")
    assert world.outcome.requeue_after == 5.0
    for _ in range(4):
        world.agent.step("ns", "solo")
    assert SOLO in world.agent.vms
    await world.run()
    assert not gone(world, "solo")
    assert world.tag(SOLO) is not None
    world.agent.run()
    requests = len(world.registry.requests)
    await world.run()
    assert gone(world, "solo")
    assert asked(world, requests) == [f"DELETE {SOLO}:hibernate"]


@pytest.mark.scenario("S299")
async def test_of_no_set_and_no_pod_its_tag_is_nobodys(world: World) -> None:
    await solo_held(world)
    world.delete_pod("solo")
    await world.run()
    ends(world, "solo")
    await world.run()
    assert gone(world, "solo")
    assert world.tag(SOLO) is None


@pytest.mark.scenario("S299")
async def test_a_pod_that_is_terminating_is_waited_for(world: World) -> None:
    """Its node agent may be reading the tag, or writing it."""
    await solo_held(world)
    world.api.delete("pod", "ns", "solo", by="user")
    ends(world, "solo")
    await world.run()
    assert not gone(world, "solo")
    assert world.tag(SOLO) is not None
    world.agent.run()
    await world.run()
    assert gone(world, "solo")


@pytest.mark.scenario("S300")
@pytest.mark.parametrize("pod_there", [True, False])
async def test_of_no_set_it_goes_after_the_limit_whatever_the_registry_says(world: World, pod_there: bool) -> None:
    await solo_held(world)
    if not pod_there:
        world.delete_pod("solo")
    world.registry.down = "connection refused"
    ends(world, "solo")
    outcome = await world.run()
    assert (str(outcome.error), gone(world, "solo")) == ("connection refused", False)
    world.clock.advance(299)
    await world.run()
    assert not gone(world, "solo")
    world.clock.advance(1)
    outcome = await world.run()
    assert (outcome.error, gone(world, "solo")) == (None, True)
    assert told(world, "solo")[-1] == (
        "Warning",
        "HibernationLetGo",
        f"{SOLO} is not awake yet; {SOLO}:hibernate is kept, and nothing waits for it",
    )
    assert world.tag(SOLO) is not None


@pytest.mark.scenario("S300")
async def test_of_no_set_it_goes_after_the_limit_though_its_node_is_dead(world: World) -> None:
    await solo_held(world)
    ends(world, "solo")
    for _ in range(3):
        world.clock.advance(99)
        await world.run()
        assert not gone(world, "solo")
    world.clock.advance(4)
    await world.run()
    assert gone(world, "solo")
    assert world.tag(SOLO) is not None


@PODS
@pytest.mark.scenario("S301")
async def test_one_that_never_had_a_vm_asks_the_registry_nothing(world: World, pod: str) -> None:
    await up(world)
    name = "demo-7" if pod == "demo-0" else "solo"
    saved(world, f"vk-ns-{name}")
    hibernation(world, name)
    await rest(world)
    requests = len(world.registry.requests)
    ends(world, name)
    await world.run()
    assert gone(world, name)
    assert asked(world, requests) == []
    assert world.tag(f"vk-ns-{name}") is not None


@PODS
async def test_one_that_is_awake_leaves_its_vm_alone(world: World, pod: str) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod, desire="Wake")
    await rest(world)
    mark, requests = world.mark, len(world.registry.requests)
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)
    assert world.writes(mark) == [f"patch hibernation/{pod}"]
    assert asked(world, requests) == []
    assert world.memory(f"vk-ns-{pod}") == ["work"]


@PODS
@pytest.mark.parametrize("spec", [{}, {"podRef": {"name": ""}, "desire": "Hibernate"}])
async def test_one_that_cannot_work_can_be_deleted(world: World, pod: str, spec: dict[str, Any]) -> None:
    await up(world)
    body: Object = {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_HIBERNATION,
        "metadata": {"name": pod, "namespace": "ns"},
        "spec": spec,
    }
    world.api.create("hibernation", body, by="user")
    await rest(world)
    assert phase(world, pod) == "Failed"
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)


# -- deleted in the middle ---------------------------------------------------------------------------------------------


@PODS
@pytest.mark.parametrize("steps", range(7))
async def test_a_save_that_is_under_way_ends_before_the_flag_goes(world: World, pod: str, steps: int) -> None:
    """Nothing tells the agent's ``ready`` of before the save from one of after it: the flag stays until it has spoken."""
    await (up(world) if pod == "demo-0" else solo(world))
    hibernation(world, pod)
    await world.run()
    for _ in range(steps):
        world.agent.step("ns", pod)
    ends(world, pod)
    await world.run()
    said = annotations_of(world, pod)
    if said[keys.LIFECYCLE_STATE] in ("ready", "hibernating") and keys.VM_ID in said:
        assert said[keys.HIBERNATE] == "true"
    if pod == "demo-0":
        assert gone(world)
    await rest(world)
    await rest(world)
    assert gone(world, pod)
    assert world.memory(f"vk-ns-{pod}") == ["work"]
    assert world.tag(f"vk-ns-{pod}") is None
    assert keys.HIBERNATE not in annotations_of(world, pod)


@PODS
@pytest.mark.parametrize("steps", range(7))
async def test_a_wake_that_is_under_way_goes_on(world: World, pod: str, steps: int) -> None:
    await asleep(world, pod)
    wants(world, "Wake", pod)
    await world.run()
    for _ in range(steps):
        world.agent.step("ns", pod)
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)
    assert (world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == (["work"], None)


@PODS
async def test_a_save_that_failed_is_over(world: World, pod: str) -> None:
    """Its agent says ``ready`` only after it has seen that the flag is gone."""
    await (up(world) if pod == "demo-0" else solo(world))
    world.agent.fail.add("push")
    hibernation(world, pod)
    await world.run()
    world.agent.run()
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "failed"
    ends(world, pod)
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world, pod)
    await rest(world)
    assert (gone(world, pod), world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == (True, ["work"], None)


@PODS
@pytest.mark.scenario("S305")
@pytest.mark.parametrize("error", [UnavailableError("down"), ConflictError("changed")])
async def test_a_finalizer_that_cannot_be_removed_is_tried_again(world: World, pod: str, error: Any) -> None:
    await asleep(world, pod)
    wants(world, "Wake", pod)
    await rest(world)
    ends(world, pod)
    refuse(world, f"patch hibernation/{pod}", error)
    outcome = await world.run()
    assert (outcome.error, gone(world, pod)) == (error, False)
    heal(world)
    await world.run()
    assert gone(world, pod)


@PODS
async def test_the_finalizers_of_others_stay(world: World, pod: str) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod, desire="Wake")
    await rest(world)
    finalizers = [keys.HIBERNATION_FINALIZER, "x/y"]
    world.api.patch("hibernation", "ns", pod, {"metadata": {"finalizers": finalizers}}, by="user")
    ends(world, pod)
    await rest(world)
    assert stored(world, pod)["metadata"]["finalizers"] == ["x/y"]
    mark = world.mark
    await rest(world)
    assert world.writes(mark) == []


# -- several -------------------------------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S302")
async def test_the_younger_one_waits_and_says_for_whom(world: World, pod: str) -> None:
    await asleep(world, pod)
    await second(world, pod, "Wake")
    assert (phase(world, pod), phase(world, "second")) == ("Hibernated", "Pending")
    assert ready(world, "second") == (
        "False",
        "Pending",
        f"CocoonHibernation {pod}, which is older, decides about pod ns/{pod}",
    )
    mark, requests = world.mark, len(world.registry.requests)
    for _ in range(3):
        world.clock.advance(60)
        await world.run()
    assert world.writes(mark) == []
    assert pod == "solo" or asked(world, requests) == []


@PODS
@pytest.mark.scenario("S302", "S303")
@pytest.mark.parametrize("with_status", [True, False])
async def test_the_younger_one_takes_over_without_a_wake_in_between(world: World, pod: str, with_status: bool) -> None:
    await asleep(world, pod)
    digest = world.tag(f"vk-ns-{pod}")
    if with_status:
        await second(world, pod)
        says(world, {"vmName": f"vk-ns-{pod}"}, "second")
    else:
        world.clock.advance(1)
        hibernation(world, "second", pod=pod)
    ends(world, pod)
    mark, history = len(world.api.writes), len(world.agent.history)
    await rest(world)
    assert gone(world, pod)
    assert phase(world, "second") == "Hibernated"
    assert world.tag(f"vk-ns-{pod}") == digest
    assert world.agent.history[history:] == []
    assert [str(w) for w in world.api.writes[mark:] if str(w).startswith("patch pod/")] == []


@PODS
@pytest.mark.scenario("S302", "S304")
async def test_the_last_one_wakes_the_vm(world: World, pod: str) -> None:
    await asleep(world, pod)
    await second(world, pod)
    ends(world, "second")
    await rest(world)
    assert gone(world, "second")
    assert (phase(world, pod), world.memory(f"vk-ns-{pod}")) == ("Hibernated", None)
    ends(world, pod)
    await rest(world)
    assert gone(world, pod)
    assert (world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == (["work"], None)


@pytest.mark.scenario("S302")
async def test_one_that_takes_a_wake_over_drops_the_tag_behind_it(world: World) -> None:
    """The older one goes in the moment in which the VM is awake and its tag still there."""
    await solo_held(world)
    wants(world, "Wake", "solo")
    await world.run()
    world.agent.run()
    assert (phase(world, "solo"), world.memory(SOLO)) == ("Waking", ["work"])
    ends(world, "solo")
    hibernation(world, "second", pod="solo", desire="Wake")
    await rest(world)
    assert gone(world, "solo")
    assert (phase(world, "second"), world.tag(SOLO)) == ("Active", None)


@pytest.mark.scenario("S303", "S304")
async def test_nothing_is_left_to_one_that_does_not_know_its_vm_yet(world: World) -> None:
    """It could be deleted before it does, and would leave a VM asleep that nobody wakes."""
    await solo_held(world)
    hibernation(world, "second", pod="solo")
    ends(world, "solo")
    refuse(world, "patchstatus hibernation/second", UnavailableError("down"))
    await world.run()
    assert not gone(world, "solo")
    assert world.tag(SOLO) is not None
    ends(world, "second")
    heal(world)
    await rest(world)
    assert (gone(world, "solo"), gone(world, "second")) == (True, True)
    assert (world.memory(SOLO), world.tag(SOLO)) == (["work"], None)


@pytest.mark.scenario("S302")
async def test_an_inert_one_takes_nothing_over(world: World) -> None:
    """It was ``Active`` before the other came, in the same second; so the other one ends what it began."""
    await solo_held(world)
    hibernation(world, "inert", pod="solo", desire="Wake", phase="Active")
    ends(world, "solo")
    await rest(world)
    assert gone(world, "solo")
    assert (world.memory(SOLO), world.tag(SOLO)) == (["work"], None)


@pytest.mark.scenario("S302")
@pytest.mark.parametrize("other", ["Pending", "Active"])
async def test_without_a_pod_the_last_one_collects_the_tag(world: World, other: str) -> None:
    await solo_held(world)
    world.delete_pod("solo")
    hibernation(world, "second", pod="solo", desire="Wake", phase=other)
    ends(world, "solo")
    await world.run()
    assert gone(world, "solo")
    assert world.tag(SOLO) is not None
    says(world, {"vmName": SOLO}, "second")
    ends(world, "second")
    await world.run()
    assert gone(world, "second")
    assert world.tag(SOLO) is None


@PODS
@pytest.mark.scenario("S304")
async def test_one_that_is_going_itself_holds_nothing(world: World, pod: str) -> None:
    await asleep(world, pod)
    await second(world, pod)
    for name in (pod, "second"):
        ends(world, name)
    await rest(world)
    assert gone(world, pod)
    assert gone(world, "second")
    assert (world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == (["work"], None)


async def test_a_younger_one_in_the_middle_of_its_own_hibernation_gives_way(world: World) -> None:
    """The older one is made by hand afterwards, under an earlier time: what counts is the age."""
    await up(world)
    world.clock.advance(60)
    hibernation(world, "demo-0")
    await world.run()
    assert phase(world) == "Hibernating"
    world.clock.advance(-30)
    hibernation(world, "older", pod="demo-0", desire="Wake")
    world.clock.advance(30)
    await rest(world)
    assert (phase(world), phase(world, "older")) == ("Pending", "Active")
    assert (world.memory(), world.tag()) == (["work"], None)


async def test_the_name_of_a_vm_that_somebody_wrote_drops_nothing(world: World) -> None:
    """Of a pod outside every set only the computed name counts (W-63); in a set, the set's own."""
    await up(world)
    victim = saved(world, "vk-ns-victim-0")
    for pod in ("solo", "demo-0"):
        hibernation(world, pod, desire="Wake", phase="Hibernated")
        says(world, {"vmName": "vk-ns-victim-0"}, pod)
    await rest(world)
    for pod in ("solo", "demo-0"):
        ends(world, pod)
    await rest(world)
    assert gone(world, "solo")
    assert gone(world)
    assert world.tag("vk-ns-victim-0") == victim


async def test_the_vm_name_of_a_pod_that_is_another_ones_is_not_dropped(world: World) -> None:
    await up(world)
    await solo(world)
    victim = saved(world, "vk-ns-victim-0")
    agent_says(world, {keys.VM_NAME: "vk-ns-victim-0", keys.VM_ID: "vm-9"}, "solo")
    world.agent.vms["vk-ns-victim-0"] = world.agent.vms.pop(SOLO)
    hibernation(world, "solo", desire="Wake", phase="Waking")
    await world.run()
    assert phase(world, "solo") == "Active"
    assert world.tag("vk-ns-victim-0") == victim
    assert told(world, "solo")[0][1] == "TagDropRefused"


@pytest.mark.scenario("S262")
async def test_an_object_that_is_deleted_before_it_was_seen_goes_at_once(world: World) -> None:
    await up(world)
    hibernation(world)
    ends(world)
    mark = world.mark
    await rest(world)
    assert gone(world)
    assert world.writes(mark) == []
    assert world.memory() == ["work"]
    assert bodies(world, mark, "patch pod/demo-0") == []
    assert VM in world.agent.vms
