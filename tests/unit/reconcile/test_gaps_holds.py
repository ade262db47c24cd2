"""A single VM that is held, between a suspend, a migration, a removal and a deletion: no memory is lost, no tag is left."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Answer, Refused, Unknown, WriteAnswer
from cocoon_operator.api.errors import ConflictError
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.gaps import (
    SUB,
    current,
    digest_on_record,
    judged_rounds,
    long_rest,
    quiet,
    rests_awake,
    sleeping,
    tags,
)
from tests.unit.reconcile.holders import ends, held, phase, wants
from tests.unit.reconcile.moves import node, step
from tests.unit.reconcile.staging import (
    RUN_BOX,
    VM,
    agent_says,
    annotations_of,
    asleep,
    heal,
    hibernation,
    look,
    orphan,
    pods,
    refuse,
    released,
    rest,
    roles_asleep,
    roles_up,
    saved,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

FORKED = ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]
LET_GO = pytest.mark.parametrize("how", ["wake", "delete"])


class Ended(BaseException):
    """The operator's process ends here."""


def let_go(world: World, how: str, pod: str = "demo-1") -> None:
    """The holder gives its VM up, by an edit or by its deletion."""
    if how == "wake":
        wants(world, "Wake", pod)
    else:
        ends(world, pod)


async def sub_held(world: World, replicas: int = 1) -> None:
    """A set that runs, but for its first sub-agent, which is held asleep."""
    await roles_up(world, replicas)
    hibernation(world, "demo-1")
    await rest(world)
    assert phase(world, "demo-1") == "Hibernated"


async def sub_saving(world: World) -> None:
    """The same in the middle of the save: the agent has begun."""
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    await world.run()
    await world.run()
    step(world, 1, "demo-1")
    assert annotations_of(world, "demo-1")[keys.LIFECYCLE_STATE] == "hibernating"


async def main_owed(world: World) -> None:
    """A registry that drops no tag, and has left the main agent's behind it since a wake."""
    world.registry.refuse_drops = "405"
    hibernation(world, "demo-0")
    await rest(world)
    ends(world, "demo-0")
    await rest(world)
    assert current(world) == ("False", "TagDropPending")


# -- a migration of the main agent -------------------------------------------------------------------------------------


async def test_a_migration_drops_the_tag_of_a_failed_save_that_nobody_asks_for_any_more(world: World) -> None:
    await sub_saving(world)
    world.edit(nodeName="node-b")
    await world.run()
    assert world.phase == "Migrating"
    saved(world, SUB, memory=FORKED)
    failed = {
        keys.LIFECYCLE_STATE: "failed",
        keys.LIFECYCLE_MESSAGE: "hibernate: remove vm: timeout",
        keys.LIFECYCLE_GENERATION: annotations_of(world, "demo-1")[keys.GENERATION],
    }
    agent_says(world, failed, "demo-1")
    ends(world, "demo-1")
    await long_rest(world)
    world.agent.work(SUB, "newer")
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]
    assert (world.memory(VM), node(world)) == (["work of vk-ns-demo-0"], "node-b")


async def test_a_migration_drops_the_tag_of_a_flag_that_was_cleared_before_a_crash(world: World) -> None:
    await sub_saving(world)
    world.edit(nodeName="node-b")
    await world.run()
    ends(world, "demo-1")
    await world.run()
    step(world, 10, "demo-1")

    def hook(moment: str, call: str) -> None:
        if (moment, call) == ("after", "patch demo-1"):
            raise Ended

    world.hook = hook
    with pytest.raises(Ended):
        await world.run()
    heal(world)
    assert keys.HIBERNATE not in annotations_of(world, "demo-1")
    world.start_operator()
    await long_rest(world)
    world.agent.work(SUB, "newer")
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]


