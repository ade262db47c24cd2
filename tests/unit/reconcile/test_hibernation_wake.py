"""A CocoonHibernation wakes a VM: of a set that runs, or of a pod that no set owns (contract 5.4, wake step)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.holders import (
    SOLO,
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
from tests.unit.reconcile.moves import step
from tests.unit.reconcile.staging import (
    VM,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    hibernation,
    rest,
    running_status,
    saved,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio

PODS = pytest.mark.parametrize("pod", ["demo-0", "solo"])
"""Of a set and of no set."""
NOT_RUNNING: Mapping[str, Any] = {"containerStatuses": None, "conditions": None, "phase": "Pending"}


async def waking(world: World, pod: str = "demo-0") -> None:
    """A wake that has just begun: the flag is gone, and the agent has not looked yet."""
    await (held(world) if pod == "demo-0" else solo_held(world))
    world.recorder.events.clear()
    world.measures.durations.clear()
    wants(world, "Wake", pod)
    await world.run()
    assert phase(world, pod) == "Waking"
    assert keys.HIBERNATE not in annotations_of(world, pod)


# -- awake -------------------------------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S293")
async def test_it_wakes_its_vm_and_drops_the_tag_behind_it(world: World, pod: str) -> None:
    name = f"vk-ns-{pod}"
    await waking(world, pod)
    assert ready(world, pod) == ("False", "Pending", "Waking")
    assert since(world, pod) == world.clock.text()
    world.clock.advance(12)
    await rest(world)
    assert phase(world, pod) == "Active"
    assert (world.memory(name), world.tag(name)) == (["work"], None)
    assert ready(world, pod) == ("True", "Done", "Active")
    assert told(world, pod) == [("Normal", "WokenActive", f"pod ns/{pod} is running")]
    (sample,) = samples(world)
    assert (sample[0], sample[2]) == ("wake_phase_duration_seconds", "ok")
    assert 12.0 <= sample[1] <= 17.0


@pytest.mark.scenario("S293")
async def test_the_set_that_has_its_main_agent_again_runs(world: World) -> None:
    await waking(world)
    await rest(world)
    assert world.phase == "Running"
    assert (world.condition("SnapshotCurrent")["reason"], world.condition("Ready")["status"]) == ("NoSnapshot", "True")


@PODS
@pytest.mark.scenario("S295")
async def test_a_vm_that_is_awake_is_active_at_once(world: World, pod: str) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod, desire="Wake")
    mark, requests = world.mark, len(world.registry.requests)
    await world.run()
    assert phase(world, pod) == "Active"
    assert world.writes(mark) == [f"patch hibernation/{pod}", f"patch/status hibernation/{pod}"]
    # Behind the VM of a set there is no tag; of a pod of no set nobody knows.
    assert asked(world, requests) == ([f"DELETE {SOLO}:hibernate"] if pod == "solo" else [])
    assert samples(world) == []
    assert told(world, pod) == [("Normal", "WokenActive", f"pod ns/{pod} is running")]


@pytest.mark.scenario("S295")
async def test_of_no_set_a_tag_that_somebody_left_behind_the_vm_is_dropped(world: World) -> None:
    """The next restart of the pod would bring the old memory back."""
    await solo(world)
    saved(world, SOLO, memory=["old"])
    hibernation(world, "solo", desire="Wake")
    await rest(world)
    assert (phase(world, "solo"), world.memory(SOLO), world.tag(SOLO)) == ("Active", ["work"], None)


@PODS
@pytest.mark.scenario("S296")
async def test_an_active_one_does_nothing_any_more(world: World, pod: str) -> None:
    await waking(world, pod)
    await rest(world)
    mark, requests = world.mark, len(world.registry.requests)
    for seconds in (1, 60, 4000):
        agent_says(world, {"model/heartbeat": str(seconds)}, pod)
        world.clock.advance(seconds)
        await world.run()
    assert (world.writes(mark), asked(world, requests)) == ([], [])


@pytest.mark.scenario("S297")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_an_active_one_does_not_keep_its_set_from_sleeping(world: World, policy: str) -> None:
    await up(world, hibernatePolicy=policy)
    hibernation(world, desire="Wake")
    await rest(world)
    world.edit(suspend=True)
    await rest(world)
    assert (world.phase, phase(world)) == ("Suspended", "Active")
    assert world.memory() is None
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]
    world.edit(suspend=False)
    await rest(world)
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


# -- not yet -----------------------------------------------------------------------------------------------------------


@PODS
@pytest.mark.scenario("S288", "S298")
async def test_a_vm_that_does_not_come_up_fails_it_after_the_limit(world: World, pod: str) -> None:
    await waking(world, pod)
    world.clock.advance(299)
    await world.run()
    assert phase(world, pod) == "Waking"
    world.clock.advance(1)
    await world.run()
    assert ready(world, pod) == (
        "False",
        "Failed",
        "wake timed out after 5m0s; vk-cocoon never reported the container running",
    )
    assert told(world, pod) == [
        ("Warning", "WakeTimedOut", "vk-cocoon did not report the container running within 5m0s")
    ]
    assert samples(world) == [("wake_phase_duration_seconds", 300.0, "timeout")]
    assert world.tag(f"vk-ns-{pod}") is not None


@PODS
@pytest.mark.scenario("S289", "S298")
async def test_a_failure_rests_and_is_tried_again_with_a_new_clock(world: World, pod: str) -> None:
    await waking(world, pod)
    world.clock.advance(300)
    await world.run()
    mark = world.mark
    world.clock.advance(299)
    await world.run()
    assert (phase(world, pod), world.writes(mark)) == ("Failed", [])
    world.clock.advance(1)
    await world.run()
    assert phase(world, pod) == "Waking"
    assert since(world, pod) == world.clock.text()
    assert told(world, pod)[1:] == [("Normal", "RetryRequested", "retrying Wake after prior failure")]
    await world.run()
    assert phase(world, pod) == "Waking"
    await rest(world)
    assert phase(world, pod) == "Active"


@PODS
async def test_a_vm_that_comes_up_late_is_taken_at_once(world: World, pod: str) -> None:
    await waking(world, pod)
    world.clock.advance(300)
    await world.run()
    assert phase(world, pod) == "Failed"
    world.clock.advance(30)
    await rest(world)
    assert (phase(world, pod), world.tag(f"vk-ns-{pod}")) == ("Active", None)
    assert [reason for _, reason, _ in told(world, pod)] == ["WakeTimedOut", "WokenActive"]


@PODS
@pytest.mark.scenario("S290")
async def test_a_leftover_flag_goes_when_the_agent_has_said_how_the_save_ended(world: World, pod: str) -> None:
    """Until then ``ready`` may be the word of an agent that is about to begin (I2)."""
    await waking(world, pod)
    await rest(world)
    assert phase(world, pod) == "Active"
    wants(world, "Hibernate", pod)
    await world.run()
    wants(world, "Wake", pod)
    world.api.patch("hibernation", "ns", pod, {"status": {"phase": "Waking"}}, by="go", subresource="status")
    await world.run()
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"
    assert phase(world, pod) == "Waking"
    if pod == "demo-0":
        assert world.condition("Ready")["reason"] == "SaveInFlight"
    await rest(world)
    assert (phase(world, pod), world.memory(f"vk-ns-{pod}")) == ("Active", ["work"])
    assert world.tag(f"vk-ns-{pod}") is None
    assert keys.HIBERNATE not in annotations_of(world, pod)


@PODS
@pytest.mark.scenario("S292")
@pytest.mark.parametrize("lacks", ["id", "container"])
async def test_half_a_vm_is_not_live(world: World, pod: str, lacks: str) -> None:
    await waking(world, pod)
    status = running_status() if lacks == "id" else dict(NOT_RUNNING)
    says = {
        keys.VM_ID: None if lacks == "id" else "vm-7",
        keys.LIFECYCLE_STATE: "ready",
        keys.LIFECYCLE_GENERATION: "1",
    }
    agent_shows(world, status, pod)
    agent_says(world, says, pod)
    requests = len(world.registry.requests)
    for _ in range(3):
        await world.run()
    assert phase(world, pod) == "Waking"
    assert asked(world, requests) == []
    assert world.tag(f"vk-ns-{pod}") is not None


@PODS
async def test_a_vm_that_its_agent_does_not_call_ready_is_not_awake(world: World, pod: str) -> None:
    """Id and container alone are too little (W-58)."""
    await waking(world, pod)
    step(world, 4, pod)
    assert annotations_of(world, pod)[keys.LIFECYCLE_STATE] == "creating"
    await world.run()
    assert phase(world, pod) == "Waking"
    assert world.tag(f"vk-ns-{pod}") is not None
    await rest(world)
    assert phase(world, pod) == "Active"


# -- the registry ------------------------------------------------------------------------------------------------------


@PODS
async def test_a_sleeping_vm_is_not_woken_before_its_tag_was_seen(world: World, pod: str) -> None:
    """Its agent drops the local copy when it finds no tag: a flag that is cleared blindly can cost the last one."""
    await (held(world) if pod == "demo-0" else solo_held(world))
    world.registry.down = "connection refused"
    wants(world, "Wake", pod)
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
        world.agent.run()
    assert annotations_of(world, pod)[keys.HIBERNATE] == "true"
    assert phase(world, pod) == "Waking"
    world.registry.down = ""
    await rest(world)
    assert (phase(world, pod), world.memory(f"vk-ns-{pod}")) == ("Active", ["work"])


@pytest.mark.scenario("S294")
@pytest.mark.parametrize("how", ["refused", "no answer"])
async def test_a_drop_that_fails_does_not_hold_the_wake_back(world: World, how: str) -> None:
    """The set remembers what is owed, and goes on trying."""
    await waking(world)
    world.agent.run()
    if how == "refused":
        world.registry.refuse_drops = "405 UNSUPPORTED"
    else:
        world.registry.down = "503"
    await rest(world)
    assert phase(world) == "Active"
    assert told(world) == [("Normal", "WokenActive", "pod ns/demo-0 is running")]
    assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    world.registry.refuse_drops = world.registry.down = ""
    await rest(world)
    assert world.tag() is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.scenario("S294")
async def test_of_no_set_a_refusal_is_told_and_an_answer_is_waited_for(world: World) -> None:
    """Nothing but the phase remembers that the tag is still there."""
    await waking(world, "solo")
    world.agent.run()
    world.registry.down = "503"
    outcome = await world.run()
    assert outcome.error is not None
    assert (phase(world, "solo"), world.memory(SOLO)) == ("Waking", ["work"])
    world.registry.down, world.registry.refuse_drops = "", "405 UNSUPPORTED"
    await rest(world)
    assert phase(world, "solo") == "Active"
    message = f"{SOLO}:hibernate is left behind the VM, which is awake: 405 UNSUPPORTED"
    assert told(world, "solo")[0] == ("Warning", "TagDropRefused", message)


async def test_a_wake_that_its_agent_cannot_do_keeps_the_tag_and_is_tried_again(world: World) -> None:
    await held(world)
    world.agent.fail.add("wake")
    wants(world, "Wake")
    await world.run()
    world.agent.run()
    await world.run()
    assert annotations_of(world)[keys.LIFECYCLE_STATE] == "failed"
    assert (phase(world), world.condition("Ready")["reason"]) == ("Waking", "WakeFailed")
    assert world.tag() is not None
    world.agent.fail.clear()
    await rest(world)
    assert (phase(world), world.memory(), world.tag()) == ("Active", ["work"], None)


@PODS
async def test_asleep_again_after_a_wake_that_failed(world: World, pod: str) -> None:
    """``failed`` without a VM is a sleeping one (design 4.4): what the tag holds is all there is."""
    await (held(world) if pod == "demo-0" else solo_held(world))
    digest = world.tag(f"vk-ns-{pod}")
    world.agent.fail.add("wake")
    wants(world, "Wake", pod)
    await world.run()
    world.agent.run()
    wants(world, "Hibernate", pod)
    for seconds in (300, 300, 300):
        world.clock.advance(seconds)
        await world.run()
        world.agent.run()
    await rest(world)
    assert phase(world, pod) == "Hibernated"
    assert world.tag(f"vk-ns-{pod}") == digest
    assert vm(0) not in world.agent.vms
