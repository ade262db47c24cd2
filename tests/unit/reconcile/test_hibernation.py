"""A CocoonHibernation puts a VM to sleep: of a set that runs, or of a pod that no set owns (contract 5.4, hibernate step)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.holders import (
    SOLO,
    gone,
    held,
    phase,
    ready,
    samples,
    since,
    solo,
    solo_held,
    told,
    wants,
)
from tests.unit.reconcile.staging import (
    VM,
    agent_says,
    annotations_of,
    asked,
    hibernation,
    rest,
    roles_up,
    saved,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

PODS = pytest.mark.parametrize("pod", ["demo-0", "solo"])
"""Of a set and of no set."""


async def started(world: World, pod: str = "demo-0", **spec: Any) -> None:
    """A hibernation that has just begun: the flag is set, and the agent has not looked yet."""
    await (up(world, **spec) if pod == "demo-0" else solo(world))
    hibernation(world, pod)
    await world.run()
    assert phase(world, pod) == "Hibernating"
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"


# -- to sleep ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S273", "S276", "S286")
async def test_a_main_agent_is_put_to_sleep(world: World) -> None:
    """What is written and asked for it is counted in test_hibernation_counts.py."""
    await held(world)
    assert world.memory() is None
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert (world.condition("SnapshotCurrent")["status"], world.condition("SnapshotCurrent")["reason"]) == (
        "True",
        "KeptAsleep",
    )
    finding = world.condition("Ready")
    assert (finding["status"], finding["reason"]) == ("False", "HeldByHibernation")
    assert finding["message"] == f"{VM} is held asleep by CocoonHibernation demo-0"
    assert told(world) == [("Normal", "Hibernated", f"snapshot {VM} pushed to the registry")]


@pytest.mark.scenario("S273", "S286")
async def test_a_pod_of_no_set_is_put_to_sleep(world: World) -> None:
    await solo_held(world)
    assert world.memory(SOLO) is None
    assert world.registry.content(SOLO, "hibernate")["memory"] == ["work"]  # type: ignore[index]
    assert ready(world, "solo") == ("True", "Done", "Hibernated")
    assert told(world, "solo") == [("Normal", "Hibernated", f"snapshot {SOLO} pushed to the registry")]


async def test_one_sub_agent_sleeps_and_the_others_go_on(world: World) -> None:
    await roles_up(world, 2)
    hibernation(world, "demo-1")
    await rest(world)
    assert phase(world, "demo-1") == "Hibernated"
    assert sorted(world.agent.vms) == [vm(0), vm(2)]
    assert world.memory(vm(2)) == ["fork of vk-ns-demo-0", "work of vk-ns-demo-2"]


@pytest.mark.scenario("S273")
async def test_a_transition_of_a_set_waits_for_events_and_its_limit(world: World) -> None:
    """Also where no event ever comes, since the node is gone: the limit has a timer from the first pass on."""
    await started(world)
    assert (world.outcome.requeue_after, world.outcome.error) == (180.0, None)
    world.clock.advance(180)
    await world.run()
    assert (phase(world), world.outcome.requeue_after) == ("Failed", 180.0)


@pytest.mark.scenario("S273")
async def test_a_transition_of_a_pod_of_no_set_is_looked_at_every_five_seconds(world: World) -> None:
    await started(world, "solo")
    assert (world.outcome.requeue_after, world.outcome.error) == (5.0, None)


@PODS
@pytest.mark.scenario("S276")
async def test_an_older_tag_counts_for_nothing_before_the_agent_has_spoken(world: World, pod: str) -> None:
    await (up(world) if pod == "demo-0" else solo(world))
    old = saved(world, f"vk-ns-{pod}", memory=["old"])
    hibernation(world, pod)
    requests = len(world.registry.requests)
    await world.run()
    world.agent.step("ns", pod)
    await world.run()
    assert phase(world, pod) == "Hibernating"
    assert asked(world, requests) == []
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert world.tag(f"vk-ns-{pod}") not in (None, old)


@PODS
@pytest.mark.scenario("S277")
async def test_an_echo_of_an_older_stamp_is_not_enough(world: World, pod: str) -> None:
    await started(world, pod)
    world.agent.run()
    agent_says(world, {keys.GENERATION: "3", keys.LIFECYCLE_GENERATION: "2"}, pod)
    world.api.patch("set", "ns", "demo", {"metadata": {"generation": 3}}, by="user") if pod == "demo-0" else None
    for _ in range(3):
        await world.run()
        world.clock.advance(3)
    assert phase(world, pod) == "Hibernating"
    agent_says(world, {keys.LIFECYCLE_GENERATION: "3"}, pod)
    await world.run()
    assert phase(world, pod) == "Hibernated"


@PODS
async def test_a_vm_that_cannot_begin_yet_is_flagged_when_its_agent_has_begun(world: World, pod: str) -> None:
    """The agent looks at the flag in updates only (R3.1): before its create call it would never be seen."""
    await up(world)
    world.api.patch("set", "ns", "demo", {"spec": {"agent": {"replicas": 1}}}, by="user")
    if pod == "solo":
        await solo(world)
        world.delete_pod("solo")
        body = {"metadata": {"name": "solo", "namespace": "ns", "annotations": dict(annotations_of(world))}, "spec": {}}
        body["metadata"]["annotations"] = {keys.VM_NAME: SOLO, keys.MANAGED: "true", keys.IMAGE: "base"}
        world.api.create("pod", body, by="user")
    await world.run()
    name = "demo-1" if pod == "demo-0" else pod
    hibernation(world, name)
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world, name)
    assert phase(world, name) == "Hibernating"
    await rest(world)
    assert phase(world, name) == "Hibernated"


# -- no answer, and no end ---------------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S274")
async def test_the_error_of_the_registry_is_the_error_of_the_pass(world: World, pod: str) -> None:
    await started(world, pod)
    world.agent.run()
    world.registry.down = "503 Service Unavailable"
    world.clock.advance(10)
    outcome = await world.run()
    assert str(outcome.error) == "503 Service Unavailable"
    assert phase(world, pod) == "Hibernating"
    assert told(world, pod) == []
    world.registry.down = ""
    await rest(world)
    assert phase(world, pod) == "Hibernated"


@PODS
@pytest.mark.scenario("S275")
async def test_an_answer_that_does_not_come_in_time_fails_it_though_it_shall_wake_by_now(
    world: World, pod: str
) -> None:
    """The tag may be the only copy: the wake waits for the registry, and comes as soon as it answers."""
    await started(world, pod)
    world.agent.run()
    world.registry.down = "503 Service Unavailable"
    wants(world, "Wake", pod)
    await world.run()
    assert phase(world, pod) == "Hibernating"
    world.clock.advance(180)
    await world.run()
    assert (phase(world, pod), ready(world, pod)[2]) == ("Failed", "hibernate not confirmed within 3m0s")
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"
    world.registry.down = ""
    await rest(world)
    assert (phase(world, pod), world.memory(f"vk-ns-{pod}"), world.tag(f"vk-ns-{pod}")) == ("Active", ["work"], None)


@PODS
@pytest.mark.scenario("S278", "S279", "S282")
async def test_a_save_that_nobody_confirms_fails_after_the_limit(world: World, pod: str) -> None:
    await started(world, pod)
    world.clock.advance(179)
    await world.run()
    assert phase(world, pod) == "Hibernating"
    world.clock.advance(1)
    await world.run()
    assert phase(world, pod) == "Failed"
    assert ready(world, pod) == ("False", "Failed", "hibernate not confirmed within 3m0s")
    assert told(world, pod) == [
        ("Warning", "HibernateTimedOut", f"snapshot vk-ns-{pod} not confirmed in the registry within 3m0s")
    ]
    assert samples(world) == [("hibernate_phase_duration_seconds", 180.0, "timeout")]
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"


@PODS
@pytest.mark.scenario("S280", "S282")
@pytest.mark.parametrize("by", ["time", "an edit"])
async def test_a_failure_rests_and_is_tried_again_with_a_new_clock(world: World, pod: str, by: str) -> None:
    await started(world, pod)
    world.clock.advance(180)
    await world.run()
    mark = world.mark
    world.clock.advance(179)
    await world.run()
    assert (phase(world, pod), world.writes(mark)) == ("Failed", [])
    if by == "time":
        world.clock.advance(1)
    else:
        # Taken back and asked for again: two generations, one wish.
        wants(world, "Wake", pod)
        wants(world, "Hibernate", pod)
    await world.run()
    assert phase(world, pod) == "Hibernating"
    assert since(world, pod) == world.clock.text()
    assert told(world, pod)[1:] == [("Normal", "RetryRequested", "retrying Hibernate after prior failure")]


@PODS
async def test_a_save_that_comes_late_is_taken_at_once(world: World, pod: str) -> None:
    await started(world, pod)
    world.clock.advance(180)
    await world.run()
    assert phase(world, pod) == "Failed"
    await rest(world)
    world.clock.advance(30)
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert [reason for _, reason, _ in told(world, pod)] == ["HibernateTimedOut", "Hibernated"]
    assert len(samples(world)) == 1


@PODS
async def test_a_save_that_fails_is_tried_again_by_its_agent(world: World, pod: str) -> None:
    """``failed`` with ``hibernate: `` is a living VM (W-62): the flag stays, and nothing else is done to it."""
    world.agent.fail.add("push")
    await started(world, pod)
    world.agent.run()
    await world.run()
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "failed"
    assert phase(world, pod) == "Hibernating"
    assert world.memory(f"vk-ns-{pod}") == ["work"]
    world.agent.fail.clear()
    world.agent.run()
    world.clock.advance(10)
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert world.registry.content(f"vk-ns-{pod}", "hibernate")["memory"] == ["work"]  # type: ignore[index]


# -- what may happen to a VM that sleeps -------------------------------------------------------------------------------


@pytest.mark.scenario("S283")
async def test_a_stamp_that_moves_on_does_not_take_it_back(world: World) -> None:
    digest = await held(world)
    world.edit(snapshotPolicy="never")
    mark = world.mark
    await world.run()
    assert annotations_of(world)[keys.GENERATION] == "2"
    assert phase(world) == "Hibernated"
    await rest(world)
    assert [write for write in world.writes(mark) if "hibernation/" in write] == []
    assert world.tag() == digest


@PODS
@pytest.mark.scenario("S284")
async def test_a_flag_that_somebody_removes_is_set_again(world: World, pod: str) -> None:
    await (held(world) if pod == "demo-0" else solo_held(world))
    agent_says(world, {keys.HIBERNATE: None}, pod)
    await world.run()
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert world.memory(f"vk-ns-{pod}") is None
    assert world.registry.content(f"vk-ns-{pod}", "hibernate")["memory"] == ["work"]  # type: ignore[index]


@PODS
@pytest.mark.scenario("S284")
async def test_a_vm_that_woke_by_that_is_saved_again(world: World, pod: str) -> None:
    await (held(world) if pod == "demo-0" else solo_held(world))
    name = f"vk-ns-{pod}"
    agent_says(world, {keys.HIBERNATE: None}, pod)
    world.agent.run()
    world.agent.work(name, "more")
    await world.run()
    assert phase(world, pod) == "Hibernating"
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert world.registry.content(name, "hibernate")["memory"] == ["work", "more"]  # type: ignore[index]


@pytest.mark.scenario("S285")
async def test_a_tag_that_disappears_is_noticed_within_the_hour_and_put_back(world: World) -> None:
    digest = await held(world)
    del world.registry.tags[(VM, "hibernate")]
    requests = len(world.registry.requests)
    world.clock.advance(3599)
    await world.run()
    assert asked(world, requests) == []
    world.clock.advance(1)
    await rest(world)
    assert world.tag() == digest
    assert phase(world) == "Hibernated"
    assert "SnapshotTagRestored" in world.recorder.reasons()
    assert asked(world, requests) == [f"HEAD {VM}:hibernate", f"GET {VM}:{digest}", f"PUT {VM}:hibernate"]


@pytest.mark.scenario("S285")
async def test_a_tag_that_cannot_be_put_back_ends_it(world: World) -> None:
    digest = await held(world)
    del world.registry.tags[(VM, "hibernate")]
    del world.registry.manifests[(VM, digest)]
    world.clock.advance(3600)
    await world.run()
    assert phase(world) == "Hibernating"
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    world.clock.advance(180)
    await world.run()
    assert phase(world) == "Failed"
    assert world.memory() is None


@pytest.mark.scenario("S285")
async def test_of_a_pod_of_no_set_nobody_knows_the_digest(world: World) -> None:
    await solo_held(world)
    del world.registry.tags[(SOLO, "hibernate")]
    await world.run()
    assert phase(world, "solo") == "Hibernating"
    world.clock.advance(180)
    await world.run()
    assert phase(world, "solo") == "Failed"
    assert annotations_of(world, "solo")[keys.HIBERNATE] == "true"


@pytest.mark.scenario("S285")
async def test_neither_pod_nor_tag_is_nothing_to_wait_for(world: World) -> None:
    digest = await held(world)
    world.delete_pod()
    await rest(world)
    assert (world.pod(), phase(world)) == (None, "Hibernated")
    del world.registry.tags[(VM, "hibernate")]
    del world.registry.manifests[(VM, digest)]
    world.clock.advance(3600)
    await world.run()
    assert phase(world) == "Pending"
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    assert world.pod() is None
    await solo_held(world)
    world.delete_pod("solo")
    await world.run()
    assert phase(world, "solo") == "Hibernated"
    del world.registry.tags[(SOLO, "hibernate")]
    await world.run()
    assert phase(world, "solo") == "Pending"
    assert not gone(world, "solo")


async def test_an_hour_without_an_answer_changes_nothing(world: World) -> None:
    await held(world)
    world.registry.down = "connection refused"
    world.clock.advance(3600)
    outcome = await world.run()
    assert outcome.error is not None
    assert phase(world) == "Hibernated"
    assert world.condition("Ready")["reason"] == "RegistryUnreachable"
    world.registry.down = ""
    await rest(world)
    assert world.condition("Ready")["reason"] == "HeldByHibernation"
