"""Edits that meet a sleeping VM at its wake, and the way out by ``start-fresh`` (design 4.3 rule 5, 4.4)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    VM,
    annotations_of,
    asleep,
    events,
    orphan,
    released,
    rest,
    saved,
    up,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.scenario("S186")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_another_image_gets_another_machine_and_the_snapshot_is_kept_aside(world: World, policy: str) -> None:
    """Legacy W-13; design 4: the new machine boots fresh, old memory never comes up under a new image."""
    digest = await asleep(world, hibernatePolicy=policy)
    await rest(world)
    world.edit(suspend=False, agent={"image": "other"})
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.agent.history[-1] == f"booted {VM}"
    assert annotations_of(world)[keys.IMAGE] == "other"
    assert world.tag(tag=orphan(digest)) == digest
    assert world.tag() is None
    assert [reason for _, reason, _ in events(world)] == ["SnapshotMovedAside"]
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None


@pytest.mark.scenario("S186")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_other_edits_keep_the_memory(world: World, policy: str) -> None:
    """Design 4.4: suspend, resize, wake."""
    await asleep(world, hibernatePolicy=policy)
    await rest(world)
    world.edit(suspend=False, agent={"resources": {"limits": {"memory": "8Gi"}}, "network": "blue"})
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert annotations_of(world)[keys.NETWORK] == "blue"
    assert world.tag() is None
    assert events(world) == []


# -- start fresh -------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S168")
async def test_the_users_way_out_of_a_missing_snapshot(world: World) -> None:
    """Design 4.3 rule 5."""
    await released(world)
    world.registry.tags.clear()
    world.registry.manifests.clear()
    world.edit(suspend=False)
    await world.run()
    world.annotate({keys.START_FRESH: VM})
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.annotation(keys.START_FRESH) is None
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.scenario("S187")
async def test_a_restore_that_cannot_be_done_is_told_and_has_a_way_out(world: World) -> None:
    """Design 4.3 rule 5: the snapshot is moved aside on request, not destroyed."""
    digest = await released(world)
    world.agent.fail.add("wake")
    world.edit(suspend=False)
    await rest(world)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "WakeFailed")
    world.annotate({keys.START_FRESH: VM})
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.tag(tag=orphan(digest)) == digest
    assert world.annotation(keys.START_FRESH) is None


async def test_a_start_fresh_for_somebody_else_is_refused(world: World) -> None:
    """Design 4.3 rule 5: names that are not the set's are refused by an event."""
    await up(world)
    other = saved(world, "vk-ns-other-0")
    world.annotate({keys.START_FRESH: "vk-ns-other-0"})
    await rest(world)
    assert world.tag("vk-ns-other-0") == other
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "StartFreshRefused")]
    assert world.annotation(keys.START_FRESH) is None
    assert world.memory() == ["work"]


async def test_a_start_fresh_works_on_a_healthy_vm(world: World) -> None:
    await up(world)
    world.annotate({keys.START_FRESH: VM})
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.annotation(keys.START_FRESH) is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


async def test_a_start_fresh_of_a_sleeping_set_waits_for_its_wake(world: World) -> None:
    digest = await released(world)
    world.annotate({keys.START_FRESH: VM})
    await rest(world)
    assert world.tag() == digest
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.tag(tag=orphan(digest)) == digest
