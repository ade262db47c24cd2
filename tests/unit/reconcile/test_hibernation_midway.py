"""A CocoonHibernation that is edited or deleted in the middle of a transition, and an operator that ends there (contract 5.3)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.agent import ModelVM
from tests.model.world import World
from tests.unit.reconcile.holders import SOLO, ends, gone, held, phase, solo, solo_held, wants
from tests.unit.reconcile.moves import step
from tests.unit.reconcile.staging import (
    AWAKE,
    VM,
    annotations_of,
    built_main,
    heal,
    hibernation,
    made_by_go,
    rest,
    roles_up,
    running_status,
    set_object,
    stand,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio


# -- a desire that is reversed -----------------------------------------------------------------------------------------


@pytest.mark.scenario("S291")
async def test_a_wake_that_was_asked_for_meanwhile_begins_as_soon_as_the_vm_sleeps(world: World) -> None:
    """What the operator writes is no event: the pass that ends the one transition asks for the pass that begins the other."""
    await up(world)
    hibernation(world)
    await world.run()
    step(world, 1)
    wants(world, "Wake")
    await world.settle()
    assert (phase(world), world.phase, world.memory(), world.tag()) == ("Active", "Running", ["work"], None)


@pytest.mark.scenario("S281")
async def test_a_sleep_that_was_asked_for_meanwhile_begins_as_soon_as_the_vm_is_awake(world: World) -> None:
    await held(world)
    wants(world, "Wake")
    await world.run()
    step(world, 1)
    wants(world, "Hibernate")
    await world.run()
    assert phase(world) == "Waking"
    await world.settle()
    assert (phase(world), world.memory()) == ("Hibernated", None)
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]


@pytest.mark.scenario("S281", "S291")
@pytest.mark.parametrize(
    ("first", "then", "end"), [("Hibernate", "Wake", "Active"), ("Wake", "Hibernate", "Hibernated")]
)
async def test_likewise_on_a_pod_of_no_set(world: World, first: str, then: str, end: str) -> None:
    await (solo(world) if first == "Hibernate" else solo_held(world))
    if first == "Hibernate":
        hibernation(world, "solo")
    else:
        wants(world, "Wake", "solo")
    await world.run()
    world.agent.step("ns", "solo")
    wants(world, then, "solo")
    await world.settle()
    assert phase(world, "solo") == end
    assert world.memory(SOLO) == (["work"] if end == "Active" else None)
    assert (world.tag(SOLO) is None) is (end == "Active")


# -- an operator that ends in the middle -------------------------------------------------------------------------------


class Ends(BaseException):
    """The operator's process ends here."""


async def run_until(world: World, call: str) -> None:
    """One run that ends with the process right after a call was answered; the next process begins anew."""

    def end(moment: str, happening: str) -> None:
        if (moment, happening) == ("after", call):
            raise Ends

    world.hook = end
    with pytest.raises(Ends):
        await world.run()
    heal(world)
    world.start_operator()


async def test_a_flag_on_a_pod_of_no_set_is_never_without_a_status_that_tells_of_it(world: World) -> None:
    """Its deletion has to know that there is a VM to wake, whenever it comes."""
    await solo(world)
    hibernation(world, "solo")
    await run_until(world, "patch solo")
    assert annotations_of(world, "solo")[keys.HIBERNATE] == "true"
    assert phase(world, "solo") == "Hibernating"
    world.agent.run()
    ends(world, "solo")
    await rest(world)
    assert gone(world, "solo")
    assert (world.memory(SOLO), world.tag(SOLO)) == (["work"], None)


@pytest.mark.parametrize("call", ["patch solo", "patchstatus hibernation/solo"])
async def test_no_tag_is_left_behind_a_vm_that_was_active_before(world: World, call: str) -> None:
    """``Active`` says that there is no tag: the next hibernation is in the status before its flag is on the pod."""
    await solo(world)
    hibernation(world, "solo", desire="Wake")
    await rest(world)
    wants(world, "Hibernate", "solo")
    await run_until(world, call)
    world.agent.run()
    ends(world, "solo")
    await rest(world)
    assert gone(world, "solo")
    assert (world.memory(SOLO), world.tag(SOLO)) == (["work"], None)


