"""Dead letters: left for a person, lifted by a person, and the seat that they need not keep (contract 4.10.1, W-51)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.histories import GIVEN_UP, history, rebuild_events, remember
from tests.unit.reconcile.staging import (
    RUN_BOX,
    agent_says,
    agent_shows,
    annotations_of,
    bodies,
    counters,
    events,
    heal,
    pod_fails,
    pods,
    refuse,
    rest,
    roles_up,
    running_status,
    saved,
    vm,
)


@pytest.mark.scenario("S227")
@pytest.mark.asyncio
async def test_after_four_rebuilds_the_pod_is_left_as_a_dead_letter(world: World) -> None:
    await roles_up(world)
    remember(world, s1=4)
    pod_fails(world, "demo-1")
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch pod/demo-1", "patch/status set/demo"]
    assert bodies(world, mark, "patch pod/demo-1") == [{"metadata": {"annotations": {keys.DEAD_LETTER: "true"}}}]
    exhausted = "slot 1 exhausted 4 rebuilds; pod demo-1 left in dead-letter"
    assert rebuild_events(world) == [("Warning", "SubAgentDeadLetter", exhausted)]
    assert counters(world) == {GIVEN_UP: 1}
    await rest(world)
    mark = world.mark
    for _ in range(3):
        world.clock.advance(3600)
        world.start_operator()
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes(mark) == []
    assert world.phase == "Scaling"
    assert (counters(world), len(rebuild_events(world))) == ({GIVEN_UP: 1}, 1)


def boot_fails(world: World, pod: str) -> None:
    """The agent cannot bring the VM up; the pod has not ended."""
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.VM_ID: None}, pod)
    pod_fails(world, pod, phase="Pending")


@pytest.mark.scenario("S220")
@pytest.mark.parametrize("fails", [pod_fails, boot_fails])
@pytest.mark.asyncio
async def test_a_dead_letter_is_lifted_by_an_edit(world: World, fails: Callable[[World, str], None]) -> None:
    """Budget and all, whichever step sees to it: where no VM is known there could be a tag to move aside."""
    await roles_up(world, 2)
    remember(world, s1=4, s2=2)
    fails(world, "demo-1")
    await rest(world)
    assert annotations_of(world, "demo-1")[keys.DEAD_LETTER] == "true"
    mark = world.mark
    world.clock.advance(3600)
    await rest(world)
    assert not any("pod/demo-1" in write for write in world.writes(mark))
    remember(world, s1=4, s2=2, ago=5)
    fails(world, "demo-1")  # Its agent goes on trying.
    mark = world.mark
    world.edit(agent={"image": "other"})
    await rest(world)
    writes = [write for write in world.writes(mark) if write in ("patch set/demo", "delete pod/demo-1")]
    assert writes == ["patch set/demo", "delete pod/demo-1"]
    assert set(history(world)) == {"2"}
    assert world.phase == "Running"
    assert world.agent.vms["vk-ns-demo-1"].image == "other"


# -- W-51: the seat ----------------------------------------------------------------------------------------------------

RELEASE = {keys.DEAD_LETTER_POLICY: "release"}
STOOD = (
    "slot 1 exhausted 4 rebuilds; its pod was deleted to free the seat. It is made again for an edit, or for "
    "cocoonset.cocoonstack.io/start-fresh=vk-ns-demo-1. It failed with: guest panic"
)


async def given_up(world: World, **annotations: str) -> None:
    """A set with two sub-agents and a toolbox, whose slot 1 has just failed for the fifth time."""
    await roles_up(world, 2, [RUN_BOX])
    remember(world, s1=4)
    world.annotate({keys.DEAD_LETTER_POLICY: annotations.get("policy")})
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "guest panic"}, "demo-1")
    pod_fails(world, "demo-1")


async def released(world: World) -> None:
    await given_up(world, policy="release")
    await rest(world)
    assert pods(world) == ["demo-0", "demo-2", "demo-db"]


@pytest.mark.asyncio
async def test_w51_a_dead_letter_gives_its_seat_up_where_the_set_says_so(world: World) -> None:
    """Remembered first, then deleted; not made again, by whatever process, and the status says why."""
    await given_up(world, policy="release")
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch pod/demo-1", "patch set/demo", "delete pod/demo-1", "patch/status set/demo"]
    assert history(world)["1"]["count"] == 4
    assert history(world)["1"]["deadLetter"]["message"] == "guest panic"
    assert counters(world) == {GIVEN_UP: 1}
    assert [(kind, reason) for kind, reason, _ in events(world)] == [
        ("Warning", "SubAgentDeadLetter"),
        ("Normal", "DeadLetterReleased"),
    ]
    assert events(world)[1][2] == "pod demo-1 deleted to free its seat; it failed with: guest panic"
    await rest(world)
    ready = world.condition("Ready")
    assert (world.phase, ready["status"], ready["reason"], ready["message"]) == (
        "Scaling",
        "False",
        "SubAgentDeadLetter",
        STOOD,
    )
    mark, told = world.mark, len(world.recorder.events)
    for _ in range(3):
        world.clock.advance(3600)
        world.start_operator()
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert (world.writes(mark), len(world.recorder.events)) == ([], told)
    assert pods(world) == ["demo-0", "demo-2", "demo-db"]
    assert counters(world) == {GIVEN_UP: 1}


@pytest.mark.asyncio
async def test_w51_the_seat_is_kept_by_default_and_the_status_says_what_it_is(world: World) -> None:
    await given_up(world)
    await rest(world)
    assert "demo-1" in pods(world)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SubAgentDeadLetter")
    assert ready["message"] == "slot 1 exhausted 4 rebuilds; pod demo-1 left in dead-letter"
    assert "deadLetter" not in history(world)["1"]


@pytest.mark.asyncio
async def test_w51_a_dead_letter_of_before_gives_its_seat_up_once_it_is_asked_to(world: World) -> None:
    """A toolbox, here, with the events and the history of its own."""
    await roles_up(world, 1, [RUN_BOX])
    remember(world, keys.TOOLBOX_REBUILD_HISTORY, db=4)
    pod_fails(world, "demo-db")
    await rest(world)
    assert "demo-db" in pods(world)
    world.annotate(RELEASE)
    await rest(world)
    assert pods(world) == ["demo-0", "demo-1"]
    assert history(world, keys.TOOLBOX_REBUILD_HISTORY)["db"]["deadLetter"]["message"] == "Failed"
    assert world.condition("Ready")["reason"] == "ToolboxDeadLetter"
    assert [reason for _, reason, _ in events(world)] == ["ToolboxDeadLetter", "DeadLetterReleased"]


@pytest.mark.asyncio
async def test_w51_a_policy_that_is_none_is_told_and_keeps_the_seat(world: World) -> None:
    await given_up(world, policy="delete")
    for _ in range(3):
        await rest(world)
        world.start_operator()
    assert "demo-1" in pods(world)
    ready = world.condition("Ready")
    assert ready["reason"] == "InvalidDeadLetterPolicy"
    assert ready["message"].startswith(f"annotation {keys.DEAD_LETTER_POLICY}: 'delete' is neither retain nor release")
    assert [reason for _, reason, _ in events(world)].count("InvalidDeadLetterPolicy") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("why", ["tag", "registry", "vm", "came up"])
async def test_w51_no_vm_and_no_saved_state_goes_with_the_seat(world: World, why: str) -> None:
    """I1, I6: what may still hold somebody's work stays where it is."""
    await given_up(world, policy="release")
    match why:
        case "tag":
            saved(world, vm(1))
        case "registry":
            world.registry.down = "connection refused"
        case "vm":
            agent_shows(world, running_status(), "demo-1")
            agent_says(world, {keys.VM_ID: "vm-9"}, "demo-1")
        case _:
            world.observe()
            healed = {keys.LIFECYCLE_STATE: "ready", keys.LIFECYCLE_MESSAGE: None, keys.VM_ID: "vm-9"}
            agent_shows(world, running_status(), "demo-1")
            agent_says(world, healed, "demo-1")
    mark = world.mark
    await world.reconcile() if why == "came up" else await world.run()
    assert "delete pod/demo-1" not in world.writes(mark)
    assert "DeadLetterReleased" not in [reason for _, reason, _ in events(world)]
    assert (keys.DEAD_LETTER in annotations_of(world, "demo-1")) == (why != "came up")


