"""A set's way from its creation to running, and what one pass does (contract 4.1, scenarios G)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Answer
from cocoon_operator.api.errors import ForbiddenError, UnavailableError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    GET,
    VM,
    agent_shows,
    annotations_of,
    asked,
    bodies,
    built_main,
    built_sub,
    built_toolbox,
    events,
    hibernation,
    made_by_go,
    refuse,
    rest,
    running_status,
    set_object,
    stand,
    terminating,
    up,
)

pytestmark = pytest.mark.asyncio
BOX = {"name": "tb", "mode": "run", "image": "tools"}


@pytest.mark.scenario("S107")
async def test_a_set_that_does_not_exist_is_done(world: World) -> None:
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes() == []
    assert world.registry.requests == []


@pytest.mark.scenario("S107")
async def test_a_set_that_vanishes_under_the_pass_is_done(world: World) -> None:
    world.apply()
    world.observe()
    world.api.remove("set", "ns", "demo")
    outcome = await world.reconcile()
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes() == []


@pytest.mark.scenario("S108")
async def test_a_new_set_is_listed_then_made_then_reported_in_one_pass(world: World) -> None:
    """The Go operator needs three passes and writes no status before the third (W-23); finalizer first, as there."""
    world.apply()
    outcome = await world.run()
    assert world.writes() == ["patch set/demo", "create pod/demo-0", "patch/status set/demo"]
    assert bodies(world, 0, "patch set/demo") == [
        {
            "metadata": {
                "annotations": {keys.DELETE_VM_NAMES: VM},
                "finalizers": ["cocoonset.cocoonstack.io/finalizer"],
            }
        }
    ]
    assert asked(world) == [GET]
    assert world.phase == "Pending"
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S108")
async def test_other_finalizers_are_kept(world: World) -> None:
    world.apply()
    world.api.patch("set", "ns", "demo", {"metadata": {"finalizers": ["user/one"]}}, by="user")
    await world.run()
    assert world.set()["metadata"]["finalizers"] == ["user/one", keys.SET_FINALIZER]


@pytest.mark.scenario("S108")
async def test_nothing_is_made_before_the_finalizer_is_stored(world: World) -> None:
    world.apply()
    refuse(world, "patch demo", ForbiddenError("webhook is down", status=403))
    outcome = await world.run()
    assert outcome.error is not None
    assert world.pod() is None
    assert world.writes() == ["patch/status set/demo"]
    assert "webhook is down" in world.condition("Ready")["message"]


@pytest.mark.scenario("S110")
async def test_a_running_set_waits_for_events_alone(world: World) -> None:
    await up(world)
    outcome = await world.run()
    assert world.phase == "Running"
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S111")
async def test_while_main_is_not_ready_nothing_else_is_touched(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 2}, "toolboxes": [BOX]}
    target = set_object(**options)
    made_by_go(world, {"phase": "Running"}, **options)
    stand(world, built_main(target), annotations=AWAKE, status=running_status(ready=False))
    stand(world, built_sub(target), annotations=AWAKE, status={"phase": "Failed"})
    await world.run()
    mark = world.mark
    await world.run()
    assert world.writes(mark) == []
    assert sorted(pod["metadata"]["name"] for pod in world.api.list("pod")) == ["demo-0", "demo-1"]
    assert world.phase == "Pending"


@pytest.mark.scenario("S112")
async def test_a_terminating_main_is_waited_for_by_its_deletion(world: World) -> None:
    """The Go operator polls every 5 s; here the pod's deletion is the event. The status says what is waited for (W-23)."""
    await up(world)
    terminating(world)
    mark, requests = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert world.writes(mark) == ["patch/status set/demo"]
    assert asked(world, requests) == []
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert "demo-0" in world.condition("Progressing")["message"]
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S112")
async def test_a_terminating_main_that_the_cache_does_not_show_is_found_by_the_create(world: World) -> None:
    await up(world)
    terminating(world)
    world.observe()
    del world.cache.objects[("pod", "ns", "demo-0")]
    mark = world.mark
    outcome = await world.reconcile()
    assert [write for write in world.writes(mark) if "pod" in write] == []
    assert outcome.error is None
    assert events(world) == []
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S113")
async def test_every_pod_is_stamped_with_the_generation(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 2}}
    target = set_object(**options)
    made_by_go(world, {"phase": "Running"}, **options)
    unstamped = {**AWAKE, keys.GENERATION: None}
    stand(world, built_main(target), annotations=AWAKE, status=running_status())
    stand(world, built_sub(target), annotations=unstamped, status=running_status())
    stand(world, built_sub(target, "2"), annotations={**AWAKE, keys.GENERATION: "two"}, status=running_status())
    for policy in ("never", "main-only", "never", "main-only", "never", "always"):
        world.edit(snapshotPolicy=policy)
    await world.run()
    assert world.set()["metadata"]["generation"] == 7
    for pod in ("demo-0", "demo-1", "demo-2"):
        assert annotations_of(world, pod)[keys.GENERATION] == "7"
    assert world.set()["status"]["observedGeneration"] == 7


@pytest.mark.scenario("S114")
async def test_a_stamped_pod_is_not_patched(world: World) -> None:
    await up(world)
    mark = world.mark
    world.start_operator()
    await world.settle()
    assert world.writes(mark) == []