async def test_a_younger_one_that_wakes_the_vm_drops_the_tag_whenever_the_operator_ends(world: World) -> None:
    """It was ``Pending`` so far, and a VM that it finds awake is taken for one that never slept only while it is that."""
    await solo_held(world)
    world.clock.advance(1)
    hibernation(world, "second", pod="solo", desire="Wake")
    await rest(world)
    assert phase(world, "second") == "Pending"
    ends(world, "solo")
    await run_until(world, "patch solo")
    world.agent.run()
    assert world.memory(SOLO) == ["work"]
    await rest(world)
    assert gone(world, "solo")
    assert (phase(world, "second"), world.tag(SOLO)) == ("Active", None)


@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
async def test_a_pod_of_no_set_that_goes_under_a_pass_is_looked_for_again(world: World, desire: str) -> None:
    await (solo(world) if desire == "Hibernate" else solo_held(world))
    if desire == "Hibernate":
        hibernation(world, "solo")
    else:
        wants(world, "Wake", "solo")

    def vanish(moment: str, happening: str) -> None:
        if (moment, happening) == ("before", "patch solo") and world.pod("solo"):
            world.delete_pod("solo")

    world.hook = vanish
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (5.0, None)
    heal(world)
    await world.run()
    assert phase(world, "solo") == ("Pending" if desire == "Hibernate" else "Hibernated")


# -- a save that its agent left half done ------------------------------------------------------------------------------


async def stalled(world: World, pod: str = "demo-0") -> None:
    """The agent dies between removing the VM and saying so; two minutes later it is asked to wake what it saved."""
    world.agent.fail.add("report")
    hibernation(world, pod)
    await rest(world)
    world.agent.fail.clear()
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "hibernating"
    for seconds in (10, 120):
        world.clock.advance(seconds)
        await world.run()
    assert keys.HIBERNATE not in annotations_of(world, pod)
    assert world.condition("HibernationStalled")["reason"] == "WakingToSaveAgain"


@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
async def test_a_save_that_is_begun_again_has_its_tag_on_record_meanwhile(world: World, pod: str) -> None:
    """The flag is gone, and with it the only trace that the agent can read; the status names the tag instead."""
    name = f"vk-ns-{pod}"
    await roles_up(world, 1)
    await stalled(world, pod)
    snapshot = world.condition("SnapshotCurrent")
    assert (snapshot["status"], snapshot["reason"]) == ("False", "KeptAsleep")
    assert snapshot["message"].startswith(f"{name}: ")
    wants(world, "Wake", pod)
    await rest(world)
    await later(world)
    assert f"work of {name}" in (world.memory(name) or [])
    assert (phase(world, pod), world.phase, world.tag(name)) == ("Active", "Running", None)
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


async def test_likewise_while_the_drop_of_another_ones_tag_is_owed(world: World) -> None:
    await roles_up(world, 2)
    hibernation(world, "demo-2")
    await rest(world)
    world.registry.refuse_drops = "405 UNSUPPORTED"
    wants(world, "Wake", "demo-2")
    await rest(world)
    assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    await stalled(world, "demo-1")
    snapshot = world.condition("SnapshotCurrent")
    assert snapshot["reason"] == "TagDropPending"
    assert snapshot["message"].startswith(f"{vm(1)}, {vm(2)}: ")
    ends(world, "demo-1")
    world.registry.refuse_drops = ""
    await rest(world)
    assert f"work of {vm(1)}" in (world.memory(vm(1)) or [])
    assert [repo for repo, tag in world.registry.tags if tag == "hibernate"] == []
    assert (world.phase, world.condition("SnapshotCurrent")["reason"]) == ("Running", "NoSnapshot")


async def test_likewise_on_a_set_of_the_go_operator(world: World) -> None:
    """There is no condition that could name the tag, and the sweep of such a set must not say that there is none."""
    made_by_go(world, {"phase": "Running"})
    stand(world, built_main(set_object()), annotations=AWAKE, status=running_status())
    world.agent.vms[VM] = ModelVM("vm-9", ["work"], "base")
    await stalled(world)
    ends(world)
    await rest(world)
    world.clock.advance(120)
    await rest(world)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


async def later(world: World) -> None:
    """The rest of a failure is over."""
    for _ in range(3):
        world.clock.advance(600)
        await rest(world)
