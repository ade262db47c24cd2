"""The ways in which the Go operator's CocoonHibernation loses a VM, fights its set or never rests, by their number."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_devkit import checkout
from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.holders import (
    SOLO,
    ends,
    gone,
    held,
    phase,
    ready,
    solo,
    solo_held,
    told,
    wants,
)
from tests.unit.reconcile.staging import (
    VM,
    annotations_of,
    asked,
    bodies,
    hibernation,
    rest,
    roles_up,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

PODS = pytest.mark.parametrize("pod", ["demo-0", "solo"])
"""Of a set and of no set."""


def flags(world: World, pod: str = "demo-0") -> list[str | None]:
    """Every value that the operator ever gave to the flag of a pod."""
    found = [body["metadata"]["annotations"] for body in bodies(world, 0, f"patch pod/{pod}")]
    return [annotations[keys.HIBERNATE] for annotations in found if keys.HIBERNATE in annotations]


# -- loss of state -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S249", "S283")
@pytest.mark.parametrize(
    "edit", [{"network": "blue"}, {"image": "other"}, {"resources": {"limits": {"memory": "2Gi"}}}], ids=str
)
@pytest.mark.parametrize("when", ["before it sleeps", "while it sleeps"])
async def test_w03_an_edit_neither_wakes_nor_replaces_a_held_vm(world: World, edit: dict[str, Any], when: str) -> None:
    await up(world)
    hibernation(world)
    if when == "while it sleeps":
        await rest(world)
    else:
        await world.run()
    uid = world.pod()["metadata"]["uid"]  # type: ignore[index]
    mark = world.mark
    world.edit(agent=edit)
    await rest(world)
    assert phase(world) == "Hibernated"
    assert world.pod()["metadata"]["uid"] == uid  # type: ignore[index]
    assert not any(write.startswith(("delete", "create")) for write in world.writes(mark))
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]
    assert [line for line in world.agent.history if line.startswith("booted")] == [f"booted {VM}"]


@pytest.mark.scenario("S297")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_w04_a_wake_that_was_fulfilled_vetoes_no_suspend(world: World, policy: str) -> None:
    await held(world, hibernatePolicy=policy)
    wants(world, "Wake")
    await rest(world)
    assert phase(world) == "Active"
    world.edit(suspend=True)
    await rest(world)
    digest = world.tag()
    for _ in range(3):
        world.clock.advance(600)
        await rest(world)
    assert (world.phase, world.tag(), phase(world)) == ("Suspended", digest, "Active")
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]


async def test_w04_a_wake_that_was_fulfilled_vetoes_no_migration(world: World) -> None:
    await held(world)
    wants(world, "Wake")
    await rest(world)
    world.edit(nodeName="node-b")
    await rest(world)
    pod = world.pod()
    assert pod is not None
    assert (world.phase, pod["spec"]["nodeName"]) == ("Running", "node-b")
    assert (world.memory(), world.tag(), phase(world)) == (["work"], None, "Active")


@PODS
@pytest.mark.scenario("S306")
async def test_w07_deleting_it_does_not_delete_the_only_copy(world: World, pod: str) -> None:
    """At no moment is there neither a tag nor a VM."""
    await (held(world) if pod == "demo-0" else solo_held(world))
    ends(world, pod)
    for _ in range(30):
        await world.run()
        assert world.tag(f"vk-ns-{pod}") or f"vk-ns-{pod}" in world.agent.vms
        world.agent.step("ns", pod)
        world.clock.advance(1)
    assert gone(world, pod)
    assert (world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == (["work"], None)


# -- fights ------------------------------------------------------------------------------------------------------------


async def test_w28_the_wake_of_a_released_seat_hands_over_to_it(world: World) -> None:
    """It says who holds the VM, and waits without a timer."""
    await held(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await rest(world)
    assert (world.pod(), world.phase, phase(world)) == (None, "Suspended", "Hibernated")
    world.edit(suspend=False)
    await rest(world)
    assert (world.pod(), world.phase, phase(world)) == (None, "Pending", "Hibernated")
    found = world.condition("Ready")
    assert found["message"] == f"{VM} is held asleep by CocoonHibernation demo-0"
    assert (world.condition("Progressing")["status"], world.outcome.requeue_after) == ("False", None)
    mark, requests = world.mark, len(world.registry.requests)
    for _ in range(5):
        world.clock.advance(300)
        await world.run()
    assert (world.writes(mark), asked(world, requests)) == ([], [])
    wants(world, "Wake")
    await rest(world)
    assert (world.phase, phase(world), world.memory(), world.tag()) == ("Running", "Active", ["work"], None)


@pytest.mark.parametrize("behind", [0, 1, 2, 3])
async def test_w43_a_view_that_is_behind_costs_nothing(world: World, behind: int) -> None:
    """What a pass acts on is read when it runs; what it cannot know yet makes its write fail, not the VM."""
    await held(world)
    wants(world, "Wake")
    await world.run()
    world.agent.run()
    wants(world, "Hibernate")
    for _ in range(3):
        world.observe(behind)
        await world.reconcile()
    await rest(world)
    assert phase(world) == "Hibernated"
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]


async def test_w44_flag_and_tag_have_one_owner(world: World) -> None:
    """Set and CocoonHibernation ask for the same and take turns: one flag, one save, one clear, one drop."""
    await up(world)
    hibernation(world)
    await rest(world)
    world.edit(suspend=True)
    await rest(world)
    ends(world)
    await rest(world)
    assert (world.phase, gone(world)) == ("Suspended", True)
    assert flags(world) == ["true"]
    world.edit(suspend=False)
    await rest(world)
    assert flags(world) == ["true", None]
    assert [line.split(" ")[0] for line in world.agent.history] == ["booted", "slept", "restored"]
    assert [request for request in world.registry.requests if request.startswith("DELETE")] == [
        f"DELETE {VM}:hibernate"
    ]
    assert (world.memory(), world.tag()) == (["work"], None)


@PODS
@pytest.mark.scenario("S307")
async def test_w45_opposing_ones_do_not_flip_the_flag(world: World, pod: str) -> None:
    await (up(world) if pod == "demo-0" else solo(world))
    hibernation(world, pod)
    world.clock.advance(1)
    hibernation(world, "opposing", pod=pod, desire="Wake")
    for _ in range(5):
        await rest(world)
        world.clock.advance(600)
    assert flags(world, pod) == ["true"]
    assert (phase(world, pod), phase(world, "opposing")) == ("Hibernated", "Pending")
    assert ready(world, "opposing")[2].startswith(f"CocoonHibernation {pod}, which is older, decides")


# -- rest --------------------------------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S282", "S298")
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
async def test_w19_a_failure_can_be_seen(world: World, pod: str, desire: str) -> None:
    """It rests as long again as the limit was, whatever happens around it."""
    await ((held(world) if pod == "demo-0" else solo_held(world)) if desire == "Wake" else starting(world, pod))
    limit = 300 if desire == "Wake" else 180
    if desire == "Wake":
        wants(world, "Wake", pod)
    await world.run()
    world.clock.advance(limit)
    await world.run()
    mark = world.mark
    for _ in range(10):
        world.clock.advance((limit - 10) / 10)
        await world.run()
        assert phase(world, pod) == "Failed"
    assert world.writes(mark) == []
    world.clock.advance(10)
    await world.run()
    assert phase(world, pod) == ("Waking" if desire == "Wake" else "Hibernating")


async def starting(world: World, pod: str) -> None:
    await (up(world) if pod == "demo-0" else solo(world))
    hibernation(world, pod)


@PODS
@pytest.mark.scenario("S315")
async def test_w18_each_completion_is_told_once(world: World, pod: str) -> None:
    await (held(world) if pod == "demo-0" else solo_held(world))
    wants(world, "Wake", pod)
    await rest(world)
    for _ in range(3):
        world.start_operator()
        await rest(world)
    assert [reason for _, reason, _ in told(world, pod)] == ["Hibernated", "WokenActive"]


@PODS
@pytest.mark.scenario("S296")
async def test_w20_an_active_one_deletes_no_tag_again(world: World, pod: str) -> None:
    await (held(world) if pod == "demo-0" else solo_held(world))
    wants(world, "Wake", pod)
    await rest(world)
    requests = len(world.registry.requests)
    for _ in range(10):
        world.clock.advance(60)
        await world.run()
    assert asked(world, requests) == []


@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
async def test_w49_a_set_that_is_held_says_so_and_does_not_poll(world: World, pod: str) -> None:
    await roles_up(world, 2)
    hibernation(world, pod)
    await rest(world)
    finding, progress = world.condition("Ready"), world.condition("Progressing")
    assert (finding["status"], finding["reason"]) == ("False", "HeldByHibernation")
    assert finding["message"] == f"vk-ns-{pod} is held asleep by CocoonHibernation {pod}"
    assert (progress["status"], progress["reason"]) == ("False", "Stable")
    assert (world.outcome.requeue_after, world.outcome.error) == (None, None)
    assert world.memory(vm(2)) is not None


async def test_w53_a_set_that_is_born_suspended_boots_its_main_agent_once_to_save_it(world: World) -> None:
    """The contract says so: ``retain`` promises a sleeping pod. ``release`` promises none, so nothing is booted."""
    world.apply(suspend=True)
    await rest(world)
    assert world.phase == "Suspended"
    assert world.agent.history == [f"booted {VM}", f"slept {VM} []"]
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, world.tag()) == ("Running", None)
    assert world.agent.history[2] == f"restored {VM} []"
    page = " ".join((checkout.ROOT / "docs" / "edits.md").read_text("utf-8").split())
    assert "A set that is created suspended with `retain` boots its main agent once, only to save it" in page


@pytest.mark.scenario("S146")
async def test_w53_with_release_nothing_is_booted(world: World) -> None:
    world.apply(suspend=True, hibernatePolicy="release")
    await rest(world)
    assert (world.phase, world.agent.history, world.pod()) == ("Suspended", [], None)


@pytest.mark.parametrize("first", ["it", "the set"])
async def test_w53_nothing_is_booted_to_be_put_to_sleep_for_a_hibernation(world: World, first: str) -> None:
    """Its VM is made when it asks for that, or goes."""
    if first == "it":
        hibernation(world)
        world.apply()
    else:
        world.apply()
        hibernation(world)
    await rest(world)
    assert (world.pod(), world.agent.history, phase(world)) == (None, [], "Pending")
    assert world.condition("Ready")["reason"] == "HeldByHibernation"
    wants(world, "Wake")
    await rest(world)
    assert (world.phase, phase(world)) == ("Running", "Active")


async def test_w56_a_change_of_it_is_acted_upon_in_the_same_pass(world: World) -> None:
    """No event of the pod, no poll: both kinds run under one key."""
    await held(world)
    wants(world, "Wake")
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world)
    await rest(world)
    wants(world, "Hibernate")
    await world.run()
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    await rest(world)
    ends(world)
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world)


@pytest.mark.scenario("S017")
@pytest.mark.parametrize("spec", [None, {}, {"desire": "Hibernate"}, {"podRef": {}, "desire": "Wake"}], ids=str)
async def test_w61_an_old_object_without_a_spec_fails_once(world: World, spec: dict[str, Any] | None) -> None:
    """Such as the Go operator looped over: the CRD of today refuses it, but it may be stored."""
    await up(world)
    metadata = {"name": "old", "namespace": "ns"}
    body = {"apiVersion": keys.API_VERSION, "kind": keys.KIND_HIBERNATION, "metadata": metadata}
    world.api.create("hibernation", {**body, **({} if spec is None else {"spec": spec})}, by="user")
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert ready(world, "old") == ("False", "Failed", "spec.podRef.name is required")
    mark = world.mark
    for _ in range(3):
        world.clock.advance(600)
        await rest(world)
    assert world.writes(mark) == []
    assert told(world, "old") == []
    ends(world, "old")
    await rest(world)
    assert gone(world, "old")
    assert world.memory() == ["work"]
    assert SOLO not in world.agent.vms