@LET_GO
async def test_a_vm_that_is_let_go_during_a_migration_ends_awake_without_its_tag(world: World, how: str) -> None:
    await sub_held(world)
    world.edit(nodeName="node-b")
    await world.run()
    assert world.phase == "Migrating"
    let_go(world, how)
    await world.run()
    step(world, 20, "demo-1")
    await rests_awake(world)
    assert world.memory(SUB) == FORKED
    assert (world.memory(VM), node(world)) == (["work of vk-ns-demo-0"], "node-b")


async def test_a_migration_whose_flag_was_refused_gives_way_to_who_holds_the_main_agent(world: World) -> None:
    await up(world)
    world.edit(nodeName="node-b")
    refuse(world, "patch demo-0", ConflictError("modified", status=409), times=5)
    await world.run()
    heal(world)
    assert keys.HIBERNATE not in annotations_of(world)
    hibernation(world)
    await world.settle()
    assert phase(world) == "Hibernated"
    assert current(world) == ("True", "KeptAsleep")
    await quiet(world)
    ends(world)
    await rests_awake(world)
    assert world.memory() == ["work"]


# -- a drop that is owed to another ------------------------------------------------------------------------------------


async def test_the_record_of_a_vm_that_comes_up_outlives_a_drop_that_is_owed_to_another(world: World) -> None:
    """The tag that it comes up from is lost meanwhile: its digest is what brings it back (rule 4)."""
    await roles_up(world, 1)
    await main_owed(world)
    hibernation(world, "demo-1")
    await rest(world)
    digest = world.tag(SUB)
    ends(world, "demo-1")
    world.registry.down = "refused"
    await world.run()
    world.clock.advance(30)
    await world.run()
    assert digest_on_record(world, 1) == digest
    world.registry.down = ""
    del world.registry.tags[(SUB, keys.TAG_HIBERNATE)]
    await long_rest(world)
    assert world.memory(SUB) == FORKED
    world.delete_pod("demo-1")
    await long_rest(world)
    assert world.memory(SUB) == FORKED
    world.registry.refuse_drops = ""
    await rests_awake(world)


@pytest.mark.parametrize("owed", [False, True])
async def test_a_tag_that_is_lost_under_a_restore_is_put_back_and_no_vm_boots_without_memory(
    world: World, owed: bool
) -> None:
    await roles_up(world, 1)
    if owed:
        await main_owed(world)
    hibernation(world, "demo-1")
    await rest(world)
    world.agent.fail.add("wake")
    ends(world, "demo-1")
    await world.run()
    await world.run()
    step(world, 3, "demo-1")
    del world.registry.tags[(SUB, keys.TAG_HIBERNATE)]
    world.agent.fail.clear()
    await long_rest(world)
    assert world.memory(SUB) == FORKED
    assert "SnapshotTagRestored" in world.recorder.reasons()
    world.registry.refuse_drops = ""
    await rests_awake(world)


@LET_GO
async def test_a_vm_that_is_waking_stays_named_when_a_removed_toolbox_owes_a_drop(world: World, how: str) -> None:
    await roles_up(world, 1, [RUN_BOX])
    hibernation(world, "demo-1")
    await rest(world)
    world.agent.fail.add("wake")
    let_go(world, how)
    await world.run()
    world.registry.refuse_drops = "405"
    world.edit(toolboxes=[])
    await rest(world)
    message = world.condition("SnapshotCurrent")["message"]
    assert (current(world), SUB in message, vm("db") in message) == (("False", "TagDropPending"), True, True)
    world.registry.refuse_drops = ""
    world.agent.fail.clear()
    await long_rest(world)
    world.agent.work(SUB, "newer")
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]


# -- suspended again before a wake was over ----------------------------------------------------------------------------