@pytest.mark.asyncio
async def test_w51_a_history_that_cannot_be_written_deletes_nothing(world: World) -> None:
    await given_up(world, policy="release")
    refuse(world, "patch demo", KubeError("etcd is gone", status=500))
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert "delete pod/demo-1" not in world.writes(mark)
    heal(world)
    await rest(world)
    assert pods(world) == ["demo-0", "demo-2", "demo-db"]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost before", "lost after"])
@pytest.mark.parametrize("call", range(1, 7))
async def test_w51_a_fault_at_any_call_neither_loses_nor_repeats_the_dead_letter(kind: str, call: int) -> None:
    world = JudgedWorld()
    await given_up(world, policy="release")
    world.observe()
    world.calls, world.fault = 0, (call, kind)
    await world.one_run()
    world.fault = None
    await rest(world)
    assert pods(world) == ["demo-0", "demo-2", "demo-db"]
    assert history(world)["1"]["deadLetter"]["message"] == "guest panic"
    assert world.condition("Ready")["message"] == STOOD


@pytest.mark.asyncio
async def test_w51_an_edit_of_the_vm_lifts_it_with_a_whole_budget(world: World) -> None:
    await released(world)
    world.edit(snapshotPolicy="never")
    await rest(world)
    assert "demo-1" not in pods(world)
    world.edit(agent={"network": "blue"})
    await rest(world)
    assert world.phase == "Running"
    assert annotations_of(world, "demo-1")[keys.NETWORK] == "blue"
    assert world.annotation(keys.REBUILD_HISTORY) is None
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.asyncio
async def test_w51_start_fresh_lifts_it_and_makes_it_once_more(world: World) -> None:
    """As the deletion of a pod that was left does: the budget stays used up."""
    await released(world)
    world.annotate({keys.START_FRESH: vm(1)})
    await rest(world)
    assert world.phase == "Running"
    assert world.annotation(keys.START_FRESH) is None
    assert history(world)["1"]["count"] == 4
    assert "deadLetter" not in history(world)["1"]
    pod_fails(world, "demo-1")
    await rest(world)
    assert "demo-1" not in pods(world)
    assert counters(world) == {GIVEN_UP: 2}


