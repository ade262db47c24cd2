"""Suspend with policy release: the seat of a saved VM is freed (contract 4.5, scenarios J)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import ConflictError, ForbiddenError, UnavailableError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    HEAD,
    SLEEPING,
    TAG,
    VM,
    agent_says,
    annotations_of,
    asked,
    asleep,
    bodies,
    built_main,
    built_sub,
    counters,
    events,
    heal,
    made_by_go,
    refuse,
    rest,
    saved,
    set_object,
    stand,
    up,
)

pytestmark = pytest.mark.asyncio

DELETED = "slot_release_pods_deleted_total{cocoonset=demo,namespace=ns}"


async def hibernated(world: World, **spec: Any) -> int:
    """A set whose VM was saved and whose operator has not seen it yet; returns the mark before the release."""
    await up(world, hibernatePolicy="release", **spec)
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    return world.mark


@pytest.mark.scenario("S144", "S138")
async def test_without_a_registry_nothing_is_released(world: World) -> None:
    """No registry that answers, to be exact: the operator does not start without one."""
    mark = await hibernated(world)
    world.registry.down = "connection refused"
    outcome = await world.run()
    assert outcome.error is not None
    assert [w for w in world.writes(mark) if "pod" in w or w == "patch set/demo"] == []
    assert world.pod() is not None
    assert world.phase == "Suspending"


@pytest.mark.scenario("S145", "S146")
async def test_a_set_born_suspended_is_never_booted(world: World) -> None:
    """Design 4: and boots fresh on unsuspend, for no save is on record."""
    world.apply(hibernatePolicy="release", suspend=True)
    await world.settle()
    assert world.phase == "Suspended"
    assert world.writes() == ["patch set/demo", "patch/status set/demo"]
    assert world.agent.history == []
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (None, None)
    world.edit(suspend=False)
    await world.settle()
    assert world.phase == "Running"
    assert world.agent.history == [f"booted {VM}"]
    assert keys.RESTORE not in annotations_of(world)


@pytest.mark.scenario("S147", "S148")
async def test_a_hibernated_main_without_tag_survives(world: World) -> None:
    mark = await hibernated(world)
    world.registry.tags.clear()
    await world.run()
    assert world.pod() is not None
    assert world.phase == "Suspending"
    assert world.writes(mark) == ["patch/status set/demo"]
    assert world.annotation(keys.HINT_NODE) is None


@pytest.mark.scenario("S147", "S148")
@pytest.mark.parametrize("steps", range(5))
async def test_a_vm_that_is_on_its_way_to_sleep_survives(world: World, steps: int) -> None:
    await up(world, hibernatePolicy="release")
    saved(world, memory=["older"])
    world.edit(suspend=True)
    await world.run()
    for _ in range(steps):
        world.agent.step("ns", "demo-0")
    if annotations_of(world).get(keys.LIFECYCLE_STATE) == "hibernated":
        pytest.fail("the model hibernates in fewer steps than this test takes")
    outcome = await world.run()
    assert world.pod() is not None
    assert world.phase == "Suspending"
    assert outcome.error is None


@pytest.mark.scenario("S149", "S153", "S157")
async def test_a_saved_main_is_released_in_this_order(world: World) -> None:
    mark = await hibernated(world)
    digest, before = world.tag(), len(world.registry.requests)
    outcome = await world.run()
    assert world.writes(mark) == [
        "patch set/demo",
        "patch pod/demo-0",
        "delete pod/demo-0",
        "patch/status set/demo",
    ]
    assert bodies(world, mark, "patch set/demo") == [
        {
            "metadata": {
                "annotations": {
                    keys.HINT_NODE: "node-a",
                    keys.SNAPSHOT_DIGESTS: json.dumps({VM: digest}, separators=(",", ":")),
                }
            }
        }
    ]
    assert bodies(world, mark, "patch pod/demo-0") == [{"metadata": {"annotations": {keys.KEEP_SNAPSHOT: "true"}}}]
    assert asked(world, before) == [HEAD]
    assert world.annotation(keys.HINT_NODE) == "node-a"
    assert world.annotation(keys.DELETE_VM_NAMES) == VM
    assert world.phase == "Suspended"
    assert world.tag() == digest
    assert counters(world) == {DELETED: 1}
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S149")
async def test_names_of_the_status_and_of_pods_are_written_down(world: World) -> None:
    """A set of the Go operator has no list: what it knew goes in with the hint, as 4.5 step 4 says."""
    made_by_go(
        world,
        {"phase": "Suspending", "agents": [{"slot": 3, "role": "sub-agent", "vmName": "vk-ns-demo-3"}]},
        hibernatePolicy="release",
        suspend=True,
    )
    stand(world, built_main(set_object()), annotations=SLEEPING, status={"phase": "Pending"})
    digest = saved(world)
    await rest(world)
    assert world.annotation(keys.DELETE_VM_NAMES) == f"{VM},vk-ns-demo-3"
    assert world.annotation(keys.SNAPSHOT_DIGESTS) == json.dumps({VM: digest}, separators=(",", ":"))
    assert world.pod() is None
    assert world.phase == "Suspended"


@pytest.mark.scenario("S150", "S158")
async def test_a_dead_pod_that_is_left_is_kept_and_not_looked_at_again(world: World) -> None:
    """Legacy W-27: the Go operator repeats the release every 5 s for ever."""
    made_by_go(world, {"phase": "Suspending"}, hibernatePolicy="release", suspend=True)
    body = built_sub(set_object(agent={"replicas": 1}))
    stand(world, body, annotations={**AWAKE, keys.HIBERNATE: "true"}, status={"phase": "Failed"})
    await world.run()
    assert world.phase == "Suspended"
    assert world.pod("demo-1") is not None
    assert world.annotation(keys.HINT_NODE) is None
    mark = world.mark
    outcome = await world.run()
    assert world.writes(mark) == []
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert counters(world) == {}


@pytest.mark.scenario("S151")
async def test_the_stored_pod_carries_the_keep_flag_when_it_is_deleted(world: World) -> None:
    await hibernated(world)
    kept: list[bool] = []

    def hook(moment: str, call: str) -> None:
        if (moment, call) == ("before", "delete demo-0"):
            kept.append(annotations_of(world)[keys.KEEP_SNAPSHOT] == "true")

    world.hook = hook
    await world.run()
    assert kept == [True]
    assert world.phase == "Suspended"


@pytest.mark.scenario("S152")
async def test_a_refused_keep_flag_does_not_hold_back_the_release(world: World) -> None:
    mark = await hibernated(world)
    refuse(world, "patch demo-0", ForbiddenError("no annotations today", status=403))
    outcome = await world.run()
    assert outcome.error is None
    assert world.writes(mark) == ["patch set/demo", "delete pod/demo-0", "patch/status set/demo"]
    assert world.phase == "Suspended"
    assert [reason for _, reason, _ in events(world)] == ["KeepSnapshotFailed"]


@pytest.mark.scenario("S152")
async def test_a_pod_that_changed_under_the_keep_flag_is_looked_at_again(world: World) -> None:
    """The answer of the keep patch is not what the gate saw: a VM may have woken, so the pod is not deleted (I1)."""
    await hibernated(world)
    world.observe()
    agent_says(world, {keys.LIFECYCLE_STATE: "creating"})
    mark = world.mark
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert "delete pod/demo-0" not in world.writes(mark)
    assert world.phase == "Suspending"
    agent_says(world, {keys.LIFECYCLE_STATE: "hibernated"})
    await rest(world)
    assert world.phase == "Suspended"
    assert world.pod() is None


@pytest.mark.scenario("S152")
async def test_a_change_that_says_nothing_of_the_vm_does_not_hold_back_the_release(world: World) -> None:
    """The keep flag is patched by UID alone, and the delete goes by the answer's resourceVersion: no conflict, no retry."""
    await hibernated(world)
    world.observe()
    agent_says(world, {"somebody/else": "x"})
    outcome = await world.reconcile()
    assert outcome.error is None
    assert world.phase == "Suspended"