async def test_a_vm_that_is_waking_stays_named_through_a_suspend_that_waits_for_a_drop(world: World) -> None:
    await roles_up(world, 2)
    await main_owed(world)
    hibernation(world, "demo-2")
    await rest(world)
    world.delete_pod("demo-2")
    await rest(world)
    ends(world, "demo-2")
    await world.run()
    world.registry.refuse_drops = ""
    drop = world.registry.drop

    async def unanswered(_vm_name: str, _tag: str) -> WriteAnswer:
        return Unknown("no answer")

    world.registry.drop = unanswered  # type: ignore[method-assign]
    world.edit(suspend=True)
    await world.run()
    message = world.condition("SnapshotCurrent")["message"]
    assert (current(world), vm(0) in message, vm(2) in message) == (("False", "TagDropPending"), True, True)
    world.edit(suspend=False)
    await world.run()
    world.registry.drop = drop  # type: ignore[method-assign]
    await long_rest(world)
    world.agent.work(vm(2), "newer")
    await rests_awake(world)
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2", "newer"]


async def test_no_vm_is_put_to_sleep_while_the_drop_of_its_last_wake_is_not_answered() -> None:
    """The DELETE can still arrive, and would take the new save along (rule 2)."""
    world = JudgedWorld()
    await roles_asleep(world, 1)
    look(world)
    world.edit(suspend=False)
    await world.run()
    step(world, 15, "demo-1")
    drop = world.registry.drop

    async def on_its_way(_vm_name: str, _tag: str) -> WriteAnswer:
        return Unknown("no answer")

    world.registry.drop = on_its_way  # type: ignore[method-assign]
    await world.run()
    world.agent.work(SUB, "newer")
    look(world)
    world.edit(suspend=True)
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world, "demo-1")
    assert current(world) == ("False", "TagDropPending")
    world.registry.tags.pop((SUB, keys.TAG_HIBERNATE))
    world.registry.drop = drop  # type: ignore[method-assign]
    await judged_rounds(world, 12)
    assert (world.phase, current(world)) == ("Suspended", ("True", "Saved"))
    assert tags(world) == sleeping(VM, SUB)
    world.edit(suspend=False)
    await judged_rounds(world, 12)
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]


async def test_no_vm_is_held_while_the_drop_of_its_last_wake_is_not_answered() -> None:
    """The same with a CocoonHibernation, and an operator that ended before it could say that the drop is owed."""
    world = JudgedWorld()
    await sub_held(world)
    look(world)
    ends(world, "demo-1")
    await world.run()
    step(world, 15, "demo-1")
    drop = world.registry.drop

    async def ended(_vm_name: str, _tag: str) -> WriteAnswer:
        raise Ended

    async def on_its_way(_vm_name: str, _tag: str) -> WriteAnswer:
        return Unknown("no answer")

    world.registry.drop = ended  # type: ignore[method-assign]
    with pytest.raises(Ended):
        await world.run()
    world.agent.work(SUB, "newer")
    look(world)
    world.start_operator()
    world.registry.drop = on_its_way  # type: ignore[method-assign]
    hibernation(world, "again", pod="demo-1")
    await judged_rounds(world, 3)
    assert keys.HIBERNATE not in annotations_of(world, "demo-1")
    world.registry.tags.pop((SUB, keys.TAG_HIBERNATE))
    world.registry.drop = drop  # type: ignore[method-assign]
    world.clock.advance(30)
    await judged_rounds(world, 8)
    assert (phase(world, "again"), current(world)) == ("Hibernated", ("True", "KeptAsleep"))
    ends(world, "again")
    await judged_rounds(world, 8)
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]


@pytest.mark.parametrize("refused", [False, True])
async def test_the_digest_of_an_earlier_save_is_not_put_over_a_newer_one(refused: bool) -> None:
    """Suspended again before the wake was over; then the registry does not know the new tag when it is first asked."""
    world = JudgedWorld()
    await roles_asleep(world, 1)
    look(world)
    world.edit(suspend=False)
    await world.run()
    step(world, 15, "demo-1")
    world.agent.work(SUB, "newer")
    look(world)
    world.registry.refuse_drops = "405" if refused else ""
    world.edit(suspend=True)
    await world.run()
    step(world, 15, "demo-1")
    look(world)
    newest = world.tag(SUB)
    probe = world.registry.probe
    asked = [0]

    async def lagging(name: str, reference: str) -> Answer:
        asked[0] += (name, reference) == (SUB, keys.TAG_HIBERNATE)
        return Absent() if name == SUB and asked[0] == 1 else await probe(name, reference)

    world.registry.probe = lagging  # type: ignore[method-assign]
    await judged_rounds(world, 12)
    assert asked[0] > 1
    assert "SnapshotMissing" in world.recorder.reasons()
    assert "SnapshotTagRestored" not in world.recorder.reasons()
    assert (world.phase, current(world), world.tag(SUB)) == ("Suspended", ("True", "Saved"), newest)
    world.registry.refuse_drops = ""
    world.edit(suspend=False)
    await judged_rounds(world, 12)
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]


