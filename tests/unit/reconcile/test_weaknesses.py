"""What the Go operator gets wrong and must not come back (contract, section 10), each by its number."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import ConflictError, NotFoundError
from tests.model.apiserver import cocoonset
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    DROP,
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
    counters,
    events,
    heal,
    hibernation,
    made_by_go,
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

POD = ("pod", "ns", "demo-0")


def pod_writes(world: World, since: int = 0) -> list[str]:
    return [write for write in world.writes(since) if "pod/" in write]


def orphan(digest: str) -> str:
    return f"orphan-{digest.removeprefix('sha256:')[:12]}"


async def released(world: World, **spec: Any) -> str:
    digest = await asleep(world, hibernatePolicy="release", **spec)
    await rest(world)
    assert world.pod() is None
    return digest


# -- possible loss of VM state -------------------------------------------------------------------------------------------


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


# -- loops, churn, crashes -----------------------------------------------------------------------------------------------


@pytest.mark.scenario("S082", "S083")
@pytest.mark.parametrize("from_go", [False, True])
async def test_w10_resources_that_the_api_changes_do_not_recreate_the_vm(world: World, from_go: bool) -> None:
    agent = {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}}
    body = built_main(set_object(agent=agent))
    body["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1", "memory": "4Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }
    if from_go:
        del body["metadata"]["annotations"][keys.APPLIED_RESOURCES]
    made_by_go(world, {"phase": "Running"}, agent=agent)
    stand(world, body, annotations=AWAKE, status=running_status())
    await rest(world)
    assert pod_writes(world) == []
    assert world.phase == "Running"


@pytest.mark.scenario("S084")
@pytest.mark.parametrize(
    ("edit", "key", "value"),
    [
        ({"snapshotPolicy": "never"}, keys.SNAPSHOT_POLICY, "never"),
        ({"agent": {"connType": "rdp"}}, keys.CONN_TYPE, "rdp"),
        ({"agent": {"forcePull": True}}, keys.FORCE_PULL, "true"),
    ],
)
async def test_w12_what_the_agent_reads_later_is_patched_in_place(
    world: World, edit: dict[str, Any], key: str, value: str
) -> None:
    await up(world)
    mark = world.mark
    world.edit(**edit)
    await rest(world)
    assert bodies(world, mark, "patch pod/demo-0") == [
        {"metadata": {"annotations": {key: value, keys.GENERATION: "2"}}}
    ]
    assert pod_writes(world, mark) == ["patch pod/demo-0"]
    assert world.memory() == ["work"]


async def test_w25_a_foreign_pod_with_mains_name_is_told_and_waited_out(world: World) -> None:
    world.api.create("pod", {"metadata": {"name": "demo-0", "namespace": "ns", "labels": {}}, "spec": {}}, by="user")
    world.apply()
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (30, None)
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "PodNameCollision")
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "PodNameCollision")]
    assert pod_writes(world) == []
    world.api.remove("pod", "ns", "demo-0")
    world.clock.advance(30)
    await rest(world)
    assert world.phase == "Running"


async def test_w25_two_sets_that_share_a_vm_name_do_not_share_a_tag(world: World) -> None:
    world.api.create("set", cocoonset("b-c", "a"), by="user")
    await world.settle("b-c", "a")
    world.clock.advance(1)
    world.api.create("set", cocoonset("c", "a-b"), by="user")
    await world.settle("c", "a-b")
    assert world.pod("c-0", "a-b") is None
    world.api.patch("set", "a", "b-c", {"spec": {"suspend": True}}, by="user")
    await world.settle("b-c", "a")
    digest = world.tag("vk-a-b-c-0")
    assert digest is not None
    await world.settle("c", "a-b")
    assert world.tag("vk-a-b-c-0") == digest
    assert [e[1] for e in events(world)] == ["NameCollision"]
    world.api.delete("set", "a-b", "c", by="user")
    await world.settle("c", "a-b")
    assert world.tag("vk-a-b-c-0") == digest


@pytest.mark.scenario("S133")
async def test_w26_a_suspend_under_a_terminating_main_is_no_error(world: World) -> None:
    await up(world)
    terminating(world)
    world.edit(suspend=True)
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S158")
async def test_w27_a_release_with_dead_pods_left_ends(world: World) -> None:
    made_by_go(world, {"phase": "Suspending"}, hibernatePolicy="release", suspend=True)
    body = built_sub(set_object(agent={"replicas": 1}))
    stand(world, body, annotations={keys.HIBERNATE: "true"}, status={"phase": "Failed"})
    await world.run()
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes(mark) == []
    assert world.phase == "Suspended"


@pytest.mark.scenario("S155")
async def test_w34_a_namesake_that_was_made_since_is_not_deleted(world: World) -> None:
    """The stale view fails by its UID instead of acting."""
    await up(world)
    world.edit(agent={"image": "other"})
    world.observe()
    stale = copy.deepcopy(world.cache.objects[POD])
    await rest(world)
    assert annotations_of(world)[keys.IMAGE] == "other"
    world.agent.work(VM, "new")
    world.cache.gone.clear()
    world.cache.objects[POD] = stale
    mark = world.mark
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert pod_writes(world, mark) == []
    assert world.memory() == ["new"]


@pytest.mark.scenario("S155")
async def test_w34_a_pod_that_woke_since_is_not_released(world: World) -> None:
    """The resourceVersion is a precondition too: same pod, other state."""
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.observe()
    agent_says(world, {keys.HIBERNATE: None})
    world.agent.run()
    assert world.memory() == ["work"]
    mark = world.mark
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert "delete pod/demo-0" not in world.writes(mark)
    assert world.memory() == ["work"]


@pytest.mark.scenario("S256")
async def test_w36_a_terminating_pod_is_not_deleted_again(world: World) -> None:
    await up(world)
    world.delete_set()
    mark = world.mark
    for _ in range(3):
        await world.run()
    assert world.writes(mark) == ["delete pod/demo-0"]


async def test_w52_a_pod_that_vanishes_under_its_patch_does_not_stop_the_pass(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 1}}
    target = set_object(**options)
    made_by_go(world, {"phase": "Running"}, **options)
    for body in (built_main(target), built_sub(target)):
        stand(world, body, annotations=AWAKE, status=running_status())
    world.edit(suspend=True)
    world.observe()
    world.api.remove("pod", "ns", "demo-1")
    outcome = await world.reconcile()
    assert outcome.error is None
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.phase == "Suspending"
    assert [agent["podName"] for agent in world.set()["status"]["agents"]] == ["demo-0"]


async def test_w52_a_main_that_vanishes_under_its_stamp_is_made_again(world: World) -> None:
    await up(world)
    world.edit(snapshotPolicy="never")
    refuse(world, "patch demo-0", NotFoundError("gone", status=404))
    outcome = await world.run()
    assert outcome.error is None
    heal(world)
    world.delete_pod()
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.parametrize("lifecycle", ["ready", ""])
async def test_w54_a_main_that_ended_successfully_is_failed(world: World, lifecycle: str) -> None:
    await up(world)
    agent_says(world, {keys.LIFECYCLE_STATE: lifecycle or None})
    agent_shows(world, {"phase": "Succeeded", "conditions": running_status(ready=False)["conditions"]})
    for _ in range(2):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.phase == "Failed"
    assert events(world) == [("Warning", "MainAgentFailed", "main pod ns/demo-0: Succeeded")]


# -- status, events, metrics ---------------------------------------------------------------------------------------------


async def test_w23_every_pass_leaves_a_status(world: World) -> None:
    """On creation, a drift delete, an error of the registry, an error of the API server, a spec that cannot be read."""
    world.apply()
    await world.run()
    assert world.set()["status"]["observedGeneration"] == 1
    await rest(world)
    world.edit(agent={"image": "other"})
    await world.run()
    assert (world.set()["status"]["observedGeneration"], world.phase) == (2, "Pending")
    await rest(world)
    world.delete_pod()
    world.registry.down = "503 Service Unavailable"
    world.edit(snapshotPolicy="never")
    await world.run()
    assert world.set()["status"]["observedGeneration"] == 3
    assert world.condition("Ready")["message"] == "503 Service Unavailable"
    world.registry.down = ""
    world.edit(hibernatePolicy="release", agent={"replicas": 1})
    await world.run()
    assert world.set()["status"]["observedGeneration"] == 4
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    assert ready["message"] == "spec.hibernatePolicy: release requires agent.replicas=0 and no toolboxes"


@pytest.mark.scenario("S106")
async def test_w24_ready_and_progressing_follow_the_phase(world: World) -> None:
    seen: list[tuple[str, str, str]] = []

    def look() -> None:
        conditions = (world.condition("Ready")["status"], world.condition("Progressing")["status"])
        if not seen or seen[-1][0] != world.phase:
            seen.append((world.phase, *conditions))

    await up(world, hibernatePolicy="release")
    look()
    world.edit(suspend=True)
    await world.run()
    look()
    await rest(world)
    look()
    world.edit(suspend=False)
    await world.run()
    look()
    await rest(world)
    look()
    assert seen == [
        ("Running", "True", "False"),
        ("Suspending", "False", "True"),
        ("Suspended", "False", "False"),
        ("Waking", "False", "True"),
        ("Running", "True", "False"),
    ]


@pytest.mark.scenario("S124", "S171")
async def test_w31_incidents_are_counted_not_passes(world: World) -> None:
    await released(world)
    world.measures.counts.clear()
    world.agent.capacity = False
    world.edit(suspend=False)
    await rest(world)
    for _ in range(3):
        world.start_operator()
        await world.run()
    assert counters(world) == {"slot_release_wake_unschedulable_total{cocoonset=demo,namespace=ns}": 1}
    assert [reason for _, reason, _ in events(world)] == ["WakeNoCapacity"]
    world.agent.capacity = True
    await rest(world)
    world.measures.counts.clear()
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "gone"})
    for _ in range(3):
        world.start_operator()
        await world.run()
    assert counters(world) == {"lifecycle_state_failed_observed_total{phase=Running}": 1}
    assert [reason for _, reason, _ in events(world)] == ["WakeNoCapacity", "PodLifecycleFailed"]


@pytest.mark.scenario("S157")
async def test_w32_a_pod_that_was_gone_already_is_not_counted_as_released(world: World) -> None:
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.observe()

    def hook(moment: str, call: str) -> None:
        if (moment, call) == ("before", "delete demo-0"):
            world.delete_pod()

    world.hook = hook
    await world.reconcile()
    heal(world)
    await rest(world)
    assert world.phase == "Suspended"
    assert counters(world) == {}


async def test_w47_a_name_that_is_no_label_value_is_told(world: World) -> None:
    name = "x" * 64
    world.apply(name)
    for _ in range(3):
        outcome = await world.run(name)
        assert outcome.error is None
    assert world.api.list("pod") == []
    conditions = world.set(name)["status"]["conditions"]
    ready = next(c for c in conditions if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "InvalidSpec")
    assert ready["message"].startswith("metadata.name: 64 characters")
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "InvalidSpec")]
    world.delete_set(name)
    await world.settle(name)
    assert world.api.list("set") == []


async def test_w47_a_name_of_63_characters_works(world: World) -> None:
    name = "x" * 63
    world.apply(name)
    await world.settle(name)
    assert world.set(name)["status"]["phase"] == "Running"


@pytest.mark.scenario("S104")
async def test_w55_counters_are_always_stored(world: World) -> None:
    world.agent.capacity = False
    world.apply()
    await rest(world)
    status = world.set()["status"]
    found = {key: status[key] for key in ("readyAgents", "desiredAgents", "readyToolboxes", "desiredToolboxes")}
    assert found == {"readyAgents": 0, "desiredAgents": 1, "readyToolboxes": 0, "desiredToolboxes": 0}
    del world.api.objects[("set", "ns", "demo")]["status"]["readyToolboxes"]
    world.start_operator()
    world.clock.advance(10)
    await rest(world)
    assert world.set()["status"]["readyToolboxes"] == 0


@pytest.mark.scenario("S261")
async def test_w57_the_users_spec_is_not_rewritten(world: World) -> None:
    spec: dict[str, Any] = {
        "agent": {"image": "base", "storage": "1024Gi", "forcePull": False, "probePort": 0, "network": ""},
        "toolboxes": [],
        "suspend": False,
    }
    world.apply(**copy.deepcopy(spec))
    before = world.set()["spec"]
    await rest(world)
    world.delete_set()
    await world.run()
    for write in world.api.writes:
        if write.by == "operator" and write.kind == "set":
            assert "spec" not in write.body
    assert world.set()["spec"] == before


@pytest.mark.scenario("S103")
async def test_w60_a_status_is_compared_with_the_newest_one(world: World) -> None:
    """A phase that was overwritten in the meantime is written again though the watch shows none of our status writes."""
    await up(world)
    world.edit(suspend=True)
    world.observe()
    await world.reconcile()
    assert world.phase == "Suspending"
    world.edit(suspend=False)
    agent_says(world, {keys.LIFECYCLE_GENERATION: "3"})
    world.observe()
    await world.reconcile()
    assert world.phase == "Running"
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    mark = world.mark
    await world.reconcile()
    assert world.writes(mark) == []


@pytest.mark.scenario("S103")
async def test_w60_a_run_behind_the_watch_fails_instead_of_showing_an_old_phase(world: World) -> None:
    """Somebody else's write since: the patch's resourceVersion does not fit, and the next run sees it."""
    await up(world)
    world.observe()
    agent_shows(world, running_status(ready=False))
    world.observe()
    world.api.patch("set", "ns", "demo", {"status": {"phase": "Suspending"}}, by="go", subresource="status")
    outcome = await world.reconcile()
    assert isinstance(outcome.error, ConflictError)
    assert world.phase == "Suspending"
    agent_shows(world, running_status())
    await rest(world)
    assert world.phase == "Running"


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


async def test_w47_a_set_whose_name_is_no_label_value_can_be_deleted(world: World) -> None:
    """Its pods cannot be asked for by label, and it never had any."""
    name = "n" * 64
    world.apply(name)
    await world.settle(name)
    world.delete_set(name)
    await world.settle(name)
    assert world.api.get("set", "ns", name) is None


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