@pytest.mark.scenario("S115")
async def test_a_stamp_that_fails_leaves_no_flag_without_stamp(world: World) -> None:
    """Stamp and flag are one patch here (W-35), so neither can be there without the other; the status says what failed."""
    await up(world)
    world.edit(suspend=True)
    refuse(world, "patch demo-0", UnavailableError("etcd is away", status=503))
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert world.writes(mark) == ["patch/status set/demo"]
    assert annotations_of(world)[keys.GENERATION] == "1"
    assert keys.HIBERNATE not in annotations_of(world)
    assert world.phase == "Suspending"
    assert world.condition("Ready")["message"] == "etcd is away"


@pytest.mark.scenario("S115")
async def test_a_stamp_that_fails_on_one_pod_does_not_keep_the_others_from_theirs(world: World) -> None:
    """Design, section 3: the failure of one part does not stop the others (W-50, W-52)."""
    options: dict[str, Any] = {"agent": {"replicas": 1}}
    target = set_object(**options)
    made_by_go(world, {"phase": "Running"}, **options)
    for body in (built_main(target), built_sub(target)):
        stand(world, body, annotations=AWAKE, status=running_status())
    world.edit(snapshotPolicy="never")
    refuse(world, "patch demo-0", UnavailableError("etcd is away", status=503))
    outcome = await world.run()
    assert outcome.error is not None
    assert annotations_of(world, "demo-1")[keys.GENERATION] == "2"


@pytest.mark.scenario("S116")
async def test_a_drifted_main_is_made_again(world: World) -> None:
    """The status is written (W-23), everything else as in the Go operator."""
    await up(world)
    stand(world, built_sub(set_object(agent={"replicas": 1})), annotations=AWAKE, status=running_status())
    world.edit(agent={"image": "other"})
    mark, requests = world.mark, len(world.registry.requests)
    await world.run()
    assert world.writes(mark) == ["delete pod/demo-0", "patch pod/demo-1", "patch/status set/demo"]
    assert bodies(world, mark, "patch pod/demo-1") == [{"metadata": {"annotations": {keys.GENERATION: "2"}}}]
    assert world.phase == "Pending"
    await world.settle()
    assert sorted(asked(world, requests)) == ["DELETE vk-ns-demo-1:hibernate", GET], "the surplus slot's tag goes along"
    assert annotations_of(world)[keys.IMAGE] == "other"
    assert keys.RESTORE not in annotations_of(world)
    assert world.memory() == []


@pytest.mark.scenario("S119")
async def test_a_set_that_waits_for_the_registry_does_not_delay_another(world: World) -> None:
    world.apply("slow")
    world.apply("quick")
    world.observe()
    answered = asyncio.Event()
    inspect = world.registry.inspect

    async def slow(vm_name: str, reference: str) -> Answer:
        if vm_name == "vk-ns-slow-0":
            await answered.wait()
        return await inspect(vm_name, reference)

    world.registry.inspect = slow  # type: ignore[method-assign]
    blocked = asyncio.create_task(world.reconciler.reconcile(world.view("slow")))
    await asyncio.sleep(0)
    outcome = await asyncio.wait_for(world.reconciler.reconcile(world.view("quick")), 5)
    assert outcome.error is None
    assert world.pod("quick-0") is not None
    assert world.pod("slow-0") is None
    answered.set()
    await asyncio.wait_for(blocked, 5)
    assert world.pod("slow-0") is not None


@pytest.mark.scenario("S117")
async def test_a_hibernation_of_another_pod_changes_nothing(world: World) -> None:
    await up(world)
    hibernation(world, "other-0")
    mark = world.mark
    await world.settle()
    assert [write for write in world.writes(mark) if "hibernation/" not in write] == []


@pytest.mark.scenario("S217")
async def test_a_pinned_main_that_found_no_node_is_pending(world: World) -> None:
    world.agent.capacity = False
    world.apply(nodeName="node-b")
    await world.settle()
    assert world.phase == "Pending"
    assert world.registry.requests == [GET]
    mark = world.mark
    await world.run()
    assert world.writes(mark) == []
    world.agent.capacity = True
    await world.settle()
    assert world.phase == "Running"
    assert world.set()["status"]["agents"][0]["podName"] == "demo-0"


@pytest.mark.scenario("S111", "S110")
async def test_readiness_lost_and_found_is_followed(world: World) -> None:
    await up(world)
    agent_shows(world, running_status(ready=False))
    await world.run()
    assert world.phase == "Pending"
    agent_shows(world, running_status())
    mark = world.mark
    await world.run()
    assert world.phase == "Running"
    assert world.writes(mark) == ["patch/status set/demo"]


async def test_a_refused_create_is_reported_and_tried_again(world: World) -> None:
    """An admission or quota that says no (W-23): the reason is in the status and in one event."""
    world.apply()
    refuse(world, "create demo-0", ForbiddenError("exceeded quota: pods", status=403))
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Ready")["message"] == "exceeded quota: pods"
    assert events(world) == [("Warning", "CreateFailed", "pod demo-0: exceeded quota: pods")]
    assert world.writes() == ["patch set/demo", "patch/status set/demo"]
    world.hook = lambda _moment, _call: None
    await world.settle()
    assert world.phase == "Running"


@pytest.mark.scenario("S086")
async def test_a_toolbox_of_the_go_operator_is_left_as_it_is(world: World) -> None:
    target = set_object(toolboxes=[BOX])
    made_by_go(world, {"phase": "Running"}, toolboxes=[BOX])
    stand(world, built_main(target), annotations=AWAKE, status=running_status())
    stand(world, built_toolbox(target), annotations=AWAKE, status=running_status())
    await world.run()
    assert [write for write in world.writes() if "pod" in write] == []
