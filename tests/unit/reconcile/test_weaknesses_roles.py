"""Transitions of a whole set: how long they take, and what is told of them, once (W-21, W-31, W-32)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    RUN_BOX,
    asleep,
    counters,
    events,
    pod_fails,
    rest,
    roles_asleep,
    roles_up,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio


def slow(world: World) -> list[tuple[str, str, str]]:
    return [event for event in events(world) if event[1].endswith("Slow")]


async def passes(world: World, times: int = 3, *, seconds: float = 60) -> None:
    """Passes without an agent, each of another process."""
    for _ in range(times):
        world.clock.advance(seconds)
        world.start_operator()
        await world.run()


# -- W-21 --------------------------------------------------------------------------------------------------------------


async def test_w21_a_slow_suspend_is_said_once_with_what_it_waits_for(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX])
    world.edit(suspend=True)
    await world.run()
    since = world.clock.text()
    world.clock.advance(179)
    await world.run()
    assert slow(world) == []
    world.clock.advance(1)
    await world.run()
    text = f"Suspending since {since}: 0 of 3 VMs saved; waiting for demo-0 (ready), demo-1 (ready), demo-db (ready)"
    assert slow(world) == [("Warning", "SuspendSlow", text)]
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "SuspendSlow", text)
    await passes(world, 4)
    assert len(slow(world)) == 1
    await rest(world)
    assert (world.phase, world.condition("Ready")["reason"]) == ("Suspended", "AgentsNotReady")
    assert len(world.registry.tags) == 3


async def test_w21_a_slow_wake_is_said_once(world: World) -> None:
    await asleep(world, hibernatePolicy="release")
    await rest(world)
    world.edit(suspend=False)
    await world.run()
    assert world.phase == "Waking"
    since = world.clock.text()
    await passes(world, 4)
    assert slow(world) == []
    await passes(world, 4)
    ((kind, reason, message),) = slow(world)
    assert (kind, reason) == ("Warning", "WakeSlow")
    assert message.startswith(f"Waking since {since}")
    await rest(world)
    assert (world.phase, world.memory()) == ("Running", ["work"])
    assert world.condition("Ready")["reason"] == "AllAgentsReady"


async def test_w21_a_slow_migration_is_said_once(world: World) -> None:
    await up(world)
    world.edit(nodeName="node-b")
    await world.run()
    since = world.clock.text()
    await passes(world, 9)
    assert slow(world) == []
    await passes(world, 5)
    ((kind, reason, message),) = slow(world)
    assert (kind, reason) == ("Warning", "MigrationSlow")
    assert message.startswith(f"Migrating since {since}: waiting for vk-ns-demo-0 to be saved")
    await rest(world)
    assert (world.phase, world.memory()) == ("Running", ["work"])


async def test_w21_the_clock_is_that_of_the_transition(world: World) -> None:
    """A set that was scaling for an hour is not slow in the first minute of its suspend."""
    await roles_up(world, 1)
    world.annotate({keys.REBUILD_HISTORY: '{"1":{"count":4,"lastDeleted":"2026-11-30T09:00:00Z"}}'})
    pod_fails(world, "demo-1")
    await rest(world)
    assert world.phase == "Scaling"
    world.clock.advance(3600)
    world.edit(suspend=True)
    await world.run()
    world.clock.advance(60)
    await world.run()
    assert world.phase == "Suspending"
    assert slow(world) == []


async def test_w21_a_flip_begins_a_new_clock(world: World) -> None:
    """Suspended again two minutes into a wake: the suspend has its own three minutes."""
    await asleep(world, hibernatePolicy="release")
    await rest(world)
    world.edit(suspend=False)
    await world.run()
    for _ in range(3):
        world.agent.step("ns", "demo-0")
    world.clock.advance(150)
    world.edit(suspend=True)
    await world.run()
    assert world.phase == "Suspending"
    world.clock.advance(60)
    await world.run()
    assert slow(world) == []


async def test_w21_an_outage_in_between_does_not_make_it_news_again(world: World) -> None:
    await roles_up(world, 1)
    world.edit(suspend=True)
    await world.run()
    for _ in range(20):
        world.agent.step("ns", "demo-0")
    await passes(world, 4)
    assert len(slow(world)) == 1
    digest = world.registry.tags.pop((vm(0), "hibernate"))
    await passes(world, 2)
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    world.registry.tags[(vm(0), "hibernate")] = digest
    await passes(world, 2)
    assert len(slow(world)) == 1


async def test_w21_an_outage_does_not_keep_a_slow_suspend_from_being_said(world: World) -> None:
    await roles_up(world, 1)
    world.edit(suspend=True)
    await world.run()
    for _ in range(20):
        world.agent.step("ns", "demo-0")
    world.registry.down = "503 Service Unavailable"
    await passes(world, 6)
    assert world.condition("Ready")["reason"] == "RegistryUnreachable"
    assert len(slow(world)) == 1


async def test_w21_nothing_is_given_up(world: World) -> None:
    await roles_asleep(world, 1, [RUN_BOX])
    world.edit(suspend=False)
    await passes(world, 30)
    assert len(world.registry.tags) == 3
    await rest(world)
    assert (world.phase, world.registry.tags) == ("Running", {})
    assert world.memory(vm(1)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-1"]


# -- W-31, W-32 --------------------------------------------------------------------------------------------------------


async def test_w31_a_dead_letter_is_counted_once(world: World) -> None:
    await roles_up(world, 2)
    world.annotate({keys.REBUILD_HISTORY: '{"1":{"count":4,"lastDeleted":"2026-11-30T09:00:00Z"}}'})
    pod_fails(world, "demo-1")
    await passes(world, 5)
    assert counters(world) == {"subagent_dead_letter_total{cocoonset=demo,namespace=ns}": 1}
    assert [reason for _, reason, _ in events(world)] == ["SubAgentDeadLetter"]


async def test_w32_a_rebuild_whose_pod_was_gone_already_is_counted_and_told_once(world: World) -> None:
    """It is rebuilt all the same: one attempt, one count, one event, one new pod."""
    await roles_up(world, 1)
    pod_fails(world, "demo-1")
    world.observe()
    world.api.remove("pod", "ns", "demo-1")
    await world.reconcile()
    await rest(world)
    assert world.phase == "Running"
    assert counters(world) == {"subagent_rebuild_total{cocoonset=demo,namespace=ns}": 1}
    assert [w.name for w in world.api.writes if (w.by, w.verb, w.name) == ("operator", "create", "demo-1")] == [
        "demo-1",
        "demo-1",
    ]


async def test_w34_a_failed_pod_that_changes_all_the_time_is_rebuilt_all_the_same(world: World) -> None:
    """The delete goes by a live read: a view that is behind neither spends the budget nor spares the pod."""
    await roles_up(world, 1)
    pod_fails(world, "demo-1")
    world.observe()
    world.api.patch("pod", "ns", "demo-1", {"metadata": {"labels": {"touched": "yes"}}}, by="user")
    outcome = await world.reconcile()
    assert outcome.error is None
    assert counters(world) == {"subagent_rebuild_total{cocoonset=demo,namespace=ns}": 1}
    await rest(world)
    assert world.phase == "Running"
    assert counters(world) == {"subagent_rebuild_total{cocoonset=demo,namespace=ns}": 1}


async def test_w34_a_vm_that_came_up_after_all_is_not_rebuilt(world: World) -> None:
    """The cache still shows the failure; the live read shows a VM that is ready (I1)."""
    await roles_up(world, 1)
    ready = world.pod("demo-1")
    assert ready is not None
    pod_fails(world, "demo-1")
    world.observe()
    healed = {key: ready["metadata"]["annotations"].get(key) for key in (keys.LIFECYCLE_STATE, keys.LIFECYCLE_MESSAGE)}
    world.api.patch("pod", "ns", "demo-1", {"metadata": {"annotations": healed}}, by="agent")
    world.api.patch("pod", "ns", "demo-1", {"status": ready["status"]}, by="agent", subresource="status")
    await world.reconcile()
    assert counters(world) == {}
    pod = world.pod("demo-1")
    assert pod is not None
    assert pod["metadata"]["uid"] == ready["metadata"]["uid"]
