"""Suspend with policy retain, and the gate that both policies wait for (contract 4.3 and 4.4, scenarios I)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import UnavailableError
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    GET,
    HEAD,
    SLEEPING,
    VM,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    asleep,
    bodies,
    built_main,
    built_sub,
    built_toolbox,
    events,
    made_by_go,
    orphan,
    refuse,
    rest,
    running_status,
    saved,
    set_object,
    stand,
    terminating,
    up,
)

pytestmark = pytest.mark.asyncio

SUB = "vk-ns-demo-1"
STATIC = {"name": "st", "mode": "static", "staticVMID": "vm-7", "staticIP": "10.1.1.7"}
FLAG = {"metadata": {"annotations": {keys.HIBERNATE: "true", keys.GENERATION: "2"}}}


def suspended_by_go(
    world: World, *pods: tuple[Object, Mapping[str, str | None], Mapping[str, Any]], **spec: Any
) -> None:
    """A set that the Go operator is suspending, with pods as given (annotations, status)."""
    made_by_go(world, {"phase": "Suspending"}, suspend=True, **spec)
    for body, carried, status in pods:
        stand(world, body, annotations=carried, status=status)


@pytest.mark.scenario("S131")
async def test_a_set_born_suspended_is_booted_then_put_to_sleep(world: World) -> None:
    """As the contract says (W-53)."""
    world.apply(suspend=True)
    outcome = await world.run()
    assert world.writes() == ["patch set/demo", "create pod/demo-0", "patch/status set/demo"]
    assert world.phase == "Suspending"
    assert keys.HIBERNATE not in annotations_of(world)
    mark = world.mark
    outcome = await world.run()
    assert world.writes(mark) == [], "a flag that is there before the agent's create call is never seen (R3.1)"
    while keys.LIFECYCLE_STATE not in annotations_of(world):
        world.agent.step("ns", "demo-0")
    mark = world.mark
    outcome = await world.run()
    assert bodies(world, mark, "patch pod/demo-0") == [{"metadata": {"annotations": {keys.HIBERNATE: "true"}}}]
    assert world.phase == "Suspending"
    assert (outcome.requeue_after, outcome.error) == (2.0, None), "no more than the window of a message that changed"
    await world.settle()
    assert world.phase == "Suspended"
    assert world.agent.history == [f"booted {VM}", f"slept {VM} []"]
    assert world.set()["status"]["agents"][0]["snapshotDigest"] == world.tag()


@pytest.mark.scenario("S131")
async def test_a_suspend_flags_and_stamps_in_one_patch(world: World) -> None:
    """W-35: the Go operator sends two; a completion echo can only refer to the right revision either way (4.17)."""
    await up(world)
    world.edit(suspend=True)
    mark, before = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo"]
    assert bodies(world, mark, "patch pod/demo-0") == [FLAG]
    assert asked(world, before) == []
    assert world.phase == "Suspending"
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S132")
async def test_a_suspended_set_without_main_restores_its_own_tag(world: World) -> None:
    """Design 4: the name is the set's own. The status says so before the pod exists (4.17)."""
    await up(world)
    digest = saved(world)
    world.delete_pod()
    world.edit(suspend=True)
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert world.writes(mark)[:2] == ["patch/status set/demo", "create pod/demo-0"]
    assert annotations_of(world)[keys.RESTORE] == "true"
    assert asked(world, before) == [GET]
    assert world.tag() == digest
    await world.settle()
    assert world.phase == "Suspended"
    assert world.agent.history[-2:] == [f"restored {VM} ['saved']", f"slept {VM} ['saved']"]


@pytest.mark.scenario("S132")
async def test_a_leftover_is_moved_aside_before_a_suspended_set_is_booted(world: World) -> None:
    """Design 4.3 rule 3: the tag of an earlier namesake is neither restored nor destroyed."""
    digest = saved(world)
    world.apply(suspend=True)
    await world.settle()
    assert world.tag(tag=orphan(digest)) == digest
    assert world.agent.history[0] == f"booted {VM}"
    assert world.phase == "Suspended"
    assert world.tag() != digest


