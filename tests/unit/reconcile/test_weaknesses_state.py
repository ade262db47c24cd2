"""Ways in which the Go operator can lose VM state, which are gone (contract, sections 10.1 and 10.2), each by its number."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    DROP,
    GET,
    HEAD,
    SLEEPING,
    VM,
    agent_says,
    annotations_of,
    asked,
    asleep,
    built_main,
    counters,
    events,
    hibernation,
    made_by_go,
    orphan,
    pod_writes,
    released,
    rest,
    running_status,
    saved,
    set_object,
    stand,
    up,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.scenario("S187")
@pytest.mark.parametrize("phase", ["Failed", "Pending", "Running", ""])
async def test_w02_the_phase_is_not_the_memory_of_where_the_state_lies(world: World, phase: str) -> None:
    """Whatever the phase was overwritten with: a failed restore whose pod vanishes is restored again."""
    await released(world)
    world.agent.fail.add("wake")
    world.edit(suspend=False)
    await rest(world)
    world.delete_pod()
    world.agent.fail.clear()
    world.api.objects[("set", "ns", "demo")]["status"]["phase"] = phase
    world.start_operator()
    before = len(world.registry.requests)
    await rest(world)
    assert asked(world, before) == [GET, DROP]
    assert world.agent.history[-1] == f"restored {VM} ['work']"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S187")
async def test_w02_a_status_that_is_lost_as_a_whole_loses_no_state(world: World) -> None:
    await released(world)
    world.api.objects[("set", "ns", "demo")]["status"] = {}
    world.edit(suspend=False)
    world.start_operator()
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S190")
async def test_w03_an_edit_does_not_cost_a_held_vm_its_state(world: World) -> None:
    digest = await asleep(world)
    hibernation(world, phase="Hibernated")
    world.edit(suspend=False)
    await rest(world)
    mark = world.mark
    world.edit(agent={"image": "other"})
    await rest(world)
    assert not any(write.startswith(("delete", "create")) for write in world.writes(mark))
    assert world.tag() == digest


@pytest.mark.scenario("S216", "S132")
@pytest.mark.parametrize("spec", [{}, {"nodeName": "node-b"}, {"suspend": True}, {"hibernatePolicy": "release"}])
async def test_w06_a_tag_of_a_deleted_namesake_is_not_restored(world: World, spec: dict[str, Any]) -> None:
    digest = saved(world, memory=["of another"])
    world.apply(**spec)
    await rest(world)
    assert world.agent.history[0] == f"booted {VM}"
    assert not any("of another" in line for line in world.agent.history)
    assert world.tag(tag=orphan(digest)) == digest
    assert [reason for _, reason, _ in events(world)] == ["LeftoverSnapshotMoved"]


@pytest.mark.scenario("S186")
@pytest.mark.parametrize(
    ("policy", "edit"),
    [
        ("retain", {"image": "other"}),
        ("retain", {"os": "windows"}),
        ("retain", {"backend": "firecracker"}),
        ("release", {"image": "other"}),
    ],
)
async def test_w13_old_memory_never_comes_up_in_another_machine(
    world: World, policy: str, edit: dict[str, str]
) -> None:
    digest = await asleep(world, hibernatePolicy=policy)
    await rest(world)
    world.edit(suspend=False, agent=edit)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.tag(tag=orphan(digest)) == digest
    assert world.tag() is None


@pytest.mark.scenario("S181")
async def test_w14_a_wake_ends_where_tags_cannot_be_deleted(world: World) -> None:
    await released(world)
    world.registry.refuse_drops = "405 UNSUPPORTED"
    world.edit(suspend=False)
    mark = world.mark
    await rest(world)
    assert world.phase == "Running"
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    assert world.writes(mark) == [
        "patch/status set/demo",
        "create pod/demo-0",
        "patch set/demo",
        "patch/status set/demo",
    ]
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
    assert world.writes(mark) == []
    assert [reason for _, reason, _ in events(world)] == ["TagDropPending"]


async def test_w14_a_registry_that_refuses_deletes_does_not_hold_back_the_next_suspend(world: World) -> None:
    """A refusal is an answer: the old tag is as it was, and the new save takes its place (design 4.3 rule 2)."""
    await asleep(world)
    world.registry.refuse_drops = "405 UNSUPPORTED"
    world.edit(suspend=False)
    await rest(world)
    assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    world.agent.work(VM, "after the first wake")
    world.edit(suspend=True)
    await rest(world)
    assert world.phase == "Suspended"
    content = world.registry.content(VM, "hibernate")
    assert content is not None
    assert content["memory"][-1] == "after the first wake"


@pytest.mark.scenario("S257")
async def test_w15_tags_are_tried_again_while_the_finalizer_is_held(world: World) -> None:
    await asleep(world)
    world.registry.down = "connection refused"
    world.delete_set()
    await rest(world)
    before = len(world.registry.requests)
    for _ in range(3):
        await world.run()
    assert asked(world, before) == [DROP] * 3
    world.registry.down = ""
    await world.run()
    assert world.registry.tags == {}
    assert world.api.list("set") == []


@pytest.mark.scenario("S192")
@pytest.mark.parametrize("pin", [{}, {"nodeName": "node-b"}])
async def test_w17_no_tag_lags_behind_a_vm_that_woke_in_place(world: World, pin: dict[str, str]) -> None:
    await asleep(world, **pin)
    world.edit(suspend=False)
    before = len(world.registry.requests)
    await rest(world)
    assert asked(world, before) == [HEAD, DROP]
    assert world.tag() is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


async def test_w17_what_the_go_operator_left_behind_is_swept_once(world: World) -> None:
    made_by_go(world, {"phase": "Running"})
    stand(world, built_main(set_object()), annotations=AWAKE, status=running_status())
    saved(world)
    await rest(world)
    assert asked(world) == [DROP]
    assert world.tag() is None
    world.start_operator()
    saved(world)
    await rest(world)
    assert asked(world) == [DROP]


@pytest.mark.scenario("S165")
async def test_w46_a_hint_does_not_survive_a_wake_in_place(world: World) -> None:
    """Nor re-arm an unfinished wake for a pod that was made again with a restore mark later."""
    made_by_go(world, {"phase": "Suspended"}, {keys.HINT_NODE: "node-a", keys.DELETE_VM_NAMES: VM}, suspend=True)
    stand(world, built_main(set_object()), annotations=SLEEPING, status={"phase": "Pending"})
    saved(world)
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert world.annotation(keys.HINT_NODE) is None
    assert counters(world) == {}
    saved(world, memory=["later"])
    world.delete_pod()
    await rest(world)
    assert world.memory() == ["later"]
    assert counters(world) == {}


@pytest.mark.scenario("S170")
async def test_w58_a_vm_that_is_about_to_be_removed_keeps_its_tag(world: World) -> None:
    """Id and a running container are still there when the push has landed: an unsuspend in that moment drops nothing."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    for _ in range(8):
        world.agent.step("ns", "demo-0")
        if world.tag() is not None:
            break
    digest = world.tag()
    assert digest is not None
    assert annotations_of(world)[keys.VM_ID]
    assert annotations_of(world)[keys.LIFECYCLE_STATE] == "hibernating"
    world.edit(suspend=False)
    before = len(world.registry.requests)
    for _ in range(3):
        await world.run()
    assert asked(world, before) == []
    assert world.tag() == digest
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S170")
async def test_w58_an_echo_from_before_the_wake_is_not_enough(world: World) -> None:
    """The stamp that the echo has to reach was written in the patch that cleared the flag (I2)."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    digest = saved(world)
    world.edit(suspend=False)
    await world.run()
    assert annotations_of(world)[keys.LIFECYCLE_STATE] == "ready"
    assert annotations_of(world)[keys.LIFECYCLE_GENERATION] == "1"
    assert annotations_of(world)[keys.GENERATION] == "3"
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == []
    assert world.tag() == digest


@pytest.mark.scenario("S170")
async def test_w58_the_pod_is_read_live_right_before_the_drop(world: World) -> None:
    await released(world)
    world.edit(suspend=False)
    await world.run()
    world.agent.run()
    world.observe()
    agent_says(world, {keys.HIBERNATE: "true"})
    digest, before = world.tag(), len(world.registry.requests)
    await world.reconcile()
    assert asked(world, before) == []
    assert world.tag() == digest
    assert world.phase == "Waking"


async def test_w59_a_run_sees_its_own_writes(world: World) -> None:
    """The flag that the last run set is in this run's view though no watch event has come yet."""
    await up(world)
    world.edit(suspend=True)
    world.observe()
    mark, before = world.mark, len(world.registry.requests)
    for _ in range(4):
        await world.reconcile()
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo"]
    assert asked(world, before) == []
    assert world.phase == "Suspending"