@pytest.mark.scenario("S154")
async def test_after_the_release_the_status_lists_nothing(world: World) -> None:
    """The Go operator lists the pod once more; here the pod that was deleted is out of the pass's own view (W-59)."""
    await asleep(world, hibernatePolicy="release")
    await rest(world)
    status = world.set()["status"]
    assert "agents" not in status
    assert status["readyAgents"] == 0
    assert status["phase"] == "Suspended"
    assert world.condition("Ready")["status"] == "False"
    outcome = await world.run()
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S155")
async def test_a_refused_delete_is_no_release_and_is_repeated(world: World) -> None:
    await hibernated(world)
    refuse(world, "delete demo-0", UnavailableError("timeout", status=504))
    for _ in range(2):
        outcome = await world.run()
        assert outcome.error is not None
        assert world.phase == "Suspending"
        assert world.pod() is not None
    assert counters(world) == {}
    heal(world)
    mark = world.mark
    await rest(world)
    assert world.writes(mark) == ["delete pod/demo-0", "patch/status set/demo"]
    assert world.phase == "Suspended"
    assert counters(world) == {DELETED: 1}
    assert world.annotation(keys.HINT_NODE) == "node-a"


@pytest.mark.scenario("S156")
async def test_a_main_without_node_leaves_no_hint(world: World) -> None:
    made_by_go(world, {"phase": "Suspending"}, hibernatePolicy="release", suspend=True)
    stand(world, built_main(set_object()), node="", annotations=SLEEPING, status={"phase": "Pending"})
    saved(world)
    await world.run()
    assert world.phase == "Suspended"
    assert world.pod() is None
    assert world.annotation(keys.HINT_NODE) is None