@pytest.mark.asyncio
async def test_w51_scaled_away_and_asked_for_again_it_is_a_new_vm(world: World) -> None:
    await released(world)
    world.edit(agent={"replicas": 0})
    await rest(world)
    assert world.annotation(keys.REBUILD_HISTORY) is None
    world.edit(agent={"replicas": 1})
    await rest(world)
    assert world.phase == "Running"
    assert "demo-1" in pods(world)


@pytest.mark.asyncio
async def test_w51_it_stands_through_a_suspend_and_a_wake(world: World) -> None:
    await released(world)
    world.edit(suspend=True)
    await rest(world)
    assert world.phase == "Suspended"
    world.edit(suspend=False)
    await rest(world)
    assert pods(world) == ["demo-0", "demo-2", "demo-db"]
    assert world.condition("Ready")["message"] == STOOD
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"]


@pytest.mark.asyncio
async def test_w51_a_policy_that_is_taken_back_before_the_pod_went_leaves_a_plain_dead_letter(world: World) -> None:
    await given_up(world, policy="release")
    refuse(world, "delete demo-1", KubeError("etcd is gone", status=500))
    await world.run()
    assert "deadLetter" in history(world)["1"]
    heal(world)
    world.annotate({keys.DEAD_LETTER_POLICY: None})
    await rest(world)
    assert "demo-1" in pods(world)
    assert "deadLetter" not in history(world)["1"]
    world.delete_pod("demo-1")
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.asyncio
async def test_w51_a_dead_letter_whose_memory_the_go_operator_lost_is_made_once_more(world: World) -> None:
    """It reads the count, and writes no more than it knows."""
    await released(world)
    remember(world, s1=4)
    await rest(world)
    assert world.phase == "Running"