async def test_w59_a_run_sees_its_own_create_and_delete(world: World) -> None:
    world.apply()
    world.observe()
    for _ in range(3):
        await world.reconcile()
    assert world.writes() == ["patch set/demo", "create pod/demo-0", "patch/status set/demo"]
    await rest(world)
    world.edit(agent={"image": "other"})
    world.observe()
    mark, before = world.mark, len(world.registry.requests)
    for _ in range(3):
        await world.reconcile()
    assert pod_writes(world, mark) == ["delete pod/demo-0"]
    assert asked(world, before) == []


@pytest.mark.scenario("S122", "S137")
async def test_w62_a_failed_hibernation_is_a_living_vm(world: World) -> None:
    """Neither drift nor release nor failure deletes it; when the agent gets through, the work is saved."""
    await up(world, hibernatePolicy="release")
    world.agent.fail.add("push")
    world.edit(suspend=True)
    await rest(world)
    assert annotations_of(world)[keys.LIFECYCLE_STATE] == "failed"
    mark = world.mark
    world.edit(agent={"network": "blue"})
    await rest(world)
    world.edit(suspend=False)
    await world.run()
    world.edit(suspend=True, agent={"image": "other"})
    await rest(world)
    assert not any(write.startswith("delete") for write in world.writes(mark))
    assert world.phase == "Suspending"
    assert world.memory() == ["work"]
    assert counters(world) == {}
    assert "PodLifecycleFailed" not in [reason for _, reason, _ in events(world)]
    world.agent.fail.clear()
    await rest(world)
    assert world.phase == "Suspended"
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]