async def test_the_digest_of_an_earlier_save_is_gone_once_its_vm_is_put_to_sleep_again(world: World) -> None:
    """The registry refuses drops, then loses the new tag: a resume waits for that one, and starts from no older memory."""
    await roles_asleep(world, 1)
    world.edit(suspend=False)
    await world.run()
    step(world, 15, "demo-1")
    world.agent.work(SUB, "newer")
    world.registry.refuse_drops = "405"
    world.edit(suspend=True)
    await world.run()
    assert digest_on_record(world, 1) is None
    step(world, 15, "demo-1")
    newest = world.registry.tags.pop((SUB, keys.TAG_HIBERNATE))
    await rest(world)
    world.edit(suspend=False)
    await long_rest(world)
    assert world.memory(SUB) is None
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    assert "SnapshotTagRestored" not in world.recorder.reasons()
    world.registry.refuse_drops = ""
    world.registry.tags[SUB, keys.TAG_HIBERNATE] = newest
    await rests_awake(world)
    assert world.memory(SUB) == [*FORKED, "newer"]


# -- what a CocoonHibernation says -------------------------------------------------------------------------------------


async def test_hibernated_is_stored_after_the_digest_while_another_one_still_saves(world: World) -> None:
    await roles_up(world, 2)
    world.agent.fail.add("push")
    hibernation(world, "demo-1")
    hibernation(world, "demo-2")
    for _ in range(2):
        await world.settle()
        world.clock.advance(30)
    world.agent.fail.clear()
    stored: list[bool] = []

    def hook(moment: str, call: str) -> None:
        if (moment, call) == ("after", "patchstatus hibernation/demo-1") and phase(world, "demo-1") == "Hibernated":
            stored.append(digest_on_record(world, 1) == world.tag(SUB))

    world.hook = hook
    for _ in range(30):
        step(world, 1, "demo-1")
        await world.run()
        world.clock.advance(0.2)
    heal(world)
    assert stored == [True]
    assert phase(world, "demo-2") == "Hibernating"
    world.start_operator()
    world.delete_pod("demo-1")
    del world.registry.tags[(SUB, keys.TAG_HIBERNATE)]
    ends(world, "demo-2")
    await long_rest(world)
    ends(world, "demo-1")
    await rests_awake(world)
    assert world.memory(SUB) == FORKED


async def test_a_vm_that_was_given_up_is_not_called_hibernated_any_more(world: World) -> None:
    digest = await held(world)
    world.annotate({keys.START_FRESH: VM})
    await long_rest(world)
    assert tags(world) == [f"{VM}:{orphan(digest)}"]
    assert phase(world) == "Pending"
    assert current(world) == ("True", "NoSnapshot")
    world.clock.advance(4000)
    await quiet(world)
    assert phase(world) == "Pending"


async def test_a_wake_whose_vm_has_no_place_any_more_does_not_go_on_for_ever(world: World) -> None:
    await sub_held(world)
    world.delete_pod("demo-1")
    world.edit(agent={"replicas": 0})
    wants(world, "Wake", "demo-1")
    await rests_awake(world)
    assert phase(world, "demo-1") == "Pending"
    assert pods(world) == ["demo-0"]


