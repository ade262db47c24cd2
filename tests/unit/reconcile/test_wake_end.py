"""The end of a wake: the tag goes behind a proven VM, then hint and digests; what is owed is remembered (design 4.3 rule 2)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Refused, WriteAnswer
from cocoon_operator.api.errors import UnavailableError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    DROP,
    HEAD,
    HINT_NODE,
    POOL,
    VM,
    agent_shows,
    annotations_of,
    asked,
    asleep,
    bodies,
    built_main,
    counters,
    events,
    heal,
    made_by_go,
    refuse,
    released,
    rest,
    roles_asleep,
    running_status,
    saved,
    set_object,
    stand,
    vm,
    waking,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.scenario("S172", "S173", "S179")
async def test_a_live_vm_ends_the_wake(world: World) -> None:
    await waking(world)
    world.agent.run()
    mark, before = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert asked(world, before) == [DROP]
    assert world.writes(mark) == ["patch set/demo", "patch/status set/demo"]
    assert bodies(world, mark, "patch set/demo") == [
        {"metadata": {"annotations": {keys.HINT_NODE: None, keys.SNAPSHOT_DIGESTS: None}}}
    ]
    assert world.tag() is None
    assert world.phase == "Running"
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert counters(world) == {HINT_NODE: 1}
    assert (outcome.requeue_after, outcome.error) == (None, None)
    mark = world.mark
    await world.run()
    assert world.writes(mark) == []


@pytest.mark.scenario("S173")
async def test_a_live_vm_that_is_not_ready_ends_the_wake_as_pending(world: World) -> None:
    await waking(world)
    world.agent.run()
    agent_shows(world, running_status(ready=False))
    await world.run()
    assert world.tag() is None
    assert world.phase == "Pending"


@pytest.mark.scenario("S175")
async def test_a_phase_that_was_overwritten_does_not_lose_the_wake(world: World) -> None:
    await waking(world)
    world.agent.run()
    world.api.patch("set", "ns", "demo", {"status": {"phase": "Pending"}}, by="go", subresource="status")
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [DROP]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S175")
async def test_a_wake_of_the_go_operator_is_ended(world: World) -> None:
    """Swap-safe: phase, hint and a restore-marked pod are all that the Go operator leaves."""
    made_by_go(
        world, {"phase": "Waking"}, {keys.HINT_NODE: "node-a", keys.DELETE_VM_NAMES: VM}, hibernatePolicy="release"
    )
    stand(world, built_main(set_object(), restore=True), annotations=AWAKE, status=running_status())
    saved(world)
    await world.run()
    assert asked(world) == [DROP]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.scenario("S176")
async def test_a_phase_that_was_overwritten_is_repainted_while_the_vm_is_not_live(world: World) -> None:
    digest = await waking(world)
    world.api.patch("set", "ns", "demo", {"status": {"phase": "Pending"}}, by="go", subresource="status")
    before = len(world.registry.requests)
    await world.run()
    assert world.phase == "Waking"
    assert world.tag() == digest
    assert asked(world, before) == []


@pytest.mark.scenario("S177")
async def test_after_its_wake_a_restored_main_is_like_any_other(world: World) -> None:
    await waking(world)
    await rest(world)
    assert annotations_of(world)[keys.RESTORE] == "true"
    world.start_operator()
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert (world.writes(mark), asked(world, before)) == ([], [])


@pytest.mark.scenario("S178")
async def test_a_sleeping_main_of_a_retain_set_is_not_made_again(world: World) -> None:
    await asleep(world)
    world.edit(suspend=False)
    mark, before = world.mark, len(world.registry.requests)
    await rest(world)
    assert [w for w in world.writes(mark) if w.startswith(("create", "delete"))] == []
    assert asked(world, before) == [HEAD, DROP]
    assert counters(world) == {}
    assert world.memory() == ["work"]


# -- counted once ------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S179")
async def test_a_stale_waking_status_counts_nothing_again(world: World) -> None:
    await waking(world)
    await rest(world)
    stale = {"phase": "Waking", "conditions": None}
    world.api.patch("set", "ns", "demo", {"status": stale}, by="go", subresource="status")
    await world.run()
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S180")
async def test_landing_elsewhere_counts_as_pool(world: World) -> None:
    await released(world)
    world.agent.nodes = ["node-b"]
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert counters(world) == {POOL: 1}
    assert world.memory() == ["work"]


@pytest.mark.scenario("S182")
async def test_a_crash_between_drop_and_hint_is_gone_on_from(world: World) -> None:
    await waking(world)
    world.agent.run()
    refuse(world, "patch demo", UnavailableError("timeout", status=504))
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [DROP]
    assert (world.tag(), world.annotation(keys.HINT_NODE)) == (None, "node-a")
    world.start_operator()
    heal(world)
    world.measures.counts.clear()
    await rest(world)
    assert asked(world, before) == [DROP, DROP]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}
    assert events(world) == []


@pytest.mark.scenario("S182")
async def test_a_hint_that_cannot_be_removed_is_scored_once(world: World) -> None:
    """The hint is the once-only guard of the placement counter (4.7): a removal that failed did not end the wake."""
    await waking(world)
    world.agent.run()
    refuse(world, "patch demo", UnavailableError("timeout", status=504), times=2)
    await rest(world)
    await rest(world)
    assert world.phase == "Running"
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
    assert counters(world) == {HINT_NODE: 1}


# -- a drop that is owed -----------------------------------------------------------------------------------------------


@pytest.mark.scenario("S181")
@pytest.mark.parametrize("fault", ["refuse_drops", "down"])
async def test_a_failed_drop_is_owed_and_does_not_hold_back_the_wake(world: World, fault: str) -> None:
    """Design 4: fail-closed in the Go operator, which hangs in ``Waking`` (W-14)."""
    digest = await waking(world)
    world.agent.run()
    setattr(world.registry, fault, "405 UNSUPPORTED")
    before = len(world.registry.requests)
    outcome = await world.run()
    assert asked(world, before) == [DROP]
    assert outcome.error is not None
    assert world.phase == "Running"
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("True", "AllAgentsReady")
    owed = world.condition("SnapshotCurrent")
    assert (owed["status"], owed["reason"], owed["message"]) == ("False", "TagDropPending", f"{VM}: 405 UNSUPPORTED")
    assert world.annotation(keys.HINT_NODE) is None
    assert counters(world) == {HINT_NODE: 1}
    assert [reason for _, reason, _ in events(world)] == ["TagDropPending"]
    world.start_operator()
    await world.run()
    assert world.tag() == digest
    assert [reason for _, reason, _ in events(world)] == ["TagDropPending"]
    setattr(world.registry, fault, "")
    await rest(world)
    assert world.tag() is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S181")
async def test_while_a_drop_is_owed_no_flag_is_set(world: World) -> None:
    """Design 4.3 rule 2: a late effect of the unanswered drop could hit the new save."""
    await waking(world)
    world.agent.run()
    world.registry.down = "no answer"
    await world.run()
    assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    world.edit(suspend=True)
    for _ in range(3):
        outcome = await world.run()
        world.agent.run()
        assert outcome.error is not None
        assert keys.HIBERNATE not in annotations_of(world)
        assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    world.start_operator()
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world)
    world.registry.down = ""
    await rest(world)
    assert world.phase == "Suspended"
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]


async def test_while_a_drop_is_owed_another_restore_is_written_down_first(world: World) -> None:
    """Design 4.3 rule 2: the status names whose tags can exist, and only those are dropped."""
    await roles_asleep(world, 1)
    refused, drop = Refused("405 UNSUPPORTED"), world.registry.drop

    async def refuse_mains(name: str, tag: str) -> WriteAnswer:
        return refused if name == VM else await drop(name, tag)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.registry, "drop", refuse_mains)
        world.edit(suspend=False)
        await rest(world)
        assert world.condition("SnapshotCurrent")["message"] == f"{VM}: 405 UNSUPPORTED"
        world.delete_pod("demo-1")
        saved(world, vm(1))
        mark = world.mark
        await rest(world)
        assert world.writes(mark)[0] == "patch/status set/demo"
        assert world.memory(vm(1)) == ["saved"]
        assert set(world.registry.tags) == {(VM, "hibernate")}
    await rest(world)
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.registry.tags == {}


@pytest.mark.scenario("S181")
async def test_while_a_drop_is_owed_an_edit_waits(world: World) -> None:
    """Design 4.3 rule 2: a new image must not come up with old memory."""
    await waking(world)
    world.agent.run()
    world.registry.refuse_drops = "405 UNSUPPORTED"
    await world.run()
    world.edit(agent={"network": "blue"})
    mark = world.mark
    for _ in range(3):
        await world.run()
        world.agent.run()
    assert "delete pod/demo-0" not in world.writes(mark)
    world.registry.refuse_drops = ""
    await rest(world)
    assert world.phase == "Running"
    assert annotations_of(world)[keys.NETWORK] == "blue"
    assert world.memory() == []