@pytest.mark.parametrize("place", ["annotation", "status", "pod"])
async def test_w63_no_tag_is_deleted_by_a_name_that_a_user_wrote(world: World, place: str) -> None:
    """Whoever may edit one set cannot have another tenant's snapshots deleted."""
    await up(world, snapshotPolicy="never")
    other = saved(world, "vk-ns-victim-0")
    latest = world.registry.push("vk-ns-victim-0", "latest", {"memory": []})
    if place == "annotation":
        world.annotate({keys.DELETE_VM_NAMES: f"{VM},vk-ns-victim-0"})
    if place == "status":
        stored = world.set()["status"]
        stored["agents"][0]["vmName"] = "vk-ns-victim-0"
        world.api.patch("set", "ns", "demo", {"status": stored}, by="user", subresource="status")
    if place == "pod":
        agent_says(world, {keys.VM_NAME: "vk-ns-victim-0"})
    world.delete_set()
    await rest(world)
    world.agent.vms.clear()
    assert world.api.list("set") == []
    assert world.tag("vk-ns-victim-0") == other
    assert world.tag("vk-ns-victim-0", "latest") == latest
    assert not any("victim" in request for request in asked(world))
    if place == "annotation":
        assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "ForeignVMName")]


async def test_w63_a_wake_drops_the_computed_name_alone(world: World) -> None:
    await released(world)
    other = saved(world, "vk-ns-victim-0")
    world.edit(suspend=False)
    await world.run()
    world.agent.run()
    agent_says(world, {keys.VM_NAME: "vk-ns-victim-0"})
    await world.run()
    assert world.tag("vk-ns-victim-0") == other
    assert not any("victim" in request for request in asked(world))