@pytest.mark.scenario("S132", "S138")
async def test_a_suspended_set_without_main_waits_for_the_registry(world: World) -> None:
    await up(world)
    world.delete_pod()
    world.registry.down = "connection refused"
    world.edit(suspend=True)
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert world.pod() is None
    assert world.writes(mark) == ["patch/status set/demo"]
    assert (world.phase, world.condition("Ready")["status"]) == ("Suspending", "Unknown")
    assert world.condition("Ready")["message"] == "connection refused"


@pytest.mark.scenario("S133")
async def test_a_suspend_waits_for_a_terminating_main(world: World) -> None:
    """Legacy W-26: ``already exists`` is an error with back-off in the Go operator; here the deletion is the event."""
    await up(world)
    terminating(world)
    world.edit(suspend=True)
    mark = world.mark
    outcome = await world.run()
    assert world.writes(mark) == ["patch/status set/demo"]
    assert (outcome.requeue_after, outcome.error) == (None, None)
    await rest(world)
    assert world.phase == "Suspended"


@pytest.mark.scenario("S134")
async def test_every_live_pod_gets_the_flag(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 2}, "toolboxes": [STATIC]}
    target = set_object(**options)
    made_by_go(world, {"phase": "Running"}, **options)
    stand(world, built_main(target), annotations=AWAKE, status=running_status())
    stand(world, built_sub(target), annotations=AWAKE, status=running_status())
    stand(world, built_sub(target, "2"), annotations=AWAKE, status={"phase": "Failed"})
    stand(world, built_toolbox(target, "st"), status=running_status())
    world.edit(suspend=True)
    mark = world.mark
    await world.run()
    patches = [f"patch pod/demo-{slot}" for slot in ("0", "1", "2", "st")]
    assert world.writes(mark) == [*patches, "patch/status set/demo"]
    assert all(bodies(world, mark, patch) == [FLAG] for patch in patches)
    mark = world.mark
    await world.run()
    assert world.writes(mark) == []


@pytest.mark.scenario("S135")
async def test_every_managed_vm_has_to_be_saved(world: World) -> None:
    target = set_object(agent={"replicas": 1})
    pods = [(body, dict(SLEEPING), {"phase": "Pending"}) for body in (built_main(target), built_sub(target))]
    suspended_by_go(world, *pods, agent={"replicas": 1})
    main = saved(world)
    await world.run()
    assert world.phase == "Suspending"
    sub = saved(world, SUB)
    await world.run()
    assert world.phase == "Suspended"
    entries = world.set()["status"]["agents"]
    assert [entry["snapshotDigest"] for entry in entries] == [main, sub]
    assert world.condition("SnapshotCurrent")["reason"] == "Saved"


@pytest.mark.scenario("S136")
async def test_a_static_toolbox_is_not_waited_for(world: World) -> None:
    target = set_object(toolboxes=[STATIC])
    suspended_by_go(
        world,
        (built_main(target), dict(SLEEPING), {"phase": "Pending"}),
        (built_toolbox(target, "st"), {keys.HIBERNATE: "true"}, running_status()),
        toolboxes=[STATIC],
    )
    saved(world)
    await world.run()
    assert world.phase == "Suspended"
    assert asked(world) == [HEAD]


@pytest.mark.scenario("S137")
async def test_a_dead_sub_agent_is_not_waited_for(world: World) -> None:
    target = set_object(agent={"replicas": 1})
    suspended_by_go(
        world,
        (built_main(target), dict(SLEEPING), {"phase": "Pending"}),
        (built_sub(target), dict(AWAKE), {"phase": "Failed"}),
        agent={"replicas": 1},
    )
    saved(world)
    await world.run()
    assert world.phase == "Suspended"
    assert asked(world) == [HEAD]


