"""A change of operators while a single VM is held: the other one's word is old, its tags are stale (contract 1.7, W-17)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.gaps import SUB, current, judged_rounds, long_rest, quiet, rests_awake, sleeping, tags
from tests.unit.reconcile.holders import ends, held, phase, wants
from tests.unit.reconcile.staging import (
    VM,
    annotations_of,
    asleep,
    hibernation,
    rest,
    roles_up,
    saved,
)

pytestmark = pytest.mark.asyncio

FORKED = ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


def go_says(world: World, **status: Any) -> None:
    """The Go operator writes the set's status; what it does not know stays as it is."""
    world.api.patch("set", "ns", "demo", {"status": status}, by="go", subresource="status")


def forgotten(world: World) -> None:
    """What is left of a status when the Go operator wrote it: no condition about tags, no digest, no list of names."""
    status = world.set()["status"]
    agents = [{key: value for key, value in agent.items() if key != "snapshotDigest"} for agent in status["agents"]]
    conditions = [found for found in status["conditions"] if found["type"] != "SnapshotCurrent"]
    go_says(world, conditions=conditions, agents=agents)
    annotations = {"metadata": {"annotations": {keys.DELETE_VM_NAMES: None}}}
    world.api.patch("set", "ns", "demo", annotations, by="go")


def suspended_and_resumed_by_go(world: World) -> None:
    """The Go operator takes the set through a suspend and a resume, and leaves a tag behind the main agent, which works on."""
    world.edit(suspend=True)
    world.edit(suspend=False)
    generation = world.set()["metadata"]["generation"]
    go_says(world, phase="Running", observedGeneration=generation)
    for pod in ("demo-0", "demo-1"):
        stamp = {"metadata": {"annotations": {keys.GENERATION: str(generation)}}}
        world.api.patch("pod", "ns", pod, stamp, by="go")
    world.agent.run()
    left_behind(world, VM)


def left_behind(world: World, vm_name: str) -> None:
    """A stale tag behind a living VM, which has done more since."""
    saved(world, vm_name, memory=["old"])
    world.agent.work(vm_name, "newer")


def waking_by_go(world: World) -> None:
    """A CocoonHibernation that the Go operator has brought to ``Waking``: the VM is up, its tag not yet dropped."""
    hibernation(world, "demo-1", desire="Wake", phase="Waking")
    world.api.patch("hibernation", "ns", "demo-1", {"metadata": {"finalizers": [keys.HIBERNATION_FINALIZER]}}, by="go")
    status = {"status": {"vmName": SUB, "observedGeneration": 1}}
    world.api.patch("hibernation", "ns", "demo-1", status, by="go", subresource="status")
    left_behind(world, SUB)


async def only_the_sub_agent_sleeps_and_wakes(world: World) -> None:
    """Its tag is the only one; let go it wakes with its work, and the main agent never lost what it did under the Go operator."""
    assert current(world) == ("True", "KeptAsleep")
    assert tags(world) == sleeping(SUB)
    ends(world, "demo-1")
    await rests_awake(world)
    assert world.memory(VM) == ["work of vk-ns-demo-0", "newer"]
    assert world.memory(SUB) == FORKED


# -- the sweep ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("obstacle", ["another set's turn", "registry away"])
async def test_w17_who_is_kept_asleep_is_not_written_before_the_set_was_swept(world: World, obstacle: str) -> None:
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    await rest(world)
    forgotten(world)
    left_behind(world, VM)
    world.start_operator()
    if obstacle == "registry away":
        world.registry.down = "refused"
        await world.run()
        world.registry.down = ""
    else:
        world.reconciler._context.pace.take(world.clock.now())
        await world.run()
    assert world.condition("SnapshotCurrent") == {}
    await long_rest(world)
    await only_the_sub_agent_sleeps_and_wakes(world)


# -- a word that is older than what is around it -----------------------------------------------------------------------


async def test_w17_kept_asleep_counts_for_nothing_once_the_go_operator_was_there(world: World) -> None:
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    await rest(world)
    suspended_and_resumed_by_go(world)
    world.start_operator()
    await long_rest(world)
    await only_the_sub_agent_sleeps_and_wakes(world)


async def test_w17_a_drop_that_is_owed_hides_no_tag_that_the_go_operator_left(world: World) -> None:
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    await rest(world)
    world.registry.refuse_drops = "405"
    ends(world, "demo-1")
    await rest(world)
    assert current(world) == ("False", "TagDropPending")
    suspended_and_resumed_by_go(world)
    world.registry.refuse_drops = ""
    world.start_operator()
    await rests_awake(world)
    assert world.memory(VM) == ["work of vk-ns-demo-0", "newer"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_w17_a_wake_that_the_go_operator_began_ends_without_its_tag(world: World, deleted: bool) -> None:
    await roles_up(world, 1)
    assert current(world) == ("True", "NoSnapshot")
    waking_by_go(world)
    if deleted:
        ends(world, "demo-1")
    world.start_operator()
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]
    assert [obj["status"]["phase"] for obj in world.api.list("hibernation")] == ([] if deleted else ["Active"])


async def test_w17_a_move_aside_that_nobody_asks_for_any_more_lets_a_living_vm_be() -> None:
    world = JudgedWorld()
    await asleep(world)
    world.edit(agent={"image": "other"})
    world.registry.refuse_copies = "503"
    world.edit(suspend=False)
    await rest(world)
    assert current(world) == ("False", "MovingAside")
    world.edit(agent={"image": "base"})
    generation = world.set()["metadata"]["generation"]
    changes = {keys.HIBERNATE: None, keys.GENERATION: str(generation)}
    world.api.patch("pod", "ns", "demo-0", {"metadata": {"annotations": changes}}, by="go")
    world.agent.run()
    world.agent.work(VM, "days of work")
    go_says(world, phase="Running", observedGeneration=generation)
    world.registry.refuse_copies = ""
    assert world.judge is not None
    world.judge.look()
    world.start_operator()
    await judged_rounds(world, 6)
    await rests_awake(world)
    assert world.memory() == ["work", "days of work"]
    assert keys.HIBERNATE not in annotations_of(world)


# -- a word without a digest -------------------------------------------------------------------------------------------


async def test_w17_a_word_of_the_go_operator_is_not_taken_back_for_a_tag_that_is_missing(world: World) -> None:
    """A wrong OCI_REGISTRY looks like this; a boot without memory would be final."""
    await held(world)
    forgotten(world)
    go_says(world, agents=None, phase="Pending")
    world.delete_pod()
    world.start_operator()
    kept = dict(world.registry.tags)
    world.registry.tags.clear()
    await long_rest(world)
    assert phase(world) == "Hibernated"
    wants(world, "Wake")
    await long_rest(world)
    assert world.memory() is None
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    await quiet(world)
    world.registry.tags.update(kept)
    await rests_awake(world)
    assert world.memory() == ["work"]
    assert phase(world) == "Active"
