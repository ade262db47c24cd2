"""What a wake is made from: the registry decides, and a save on record is never answered by a fresh boot (design 4.3)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    GET,
    VM,
    annotations_of,
    asked,
    asleep,
    events,
    made_by_go,
    orphan,
    released,
    rest,
    saved,
    up,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.scenario("S162")
@pytest.mark.parametrize("present", [True, False])
async def test_without_a_hint_the_create_asks_the_tag_all_the_same(world: World, present: bool) -> None:
    """Design 4: it is no wake of a released seat, but rule 1 of 4.3 asks before every create."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.delete_pod()
    if present:
        saved(world)
    world.edit(suspend=False)
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [GET]
    assert annotations_of(world).get(keys.RESTORE) == ("true" if present else None)
    await rest(world)
    assert world.memory() == (["saved"] if present else [])
    assert world.tag() is None


@pytest.mark.scenario("S168")
async def test_a_save_on_record_is_never_answered_by_a_fresh_boot(world: World) -> None:
    """Design 4: fresh only without a save on record, else 4.3 rule 4. A wrong OCI_REGISTRY must not look like an empty one."""
    digest = await released(world)
    world.registry.tags.clear()
    world.registry.manifests.clear()
    world.edit(suspend=False)
    before = len(world.registry.requests)
    for _ in range(2):
        outcome = await world.run()
        assert outcome.error is not None
    assert world.pod() is None
    assert asked(world, before) == [GET, f"GET {VM}:{digest}"] * 2
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "SnapshotMissing")
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "SnapshotMissing")]
    assert digest in events(world)[0][2]
    assert keys.START_FRESH in events(world)[0][2]
    assert world.annotation(keys.HINT_NODE) == "node-a"


@pytest.mark.scenario("S168")
async def test_a_recorded_digest_that_is_still_there_gets_its_tag_back(world: World) -> None:
    digest = await released(world)
    world.registry.tags.clear()
    world.edit(suspend=False)
    before = len(world.registry.requests)
    await rest(world)
    assert asked(world, before)[:3] == [GET, f"GET {VM}:{digest}", f"PUT {VM}:hibernate"]
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "SnapshotTagRestored")]
    assert world.tag() is None


@pytest.mark.scenario("S169")
async def test_a_registry_that_does_not_answer_starts_nothing(world: World) -> None:
    await released(world)
    world.registry.down = "connection refused"
    world.edit(suspend=False)
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert world.pod() is None
    assert world.writes(mark) == ["patch/status set/demo"]
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == (
        "Unknown",
        "RegistryUnreachable",
    )
    world.registry.down = ""
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S174")
@pytest.mark.parametrize("present", [True, False])
async def test_a_running_set_without_pod_asks_the_tag(world: World, present: bool) -> None:
    """Design 4: no wake, but the create asks (4.3 rule 1)."""
    await up(world)
    world.delete_pod()
    if present:
        saved(world)
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [GET]
    assert annotations_of(world).get(keys.RESTORE) == ("true" if present else None)


@pytest.mark.scenario("S216")
async def test_the_first_pod_of_a_pinned_set_does_not_inherit_a_tag(world: World) -> None:
    """Legacy W-06: leftovers of a deleted namesake are moved aside, then main boots fresh."""
    digest = saved(world)
    world.apply(nodeName="node-b")
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert keys.RESTORE not in annotations_of(world)
    assert world.tag(tag=orphan(digest)) == digest
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "LeftoverSnapshotMoved")]


# -- a main agent that vanished or failed ------------------------------------------------------------------------------


@pytest.mark.scenario("S185")
async def test_a_sleeping_main_that_vanished_is_restored(world: World) -> None:
    await asleep(world)
    world.delete_pod()
    world.edit(suspend=False)
    await world.run()
    assert world.phase == "Waking"
    assert annotations_of(world)[keys.RESTORE] == "true"
    await rest(world)
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S185")
@pytest.mark.parametrize("present", [True, False])
async def test_a_sleeping_main_of_the_go_operator_that_vanished(world: World, present: bool) -> None:
    """Phase ``Suspended`` and a listed name are a save on record (design 4.3 rule 4)."""
    made_by_go(world, {"phase": "Suspended"}, {keys.DELETE_VM_NAMES: VM}, hibernatePolicy="release", suspend=True)
    if present:
        saved(world)
    await world.run()
    world.edit(suspend=False)
    await rest(world)
    if present:
        assert world.memory() == ["saved"]
    else:
        assert world.pod() is None
        assert world.condition("Ready")["reason"] == "SnapshotMissing"


@pytest.mark.scenario("S187")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_a_failed_restore_whose_pod_is_deleted_is_restored_again(world: World, policy: str) -> None:
    """Legacy W-02: the Go operator boots fresh over the snapshot."""
    digest = await asleep(world, hibernatePolicy=policy)
    await rest(world)
    if policy == "retain":
        world.delete_pod()
    world.agent.fail.add("wake")
    world.edit(suspend=False)
    await rest(world)
    assert annotations_of(world)[keys.LIFECYCLE_STATE] == "failed"
    world.delete_pod()
    world.agent.fail.clear()
    world.start_operator()
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.agent.history[-1] == f"restored {VM} ['work']"
    assert digest not in world.registry.tags.values()