@pytest.mark.parametrize("reversed_desire", [False, True])
async def test_what_is_asked_to_sleep_survives_a_scale_down(world: World, reversed_desire: bool) -> None:
    """Also while the wake before is still under way."""
    await sub_held(world)
    memory = list(FORKED)
    if reversed_desire:
        wants(world, "Wake", "demo-1")
        await world.run()
        step(world, 1, "demo-1")
        wants(world, "Hibernate", "demo-1")
        await world.run()
        step(world, 10, "demo-1")
        world.agent.work(SUB, "newer")
        memory.append("newer")
    world.edit(agent={"replicas": 0})
    await long_rest(world)
    assert (phase(world, "demo-1"), current(world)) == ("Hibernated", ("True", "KeptAsleep"))
    assert tags(world) == sleeping(SUB)
    await quiet(world)
    world.edit(agent={"replicas": 1})
    await long_rest(world)
    ends(world, "demo-1")
    await rests_awake(world)
    assert world.memory(SUB) == memory


async def test_a_stalled_save_does_not_clear_the_flag_of_another_vm(world: World) -> None:
    await roles_up(world, 2)
    world.agent.fail.add("report")
    hibernation(world, "demo-1")
    await world.settle()
    world.clock.advance(15)
    await world.settle()
    world.clock.advance(130)
    world.agent.fail.clear()
    await world.run()
    assert world.condition("HibernationStalled")["reason"] == "WakingToSaveAgain"
    hibernation(world, "demo-2")
    await world.run()
    while vm(2) in world.agent.vms:
        step(world, 1, "demo-2")
    assert annotations_of(world, "demo-2")[keys.LIFECYCLE_STATE] == "hibernating"
    await world.run()
    assert annotations_of(world, "demo-2")[keys.HIBERNATE] == "true"
    ends(world, "demo-2")
    await long_rest(world)
    world.agent.work(vm(2), "newer")
    await quiet(world)
    assert (phase(world, "demo-1"), current(world)) == ("Hibernated", ("True", "KeptAsleep"))
    assert tags(world) == sleeping(SUB)
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2", "newer"]


# -- deletion, and a spec that is put back -----------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["long before", "just before"])
async def test_a_deletion_puts_no_tag_back_that_it_collected(world: World, made: str) -> None:
    await released(world)
    hibernation(world)
    if made == "long before":
        await rest(world)
        world.clock.advance(3700)
    world.delete_set()
    await rest(world)
    assert world.api.get("set", "ns", "demo") is None
    assert tags(world) == []
    assert "SnapshotTagRestored" not in world.recorder.reasons()


async def test_a_deletion_that_waits_for_a_drop_puts_no_tag_back_meanwhile(world: World) -> None:
    await roles_asleep(world, 1)
    hibernation(world)
    await rest(world)
    assert phase(world) == "Hibernated"
    world.clock.advance(3700)
    drop = world.registry.drop

    async def but_the_sub_agents(vm_name: str, tag: str) -> WriteAnswer:
        return Refused("405") if vm_name == SUB else await drop(vm_name, tag)

    world.registry.drop = but_the_sub_agents  # type: ignore[method-assign]
    world.delete_set()
    await rest(world)
    for _ in range(5):
        await world.run()
        world.clock.advance(30)
        assert world.set()["metadata"]["deletionTimestamp"]
        assert tags(world) == sleeping(SUB)
    assert "SnapshotTagRestored" not in world.recorder.reasons()
    world.registry.drop = drop  # type: ignore[method-assign]
    await rest(world)
    assert pods(world) == []
    assert world.api.get("set", "ns", "demo") is None
    assert tags(world) == []


async def test_an_image_that_is_put_back_ends_a_move_aside_that_the_registry_refuses(world: World) -> None:
    await asleep(world)
    world.edit(agent={"image": "other"})
    world.registry.refuse_copies = "405"
    world.edit(suspend=False)
    await long_rest(world)
    assert current(world) == ("False", "MovingAside")
    world.edit(agent={"image": "base"})
    await rests_awake(world)
    assert world.memory() == ["work"]