@pytest.mark.scenario("S137")
async def test_a_sub_agent_that_failed_to_hibernate_is_waited_for(world: World) -> None:
    """Design 4.4, W-62: it holds a living VM."""
    target = set_object(agent={"replicas": 1})
    failing = {
        **AWAKE,
        keys.HIBERNATE: "true",
        keys.LIFECYCLE_STATE: "failed",
        keys.LIFECYCLE_MESSAGE: "hibernate: 503 from the registry",
    }
    suspended_by_go(
        world,
        (built_main(target), dict(SLEEPING), {"phase": "Pending"}),
        (built_sub(target), failing, running_status()),
        agent={"replicas": 1},
    )
    saved(world)
    await world.run()
    assert world.phase == "Suspending"
    assert "demo-1 (hibernate: 503 from the registry)" in world.condition("Progressing")["message"]


@pytest.mark.scenario("S138")
async def test_a_registry_that_does_not_answer_is_an_error_and_not_absent(world: World) -> None:
    """The status is written in a pass that failed, too (W-23); the phase stays what it was."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.registry.down = "connection refused"
    outcome = await world.run()
    assert outcome.error is not None
    assert world.phase == "Suspending"
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == (
        "Unknown",
        "RegistryUnreachable",
    )
    assert world.pod() is not None
    assert events(world) == []
    world.registry.down = ""
    await world.settle()
    assert world.phase == "Suspended"
    assert world.condition("Ready")["status"] == "False"


@pytest.mark.scenario("S139")
async def test_a_tag_of_an_earlier_cycle_says_nothing_about_this_one(world: World) -> None:
    await up(world)
    old = saved(world)
    world.edit(suspend=True)
    before = len(world.registry.requests)
    await world.run()
    await world.run()
    assert world.phase == "Suspending"
    assert asked(world, before) == []
    await world.settle()
    assert world.phase == "Suspended"
    assert world.tag() != old
    world.edit(snapshotPolicy="never")
    await world.run()
    assert world.phase == "Suspending"


@pytest.mark.scenario("S139")
@pytest.mark.parametrize(
    ("echo", "done"), [("1", False), ("2", True), ("3", True), ("soon", False), (None, False), ("-2", False)]
)
async def test_the_echo_has_to_reach_the_stamp(world: World, echo: str | None, done: bool) -> None:
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    agent_says(world, {keys.LIFECYCLE_GENERATION: echo})
    before = len(world.registry.requests)
    await world.run()
    assert world.phase == ("Suspended" if done else "Suspending")
    assert asked(world, before) == ([HEAD] if done else [])


@pytest.mark.scenario("S140")
async def test_a_managed_pod_without_vm_name_is_not_asleep(world: World) -> None:
    suspended_by_go(world, (built_main(set_object()), {**SLEEPING, keys.VM_NAME: None}, {"phase": "Pending"}))
    saved(world)
    outcome = await world.run()
    assert world.phase == "Suspending"
    assert outcome.error is None
    assert asked(world) == []


@pytest.mark.scenario("S087", "S089")
@pytest.mark.parametrize("slot", ["", "x"])
async def test_a_sleeping_pod_without_a_place_does_not_hold_the_set_for_ever(world: World, slot: str) -> None:
    """Contract 2.1: it is hibernated and waited for like any other; its tag is where its VM name says (a read alone, W-63)."""
    body = built_sub(set_object(agent={"replicas": 9}), "9")
    body["metadata"]["labels"][keys.LABEL_SLOT] = slot
    suspended_by_go(
        world,
        (built_main(set_object()), dict(SLEEPING), {"phase": "Pending"}),
        (body, dict(SLEEPING), {"phase": "Pending"}),
    )
    saved(world)
    saved(world, "vk-ns-demo-9")
    await world.run()
    assert world.phase == "Suspended"


@pytest.mark.scenario("S141")
async def test_a_suspended_set_waits_for_events_alone(world: World) -> None:
    await asleep(world)
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S142")
async def test_an_edit_of_a_sleeping_set_is_stamped_and_echoed(world: World) -> None:
    digest = await asleep(world)
    world.edit(agent={"image": "other"})
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo"]
    assert bodies(world, mark, "patch pod/demo-0") == [{"metadata": {"annotations": {keys.GENERATION: "3"}}}]
    assert world.phase == "Suspending"
    await world.settle()
    assert world.phase == "Suspended"
    assert world.tag() == digest
    assert world.set()["status"]["agents"][0]["snapshotDigest"] == digest
    assert annotations_of(world)[keys.IMAGE] == "base"


@pytest.mark.scenario("S143")
async def test_while_suspended_nothing_is_scaled_and_no_drift_acted_on(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 1}}
    target = set_object(agent={"replicas": 2})
    suspended_by_go(
        world,
        (built_main(target), dict(SLEEPING), {"phase": "Pending"}),
        (built_sub(target, "2"), dict(SLEEPING), {"phase": "Pending"}),
        **options,
    )
    saved(world)
    saved(world, "vk-ns-demo-2")
    world.edit(agent={"image": "other"}, toolboxes=[{"name": "tb", "mode": "run", "image": "tools"}])
    for _ in range(3):
        await world.run()
    assert [w for w in world.writes() if w.startswith(("create", "delete"))] == []
    assert annotations_of(world)[keys.IMAGE] == "base"


@pytest.mark.scenario("S131", "S141")
async def test_a_suspend_says_who_is_waited_for(world: World) -> None:
    """I8: what the Go operator does without timeout and without a word (W-21)."""
    await up(world)
    world.agent.fail.add("push")
    world.edit(suspend=True)
    await world.settle()
    assert world.phase == "Suspending"
    assert world.condition("Progressing")["message"] == (
        "Suspending: 0 of 1 VMs saved; waiting for demo-0 (hibernate: push failed), since 10:00:00Z"
    )
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "HibernateFailed")
    assert world.memory() == ["work"]
    world.agent.fail.clear()
    await world.settle()
    assert world.phase == "Suspended"


@pytest.mark.scenario("S134")
async def test_a_flag_that_is_refused_is_an_error_and_tried_again(world: World) -> None:
    await up(world)
    world.edit(suspend=True)
    refuse(world, "patch demo-0", UnavailableError("timeout", status=504), times=1)
    outcome = await world.run()
    assert outcome.error is not None
    await world.settle()
    assert world.phase == "Suspended"


@pytest.mark.scenario("S141")
async def test_the_pod_of_a_sleeping_vm_that_vanishes_stays_away(world: World) -> None:
    """Row 8 of the intent table: nothing is booted only to be put to sleep again."""
    digest = await asleep(world)
    world.delete_pod()
    mark, before = world.mark, len(world.registry.requests)
    await world.settle()
    assert world.phase == "Suspended"
    assert world.pod() is None
    assert [w for w in world.writes(mark) if "pod" in w] == []
    assert asked(world, before) == []
    assert world.tag() == digest
    world.edit(suspend=False)
    await world.settle()
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S139", "S141")
async def test_the_echo_alone_is_no_save(world: World) -> None:
    """The tag has to be seen; an absent one under a pod that says ``hibernated`` is never the end of a suspend."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    del world.registry.tags[(VM, "hibernate")]
    outcome = await world.run()
    assert world.phase == "Suspending"
    assert outcome.error is not None
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    assert [reason for _, reason, _ in events(world)] == ["SnapshotMissing"]
    await world.run()
    assert len(events(world)) == 1


@pytest.mark.scenario("S141")
async def test_an_unsuspend_in_the_middle_ends_awake(world: World) -> None:
    """An edit in the middle ends where the last edit says."""
    for steps in range(8):
        world = World()
        await up(world)
        world.edit(suspend=True)
        await world.run()
        for _ in range(steps):
            world.agent.step("ns", "demo-0")
        world.edit(suspend=False)
        await world.settle()
        assert world.phase == "Running", steps
        assert world.memory() == ["work"], steps
        assert world.tag() is None, steps
        assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot", steps


@pytest.mark.scenario("S142")
async def test_a_sleeping_pod_whose_agent_loses_its_status_is_still_saved(world: World) -> None:
    await asleep(world)
    agent_shows(world, {"phase": "Running"})
    mark = world.mark
    await world.run()
    assert world.phase == "Suspended"
    assert [w for w in world.writes(mark) if "pod" in w] == []