@pytest.mark.scenario("S157")
async def test_every_accepted_delete_is_counted(world: World) -> None:
    made_by_go(world, {"phase": "Suspending"}, hibernatePolicy="release", suspend=True)
    target = set_object(agent={"replicas": 1})
    for body in (built_main(target), built_sub(target)):
        stand(world, body, annotations=SLEEPING, status={"phase": "Pending"})
    saved(world)
    saved(world, "vk-ns-demo-1")
    await world.run()
    assert counters(world) == {DELETED: 2}
    assert world.phase == "Suspended"


@pytest.mark.scenario("S149")
async def test_a_policy_edit_of_a_sleeping_set_releases_its_seat(world: World) -> None:
    """The generation moves, so the agent has to echo it first; then the seat goes."""
    digest = await asleep(world)
    world.edit(hibernatePolicy="release")
    await world.run()
    assert world.pod() is not None
    assert world.phase == "Suspending"
    await rest(world)
    assert world.phase == "Suspended"
    assert world.pod() is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) == json.dumps({VM: digest}, separators=(",", ":"))


@pytest.mark.scenario("S149", "S155")
@pytest.mark.parametrize("call", ["patch demo", "patch demo-0", "delete demo-0", "patchstatus demo"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_crash_anywhere_in_the_release_is_gone_on_from(world: World, call: str, moment: str) -> None:
    """4.17: what a later step needs is stored before the step that destroys its source (I5)."""
    await hibernated(world)
    digest = world.tag()

    class CrashError(BaseException):
        pass

    def hook(happening: str, what: str) -> None:
        if (happening, what) == (moment, call):
            raise CrashError

    world.hook = hook
    with pytest.raises(CrashError):
        await world.run()
    heal(world)
    world.start_operator()
    if world.pod() is None or world.pod("demo-0")["metadata"].get("deletionTimestamp"):  # type: ignore[index]
        assert world.annotation(keys.HINT_NODE) == "node-a"
        assert world.annotation(keys.DELETE_VM_NAMES) == VM
    await rest(world)
    assert world.phase == "Suspended"
    assert world.pod() is None
    assert world.tag() == digest
    world.edit(suspend=False)
    await rest(world)
    assert world.memory() == ["work"]
    assert asked(world)[-1] == f"DELETE {TAG}"
