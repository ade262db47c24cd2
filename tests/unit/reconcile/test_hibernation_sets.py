"""What a set does to a VM that a CocoonHibernation holds, and to the others meanwhile (contract 4.14): no memory is ever lost."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.holders import ends, gone, held, phase, ready, wants
from tests.unit.reconcile.moves import node
from tests.unit.reconcile.staging import (
    RUN_BOX,
    STATIC_BOX,
    VM,
    agent_says,
    annotations_of,
    asleep,
    hibernation,
    look,
    milestones,
    orphan,
    pods,
    rest,
    restless,
    roles_up,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

POLICIES = pytest.mark.parametrize("policy", ["retain", "release"])


def saved_memory(world: World, vm_name: str = VM) -> Any:
    """What the tag of a VM holds."""
    content = world.registry.content(vm_name, "hibernate")
    return content and content["memory"]


async def let_go(world: World, how: str, pod: str = "demo-0") -> None:
    """The holder gives its VM up, by an edit or by its deletion."""
    if how == "wake":
        wants(world, "Wake", pod)
    else:
        ends(world, pod)
    await rest(world)


LET_GO = pytest.mark.parametrize("how", ["wake", "delete"])


# -- suspend and resume ------------------------------------------------------------------------------------------------


@POLICIES
@LET_GO
async def test_a_set_that_is_resumed_leaves_the_held_vm_asleep(world: World, policy: str, how: str) -> None:
    await held(world, hibernatePolicy=policy)
    world.edit(suspend=True)
    await rest(world)
    assert (world.phase, phase(world)) == ("Suspended", "Hibernated")
    assert (world.pod() is None) == (policy == "release")
    world.edit(suspend=False)
    await rest(world)
    assert (phase(world), world.memory()) == ("Hibernated", None)
    assert world.condition("Ready")["reason"] == "HeldByHibernation"
    await let_go(world, how)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@POLICIES
@pytest.mark.parametrize("steps", range(8))
async def test_a_suspend_takes_a_save_over_that_has_begun(world: World, policy: str, steps: int) -> None:
    await up(world, hibernatePolicy=policy)
    hibernation(world)
    await world.run()
    for _ in range(steps):
        world.agent.step("ns", "demo-0")
    world.edit(suspend=True)
    await rest(world)
    assert (world.phase, phase(world)) == ("Suspended", "Hibernated")
    assert saved_memory(world) == ["work"]
    world.edit(suspend=False)
    ends(world)
    await rest(world)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


@POLICIES
@pytest.mark.parametrize("steps", range(8))
async def test_a_suspend_in_the_middle_of_a_wake_wins(world: World, policy: str, steps: int) -> None:
    """The set wakes the VM when it is resumed; until then the wish waits, and says for what."""
    await held(world, hibernatePolicy=policy)
    wants(world, "Wake")
    await world.run()
    for _ in range(steps):
        world.agent.step("ns", "demo-0")
    world.edit(suspend=True)
    await rest(world)
    assert world.phase == "Suspended"
    assert saved_memory(world) == ["work"]
    if phase(world) != "Active":
        assert ready(world)[1:] == ("Pending", "CocoonSet ns/demo is suspended; the VM wakes with it")
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, phase(world), world.memory(), world.tag()) == ("Running", "Active", ["work"], None)


@POLICIES
@LET_GO
async def test_what_is_let_go_while_its_set_is_suspended_wakes_with_it(world: World, policy: str, how: str) -> None:
    await held(world, hibernatePolicy=policy)
    world.edit(suspend=True)
    await rest(world)
    digest = world.tag()
    await let_go(world, how)
    assert (world.phase, world.tag(), world.memory()) == ("Suspended", digest, None)
    assert gone(world) if how == "delete" else phase(world) == "Pending"
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


@POLICIES
@LET_GO
async def test_one_that_is_made_while_its_set_is_suspended_keeps_the_vm_asleep(
    world: World, policy: str, how: str
) -> None:
    digest = await asleep(world, hibernatePolicy=policy)
    await rest(world)
    hibernation(world)
    await rest(world)
    assert (phase(world), world.tag()) == ("Hibernated", digest)
    world.edit(suspend=False)
    await rest(world)
    assert (phase(world), world.tag(), world.memory()) == ("Hibernated", digest, None)
    await let_go(world, how)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


async def test_the_others_wake_with_their_set_and_the_held_one_does_not(world: World) -> None:
    await roles_up(world, 2, [RUN_BOX])
    hibernation(world, "demo-1")
    await rest(world)
    world.edit(suspend=True)
    await rest(world)
    world.edit(suspend=False)
    await rest(world)
    assert sorted(world.agent.vms) == [vm(0), vm(2), vm("db")]
    assert phase(world, "demo-1") == "Hibernated"
    assert world.condition("SnapshotCurrent")["message"] == f"{vm(1)}: kept asleep by a CocoonHibernation"
    ends(world, "demo-1")
    await rest(world)
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]
    assert [repo for repo, tag in world.registry.tags if tag == "hibernate"] == []
    assert world.phase == "Running"


# -- edits -------------------------------------------------------------------------------------------------------------


@LET_GO
async def test_an_edit_meets_the_vm_at_its_wake_and_its_memory_stays(world: World, how: str) -> None:
    await held(world)
    world.edit(agent={"network": "blue"})
    await rest(world)
    assert annotations_of(world).get(keys.NETWORK) is None
    await let_go(world, how)
    assert annotations_of(world)[keys.NETWORK] == "blue"
    assert annotations_of(world)[keys.RESTORE] == "true"
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
@pytest.mark.parametrize("together", [False, True])
@LET_GO
async def test_another_image_meets_it_at_its_wake_and_the_old_memory_is_put_aside(
    world: World, pod: str, how: str, together: bool
) -> None:
    """In one moment or one after the other; what the CocoonHibernation said is no record of it any more."""
    name = f"vk-ns-{pod}"
    await roles_up(world, 1)
    hibernation(world, pod)
    await rest(world)
    digest = str(world.tag(name))
    world.edit(agent={"image": "other"})
    if not together:
        await rest(world)
        assert (world.tag(name), phase(world, pod)) == (digest, "Hibernated")
    await let_go(world, how, pod)
    assert world.phase == "Running"
    assert f"work of {name}" not in (world.memory(name) or [])
    assert (world.tag(name), world.tag(name, orphan(digest))) == (None, digest)
    assert {machine.image for machine in world.agent.vms.values()} == {"other"}
    assert "SnapshotMovedAside" in world.recorder.reasons()
    if how == "wake":
        assert phase(world, pod) == "Active"


@pytest.mark.parametrize("call", range(1, 16))
async def test_no_crash_in_the_middle_of_that_makes_its_word_a_record(call: int) -> None:
    world = JudgedWorld()
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    await rest(world)
    world.edit(agent={"image": "other"})
    wants(world, "Wake", "demo-1")
    world.calls, world.fault = 0, (call, "crash after")
    for _ in range(8):
        world.observe()
        await world.one_run()
        world.agent.run()
    world.fault = None
    await rest(world)
    assert (world.phase, phase(world, "demo-1")) == ("Running", "Active")


async def test_an_edit_of_a_held_sub_agent_is_not_one_of_the_others(world: World) -> None:
    await roles_up(world, 2)
    hibernation(world, "demo-1")
    await rest(world)
    digest = world.tag(vm(1))
    world.edit(agent={"network": "blue"})
    await rest(world)
    assert (phase(world, "demo-1"), world.tag(vm(1))) == ("Hibernated", digest)
    assert annotations_of(world, "demo-2")[keys.NETWORK] == "blue"
    ends(world, "demo-1")
    await rest(world)
    assert annotations_of(world, "demo-1")[keys.NETWORK] == "blue"
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


# -- what the spec no longer has ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pod", "edit"), [("demo-1", {"agent": {"replicas": 0}}), ("demo-db", {"toolboxes": []})])
@LET_GO
async def test_what_is_held_is_removed_when_it_is_let_go(
    world: World, pod: str, edit: dict[str, Any], how: str
) -> None:
    name = f"vk-ns-{pod}"
    await roles_up(world, 1, [RUN_BOX])
    hibernation(world, pod)
    await rest(world)
    digest = world.tag(name)
    world.edit(**edit)
    await rest(world)
    assert pod in pods(world)
    assert (phase(world, pod), world.tag(name)) == ("Hibernated", digest)
    assert world.condition("Ready")["message"] == f"{pod} is not removed: CocoonHibernation {pod} holds its VM"
    await let_go(world, how, pod)
    assert pod not in pods(world)
    assert (world.tag(name), world.phase) == (None, "Running")
    assert name not in str(world.annotation(keys.DELETE_VM_NAMES))
    if how == "wake":
        assert ready(world, pod)[2] == f"pod ns/{pod} not yet present"


async def test_what_is_asked_for_again_in_time_keeps_its_memory(world: World) -> None:
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    await rest(world)
    world.edit(agent={"replicas": 0})
    await rest(world)
    world.edit(agent={"replicas": 1})
    ends(world, "demo-1")
    await rest(world)
    assert world.phase == "Running"
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


async def test_one_that_cannot_be_removed_yet_is_not_woken_for_that(world: World) -> None:
    """The main agent sleeps, so nothing is removed; the wish says what it waits for, and does not time out."""
    await roles_up(world, 0, [RUN_BOX])
    for pod in ("demo-0", "demo-db"):
        hibernation(world, pod)
    await rest(world)
    world.edit(toolboxes=[])
    wants(world, "Wake", "demo-db")
    for _ in range(3):
        await rest(world)
        world.clock.advance(600)
    text = "CocoonSet ns/demo has no place for this VM any more; it is removed as soon as the main agent is ready"
    assert ready(world, "demo-db") == ("False", "Pending", text)
    ends(world, "demo-0")
    await rest(world)
    assert pods(world) == ["demo-0"]
    assert (world.phase, world.memory(), world.tag(vm("db"))) == ("Running", ["work of vk-ns-demo-0"], None)


# -- migration ---------------------------------------------------------------------------------------------------------


@LET_GO
async def test_a_held_main_agent_moves_when_it_is_let_go(world: World, how: str) -> None:
    digest = await held(world)
    world.edit(nodeName="node-b")
    await rest(world)
    assert (node(world), world.tag(), phase(world)) == ("node-a", digest, "Hibernated")
    await let_go(world, how)
    assert (world.phase, node(world)) == ("Running", "node-b")
    assert (world.memory(), world.tag()) == (["work"], None)
    assert [line for line in world.agent.history if line.startswith("restored")] == [f"restored {VM} ['work']"]
    assert how == "delete" or phase(world) == "Active"


async def test_a_held_sub_agent_sleeps_on_while_main_moves(world: World) -> None:
    await roles_up(world, 2)
    hibernation(world, "demo-1")
    await rest(world)
    digest = world.tag(vm(1))
    world.edit(nodeName="node-b")
    await rest(world)
    assert (node(world), node(world, "demo-1"), node(world, "demo-2")) == ("node-b", "node-a", "node-a")
    assert (phase(world, "demo-1"), world.tag(vm(1)), world.tag()) == ("Hibernated", digest, None)
    assert ("Migrated", "main agent runs on node node-b") in milestones(world)
    ends(world, "demo-1")
    await rest(world)
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]
    assert (world.phase, world.tag(vm(1))) == ("Running", None)


@pytest.mark.parametrize("steps", range(0, 24, 2))
@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
async def test_one_that_is_made_in_the_middle_of_a_move(world: World, pod: str, steps: int) -> None:
    """Main stays where the move has brought it, and sleeps; a sub-agent sleeps whatever main does."""
    await roles_up(world, 1)
    world.edit(nodeName="node-b")
    await restless(world, steps)
    hibernation(world, pod)
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert saved_memory(world, f"vk-ns-{pod}")[-1] == f"work of vk-ns-{pod}"
    if pod == "demo-1":
        assert (node(world), world.tag()) == ("node-b", None)
    ends(world, pod)
    await rest(world)
    assert (world.phase, node(world)) == ("Running", "node-b")
    for slot in (0, 1):
        assert (world.memory(vm(slot)) or [""])[-1] == f"work of {vm(slot)}"
        assert world.tag(vm(slot)) is None


# -- deletion, and sets that come later --------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["first the set", "first it"])
async def test_a_set_that_is_deleted_takes_everything_along(world: World, finish: str) -> None:
    await held(world)
    if finish == "first the set":
        world.delete_set()
        await rest(world)
        assert phase(world) == "Pending"
        ends(world)
    else:
        ends(world)
        world.delete_set()
    await rest(world)
    assert world.api.get("set", "ns", "demo") is None
    assert gone(world)
    assert pods(world) == []
    assert world.registry.tags == {}


async def test_a_set_of_the_same_name_that_comes_later_is_held_by_it(world: World) -> None:
    """Nothing of the earlier one comes back, and nothing is booted before the wish changes."""
    await held(world)
    world.delete_set()
    await rest(world)
    world.apply()
    await rest(world)
    assert (phase(world), pods(world)) == ("Pending", [])
    wants(world, "Wake")
    await rest(world)
    assert (world.phase, phase(world), world.memory()) == ("Running", "Active", [])


async def test_a_set_of_the_same_name_in_another_namespace_is_another_set(world: World) -> None:
    await up(world)
    world.apply(namespace="elsewhere")
    await world.settle(namespace="elsewhere")
    hibernation(world)
    await rest(world)
    await world.settle(namespace="elsewhere")
    assert phase(world) == "Hibernated"
    assert sorted(world.agent.vms) == ["vk-elsewhere-demo-0"]
    other = world.api.get("pod", "elsewhere", "demo-0")
    assert other is not None
    assert keys.HIBERNATE not in other["metadata"]["annotations"]


# -- pods of another kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
async def test_a_static_toolbox_has_nothing_to_save(world: World, desire: str) -> None:
    await roles_up(world, 0, [STATIC_BOX])
    hibernation(world, "demo-vnc", desire=desire)
    requests = len(world.registry.requests)
    await rest(world)
    message = "pod ns/demo-vnc is static: there is no VM that could be saved"
    assert ready(world, "demo-vnc") == ("False", "Pending", message)
    assert keys.HIBERNATE not in annotations_of(world, "demo-vnc")
    assert world.registry.requests[requests:] == []
    ends(world, "demo-vnc")
    await rest(world)
    assert gone(world, "demo-vnc")
    assert world.phase == "Running"


async def test_a_dead_letter_is_neither_flagged_nor_taken_for_a_save(world: World) -> None:
    await roles_up(world, 2)
    agent_says(world, {keys.DEAD_LETTER: "true", keys.LIFECYCLE_STATE: "failed"}, "demo-1")
    hibernation(world, "demo-1")
    await rest(world)
    assert keys.HIBERNATE not in annotations_of(world, "demo-1")
    assert phase(world, "demo-1") == "Hibernating"
    world.clock.advance(180)
    await rest(world)
    assert phase(world, "demo-1") == "Failed"
    ends(world, "demo-1")
    await rest(world)
    assert gone(world, "demo-1")
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"]


@pytest.mark.parametrize("pod", ["demo-1", "demo-db"])
@LET_GO
async def test_w62_a_save_that_fails_costs_no_vm(world: World, pod: str, how: str) -> None:
    name = f"vk-ns-{pod}"
    await roles_up(world, 1, [RUN_BOX])
    world.agent.fail.add("push")
    hibernation(world, pod)
    await world.run()
    world.agent.run()
    for _ in range(8):
        world.clock.advance(60)
        await world.run()
        world.agent.run()
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "failed"
    assert (world.memory(name) or [""])[-1] == f"work of {name}"
    await let_go(world, how, pod)
    if how == "wake":
        # The save that is under way has its limit first.
        assert phase(world, pod) == "Hibernating"
        world.clock.advance(180)
        await rest(world)
        assert phase(world, pod) == "Active"
    assert (world.phase, world.tag(name)) == ("Running", None)
    assert (world.memory(name) or [""])[-1] == f"work of {name}"


@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
@LET_GO
async def test_a_registry_that_is_down_for_the_whole_transition(world: World, pod: str, how: str) -> None:
    """Nothing is decided from silence; when it speaks again, everything ends as it was asked for."""
    name = f"vk-ns-{pod}"
    await roles_up(world, 1)
    hibernation(world, pod)
    await rest(world)
    world.registry.down = "connection refused"
    await let_go(world, how, pod)
    for _ in range(10):
        world.clock.advance(60)
        await world.run()
        world.agent.run()
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"
    assert world.tag(name) is not None
    world.registry.down = ""
    await rest(world)
    assert (world.phase, world.tag(name)) == ("Running", None)
    assert (world.memory(name) or [""])[-1] == f"work of {name}"
    assert gone(world, pod) if how == "delete" else phase(world, pod) == "Active"


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_boot_that_failed_is_nothing_that_could_be_saved(world: World, suspend: bool) -> None:
    """Such as a fork whose source is asleep: no attempt after attempt, but ``Pending`` until there is a VM."""
    await up(world)
    world.agent.fail.add("boot")
    world.edit(agent={"replicas": 1})
    await world.run()
    for _ in range(3):
        world.agent.step("ns", "demo-1")
    hibernation(world, "demo-1")
    await world.run()
    world.agent.run()
    if suspend:
        world.edit(suspend=True)
    await rest(world)
    message = "pod ns/demo-1 has no VM, and nothing is saved of one: boot failed"
    assert ready(world, "demo-1") == ("False", "Pending", message)
    events = len(world.recorder.events)
    for _ in range(5):
        world.clock.advance(300)
        await world.run()
    assert [event for event in world.recorder.events[events:] if event[0] == "demo-1"] == []
    world.agent.fail.clear()
    world.edit(suspend=False)
    ends(world, "demo-1")
    await rest(world)
    assert world.phase == "Running"


async def test_a_sub_agent_sleeps_however_long_the_move_of_main_takes(world: World) -> None:
    await roles_up(world, 1)
    world.agent.fail.add("push")
    world.edit(nodeName="node-b")
    await rest(world)
    assert (world.phase, annotations_of(world)[keys.LIFECYCLE_STATE]) == ("Migrating", "failed")
    hibernation(world, "demo-1")
    await world.run()
    assert annotations_of(world, "demo-1")[keys.HIBERNATE] == "true"
    world.agent.fail.clear()
    await rest(world)
    assert (world.phase, node(world), phase(world, "demo-1")) == ("Scaling", "node-b", "Hibernated")
    assert world.memory() == ["work of vk-ns-demo-0"]


@pytest.mark.parametrize("how", ["wake", "delete"])
async def test_a_sub_agent_that_is_let_go_in_the_middle_of_a_move(how: str) -> None:
    for steps in range(30):
        world = JudgedWorld()
        await roles_up(world, 1)
        hibernation(world, "demo-1")
        await rest(world)
        world.edit(nodeName="node-b")
        over = await restless(world, steps)
        await let_go(world, how, "demo-1")
        look(world)
        assert (world.phase, node(world)) == ("Running", "node-b"), steps
        assert [repo for repo, tag in world.registry.tags if tag == "hibernate"] == [], steps
        assert (world.memory(vm(1)) or [""])[-1] == f"work of {vm(1)}", steps
        assert world.memory() == [f"work of {VM}"], steps
        assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot", steps
        if over:
            return
    raise AssertionError("the move does not end")


# -- a suspend meets every phase ---------------------------------------------------------------------------------------


async def in_phase(world: World, wanted: str, desire: str) -> None:
    """A CocoonHibernation that has come to a phase by itself, and asks for this now."""
    if wanted in ("Waking", "Active") or (wanted, desire) == ("Failed", "Wake"):
        hibernation(world)
        await rest(world)
        wants(world, "Wake")
        await world.run()
        if wanted == "Active":
            await rest(world)
        elif wanted == "Failed":
            world.clock.advance(300)
            await world.run()
    elif wanted == "Pending":
        hibernation(world, "older", pod="demo-0")
        world.clock.advance(1)
        hibernation(world, desire=desire)
        await rest(world)
    elif wanted:
        hibernation(world)
        await world.run()
        if wanted == "Hibernated":
            await rest(world)
        elif wanted == "Failed":
            world.clock.advance(180)
            await world.run()
    else:
        hibernation(world, desire=desire)
        return
    if phase(world) != wanted:
        raise AssertionError(f"{phase(world)} instead of {wanted}")
    wants(world, desire)


@POLICIES
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
@pytest.mark.parametrize("wanted", ["", "Pending", "Hibernating", "Hibernated", "Waking", "Active", "Failed"])
async def test_a_suspend_and_a_resume_in_every_phase(world: World, policy: str, wanted: str, desire: str) -> None:
    """Sleep wins while the set is suspended; after it, what was asked for is done."""
    await up(world, hibernatePolicy=policy)
    await in_phase(world, wanted, desire)
    world.edit(suspend=True)
    await rest(world)
    assert (world.phase, saved_memory(world), world.agent.vms) == ("Suspended", ["work"], {})
    assert (world.pod() is None) == (policy == "release")
    if wanted != "Pending":
        asleep_now = "Hibernated" if desire == "Hibernate" else "Pending"
        assert phase(world) in (asleep_now, "Active"), ready(world)
    world.edit(suspend=False)
    if wanted == "Pending":
        ends(world, "older")
    for _ in range(3):
        await rest(world)
        world.clock.advance(300)
    if desire == "Hibernate":
        assert (phase(world), saved_memory(world), world.memory()) == ("Hibernated", ["work"], None)
        ends(world)
        await rest(world)
    else:
        assert phase(world) == "Active"
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)
    assert world.annotation(keys.HINT_NODE) is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
async def test_a_registry_that_is_down_for_a_whole_hibernation(world: World, pod: str) -> None:
    """Its agent cannot push, so the VM lives on; the failure is told once an attempt, and ends with the outage."""
    name = f"vk-ns-{pod}"
    await roles_up(world, 1)
    world.registry.down = "connection refused"
    hibernation(world, pod)
    for _ in range(8):
        await world.run()
        world.agent.run()
        world.clock.advance(60)
    assert (world.memory(name) or [""])[-1] == f"work of {name}"
    assert phase(world, pod) in ("Hibernating", "Failed")
    world.registry.down = ""
    world.agent.run()
    await rest(world)
    world.clock.advance(10)
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert saved_memory(world, name)[-1] == f"work of {name}"


@pytest.mark.parametrize("owed", [False, True])
async def test_a_vm_that_is_restored_as_the_wake_of_the_others_ends_is_not_forgotten(world: World, owed: bool) -> None:
    """Its pod went in the middle of its save, so nothing else tells of its tag than the status of that pass."""
    await roles_up(world, 1, [RUN_BOX])
    hibernation(world, "demo-db")
    world.edit(suspend=True)
    await world.run()
    for pod, steps in (("demo-db", 9), ("demo-0", 9), ("demo-1", 2)):
        for _ in range(steps):
            world.agent.step("ns", pod)
    await world.run()
    assert world.tag(vm(1)) is not None
    world.edit(suspend=False)
    world.delete_pod("demo-1")
    if owed:
        world.registry.refuse_drops = "405 UNSUPPORTED"
        await rest(world)
        assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
        world.registry.refuse_drops = ""
    await rest(world)
    assert (world.memory(vm(1)) or [""])[-1] == f"work of {vm(1)}"
    assert [repo for repo, tag in world.registry.tags if tag == "hibernate"] == [vm("db")]
    assert world.condition("SnapshotCurrent")["message"] == f"{vm('db')}: kept asleep by a CocoonHibernation"
