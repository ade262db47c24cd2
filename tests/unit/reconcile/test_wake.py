"""Wake of a released seat (contract 4.7, scenarios K; design 4.3)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import UnavailableError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    DROP,
    GET,
    HEAD,
    VM,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    asleep,
    bodies,
    built_main,
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

HINT_NODE = "slot_release_wake_total{cocoonset=demo,namespace=ns,placement=hint-node}"
POOL = "slot_release_wake_total{cocoonset=demo,namespace=ns,placement=pool}"
UNSCHEDULABLE = "slot_release_wake_unschedulable_total{cocoonset=demo,namespace=ns}"


async def released(world: World, **spec: Any) -> str:
    """A set whose seat is free; returns the digest of the save."""
    digest = await asleep(world, hibernatePolicy="release", **spec)
    await rest(world)
    assert world.pod() is None
    world.measures.counts.clear()
    return digest


async def waking(world: World, **spec: Any) -> str:
    """A released set whose wake pod was just made."""
    digest = await released(world, **spec)
    world.edit(suspend=False)
    await world.run()
    assert world.phase == "Waking"
    return digest


def affinity(world: World) -> Any:
    pod = world.pod()
    assert pod is not None
    return pod["spec"].get("affinity", {}).get("nodeAffinity", {})


# -- the pod -------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S159")
async def test_a_wake_is_announced_then_made_around_the_snapshot(world: World) -> None:
    digest = await released(world, snapshotCompatibilityClass="one")
    world.edit(suspend=False)
    mark, before = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert world.writes(mark) == ["patch/status set/demo", "create pod/demo-0"]
    assert world.phase == "Waking"
    assert world.condition("SnapshotCurrent")["reason"] == "WakeInProgress"
    assert world.set()["status"]["observedGeneration"] == 3
    pod = world.pod()
    assert pod is not None
    assert "nodeName" not in pod["spec"]
    assert pod["spec"]["nodeSelector"]["cocoonstack.io/snapshot-cpu-class"] == "one"
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a"]}
    assert affinity(world) == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [expression]}}
        ]
    }
    assert annotations_of(world)[keys.RESTORE] == "true"
    assert keys.HIBERNATE not in annotations_of(world)
    assert asked(world, before) == [GET]
    assert world.tag() == digest
    assert outcome.error is None


@pytest.mark.scenario("S160")
async def test_a_pin_takes_the_place_of_the_preference(world: World) -> None:
    await released(world)
    world.edit(suspend=False, nodeName="node-b")
    await world.run()
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-b"]}
    assert affinity(world) == {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    }
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert counters(world) == {POOL: 1}


@pytest.mark.scenario("S161")
async def test_a_fast_unsuspend_restores_though_the_phase_is_still_suspending(world: World) -> None:
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    refuse(world, "patchstatus demo", UnavailableError("timeout", status=504))
    await world.run()
    heal(world)
    world.agent.run()
    assert (world.phase, world.pod(), world.annotation(keys.HINT_NODE)) == ("Suspending", None, "node-a")
    world.edit(suspend=False)
    await world.run()
    assert world.phase == "Waking"
    assert annotations_of(world)[keys.RESTORE] == "true"
    await rest(world)
    assert world.memory() == ["work"]


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


@pytest.mark.scenario("S163", "S164")
@pytest.mark.parametrize("phase", ["Suspended", "Suspending"])
async def test_a_cached_main_that_is_gone_is_not_woken_in_place(world: World, phase: str) -> None:
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.observe()
    key = ("pod", "ns", "demo-0")
    stale = copy.deepcopy(world.cache.objects[key])
    if phase == "Suspending":
        refuse(world, "patchstatus demo", UnavailableError("timeout", status=504))
    await world.run()
    heal(world)
    world.agent.run()
    digest = world.tag()
    assert (world.phase, world.pod()) == (phase, None)
    world.edit(suspend=False)
    world.observe()
    world.cache.gone.clear()
    world.cache.objects[key] = stale
    await world.reconcile()
    assert world.tag() == digest
    if world.pod() is not None:
        assert annotations_of(world)[keys.RESTORE] == "true"
    world.start_operator()
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S165")
async def test_a_main_that_really_exists_is_woken_in_place(world: World) -> None:
    """And the hint goes (W-46): nothing of the interrupted release is left behind."""
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    refuse(world, "delete demo-0", UnavailableError("timeout", status=504))
    await world.run()
    heal(world)
    assert (world.phase, world.annotation(keys.HINT_NODE)) == ("Suspending", "node-a")
    world.edit(suspend=False)
    mark = world.mark
    await world.run()
    assert "patch pod/demo-0" in world.writes(mark)
    assert keys.HIBERNATE not in annotations_of(world)
    assert keys.KEEP_SNAPSHOT not in annotations_of(world)
    await rest(world)
    assert world.phase == "Running"
    assert [w for w in world.writes(mark) if w.startswith(("create", "delete"))] == []
    assert world.memory() == ["work"]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
    assert counters(world) == {}


@pytest.mark.scenario("S166")
async def test_a_live_read_that_fails_drops_nothing(world: World) -> None:
    digest = await waking(world)
    world.agent.run()
    refuse(world, "get demo-0", UnavailableError("timeout", status=504))
    before = len(world.registry.requests)
    outcome = await world.run()
    assert outcome.error is not None
    assert asked(world, before) == []
    assert world.tag() == digest
    assert world.phase == "Waking"
    heal(world)
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S167")
async def test_a_terminating_released_pod_is_waited_for(world: World) -> None:
    """Its deletion is the event; the Go operator polls every 5 s."""
    await up(world, hibernatePolicy="release")
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    await world.run()
    pod = world.pod()
    assert pod is not None
    assert pod["metadata"]["deletionTimestamp"]
    digest = world.tag()
    world.edit(suspend=False)
    mark = world.mark
    outcome = await world.run()
    assert [w for w in world.writes(mark) if "pod" in w] == []
    assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.tag() == digest
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


# -- what the registry says ----------------------------------------------------------------------------------------------


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


# -- on the way ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S170")
@pytest.mark.parametrize("steps", range(7))
async def test_while_the_vm_is_not_live_the_tag_stays(world: World, steps: int) -> None:
    digest = await waking(world)
    for _ in range(steps):
        world.agent.step("ns", "demo-0")
    assert annotations_of(world).get(keys.LIFECYCLE_STATE) != "ready"
    before = len(world.registry.requests)
    outcome = await world.run()
    assert world.tag() == digest
    assert asked(world, before) == []
    assert world.phase == "Waking"
    assert outcome.error is None
    assert world.annotation(keys.HINT_NODE) == "node-a"


@pytest.mark.scenario("S171")
async def test_a_wake_without_capacity_is_told_once(world: World) -> None:
    """Legacy W-31: event and counter grow with every pass in the Go operator; here with every incident."""
    await released(world)
    world.agent.capacity = False
    world.edit(suspend=False)
    await world.settle()
    await world.run()
    outcome = await world.run()
    message = "main pod demo-0 unschedulable: 0/2 nodes are available"
    assert events(world) == [("Warning", "WakeNoCapacity", message)]
    assert counters(world) == {UNSCHEDULABLE: 1}
    assert world.phase == "Waking"
    assert (outcome.requeue_after, outcome.error) == (None, None)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "WakeNoCapacity", message)
    world.agent.capacity = True
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S171")
@pytest.mark.parametrize(
    "condition",
    [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": ""},
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"},
        {"type": "PodScheduled", "status": "True", "reason": "Unschedulable", "message": "old"},
    ],
)
async def test_what_is_not_a_lack_of_capacity_is_not_told(world: World, condition: dict[str, str]) -> None:
    await waking(world)
    agent_shows(world, {"conditions": [condition]})
    await world.run()
    assert events(world) == []
    assert counters(world) == {}


# -- the end -------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S172", "S173", "S179")
async def test_a_live_vm_ends_the_wake(world: World) -> None:
    await waking(world)
    world.agent.run()
    mark, before = world.mark, len(world.registry.requests)
    outcome = await world.run()
    assert asked(world, before) == [DROP]
    assert world.writes(mark) == ["patch set/demo", "patch/status set/demo"]
    assert bodies(world, mark, "patch set/demo") == [
        {"metadata": {"annotations": {keys.HINT_NODE: None, keys.SNAPSHOT_DIGESTS: None}}}
    ]
    assert world.tag() is None
    assert world.phase == "Running"
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert counters(world) == {HINT_NODE: 1}
    assert (outcome.requeue_after, outcome.error) == (None, None)
    mark = world.mark
    await world.run()
    assert world.writes(mark) == []


@pytest.mark.scenario("S173")
async def test_a_live_vm_that_is_not_ready_ends_the_wake_as_pending(world: World) -> None:
    await waking(world)
    world.agent.run()
    agent_shows(world, running_status(ready=False))
    await world.run()
    assert world.tag() is None
    assert world.phase == "Pending"


@pytest.mark.scenario("S175")
async def test_a_phase_that_was_overwritten_does_not_lose_the_wake(world: World) -> None:
    await waking(world)
    world.agent.run()
    world.api.patch("set", "ns", "demo", {"status": {"phase": "Pending"}}, by="go", subresource="status")
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [DROP]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S175")
async def test_a_wake_of_the_go_operator_is_ended(world: World) -> None:
    """Swap-safe: phase, hint and a restore-marked pod are all that the Go operator leaves."""
    made_by_go(
        world, {"phase": "Waking"}, {keys.HINT_NODE: "node-a", keys.DELETE_VM_NAMES: VM}, hibernatePolicy="release"
    )
    stand(world, built_main(set_object(), restore=True), annotations=AWAKE, status=running_status())
    saved(world)
    await world.run()
    assert asked(world) == [DROP]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"


@pytest.mark.scenario("S176")
async def test_a_phase_that_was_overwritten_is_repainted_while_the_vm_is_not_live(world: World) -> None:
    digest = await waking(world)
    world.api.patch("set", "ns", "demo", {"status": {"phase": "Pending"}}, by="go", subresource="status")
    before = len(world.registry.requests)
    await world.run()
    assert world.phase == "Waking"
    assert world.tag() == digest
    assert asked(world, before) == []


@pytest.mark.scenario("S177")
async def test_after_its_wake_a_restored_main_is_like_any_other(world: World) -> None:
    await waking(world)
    await rest(world)
    assert annotations_of(world)[keys.RESTORE] == "true"
    world.start_operator()
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert (world.writes(mark), asked(world, before)) == ([], [])


@pytest.mark.scenario("S178")
async def test_a_sleeping_main_of_a_retain_set_is_not_made_again(world: World) -> None:
    await asleep(world)
    world.edit(suspend=False)
    mark, before = world.mark, len(world.registry.requests)
    await rest(world)
    assert [w for w in world.writes(mark) if w.startswith(("create", "delete"))] == []
    assert asked(world, before) == [HEAD, DROP]
    assert counters(world) == {}
    assert world.memory() == ["work"]


@pytest.mark.scenario("S179")
async def test_a_stale_waking_status_counts_nothing_again(world: World) -> None:
    await waking(world)
    await rest(world)
    stale = {"phase": "Waking", "conditions": None}
    world.api.patch("set", "ns", "demo", {"status": stale}, by="go", subresource="status")
    await world.run()
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S180")
async def test_landing_elsewhere_counts_as_pool(world: World) -> None:
    await released(world)
    world.agent.nodes = ["node-b"]
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert counters(world) == {POOL: 1}
    assert world.memory() == ["work"]


@pytest.mark.scenario("S181")
@pytest.mark.parametrize("fault", ["refuse_drops", "down"])
async def test_a_failed_drop_is_owed_and_does_not_hold_back_the_wake(world: World, fault: str) -> None:
    """Design 4: fail-closed in the Go operator, which hangs in ``Waking`` (W-14)."""
    digest = await waking(world)
    world.agent.run()
    setattr(world.registry, fault, "405 UNSUPPORTED")
    before = len(world.registry.requests)
    outcome = await world.run()
    assert asked(world, before) == [DROP]
    assert outcome.error is not None
    assert world.phase == "Running"
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("True", "AllAgentsReady")
    owed = world.condition("SnapshotCurrent")
    assert (owed["status"], owed["reason"], owed["message"]) == ("False", "TagDropPending", f"{VM}: 405 UNSUPPORTED")
    assert world.annotation(keys.HINT_NODE) is None
    assert counters(world) == {HINT_NODE: 1}
    assert [reason for _, reason, _ in events(world)] == ["TagDropPending"]
    world.start_operator()
    await world.run()
    assert world.tag() == digest
    assert [reason for _, reason, _ in events(world)] == ["TagDropPending"]
    setattr(world.registry, fault, "")
    await rest(world)
    assert world.tag() is None
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S182")
async def test_a_crash_between_drop_and_hint_is_gone_on_from(world: World) -> None:
    await waking(world)
    world.agent.run()
    refuse(world, "patch demo", UnavailableError("timeout", status=504))
    before = len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [DROP]
    assert (world.tag(), world.annotation(keys.HINT_NODE)) == (None, "node-a")
    world.start_operator()
    heal(world)
    world.measures.counts.clear()
    await rest(world)
    assert asked(world, before) == [DROP, DROP]
    assert world.annotation(keys.HINT_NODE) is None
    assert world.phase == "Running"
    assert counters(world) == {HINT_NODE: 1}
    assert events(world) == []


@pytest.mark.scenario("S182")
async def test_a_hint_that_cannot_be_removed_is_scored_once(world: World) -> None:
    """The hint is the once-only guard of the placement counter (4.7): a removal that failed did not end the wake."""
    await waking(world)
    world.agent.run()
    refuse(world, "patch demo", UnavailableError("timeout", status=504), times=2)
    await rest(world)
    await rest(world)
    assert world.phase == "Running"
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
    assert counters(world) == {HINT_NODE: 1}


@pytest.mark.scenario("S183")
async def test_a_crash_before_the_pod_is_gone_on_from(world: World) -> None:
    await released(world)
    refuse(world, "create demo-0", UnavailableError("timeout", status=504))
    world.edit(suspend=False)
    await world.run()
    assert (world.phase, world.pod()) == ("Waking", None)
    world.start_operator()
    heal(world)
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert asked(world, before) == [GET]
    assert "create pod/demo-0" in world.writes(mark)
    assert annotations_of(world)[keys.RESTORE] == "true"
    await rest(world)
    assert world.memory() == ["work"]


@pytest.mark.scenario("S184")
async def test_the_policy_of_today_does_not_matter_for_a_wake(world: World) -> None:
    await released(world)
    world.edit(hibernatePolicy="retain")
    await rest(world)
    assert world.phase == "Suspended"
    assert world.pod() is None
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


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


@pytest.mark.scenario("S186")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_another_image_gets_another_machine_and_the_snapshot_is_kept_aside(world: World, policy: str) -> None:
    """Legacy W-13; design 4: the new machine boots fresh, old memory never comes up under a new image."""
    digest = await asleep(world, hibernatePolicy=policy)
    await rest(world)
    world.edit(suspend=False, agent={"image": "other"})
    await rest(world)
    orphan = f"orphan-{digest.removeprefix('sha256:')[:12]}"
    assert world.phase == "Running"
    assert world.memory() == []
    assert world.agent.history[-1] == f"booted {VM}"
    assert annotations_of(world)[keys.IMAGE] == "other"
    assert world.tag(tag=orphan) == digest
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
    assert world.tag(tag=f"orphan-{digest.removeprefix('sha256:')[:12]}") == digest
    assert world.annotation(keys.START_FRESH) is None


@pytest.mark.scenario("S216")
async def test_the_first_pod_of_a_pinned_set_does_not_inherit_a_tag(world: World) -> None:
    """Legacy W-06: leftovers of a deleted namesake are moved aside, then main boots fresh."""
    digest = saved(world)
    world.apply(nodeName="node-b")
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == []
    assert keys.RESTORE not in annotations_of(world)
    assert world.tag(tag=f"orphan-{digest.removeprefix('sha256:')[:12]}") == digest
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "LeftoverSnapshotMoved")]


@pytest.mark.scenario("S170")
async def test_a_suspend_in_the_middle_of_a_wake_ends_asleep(world: World) -> None:
    """An edit in the middle ends where the last edit says; the digest of before or a newer one is the tag."""
    for steps in range(10):
        world = World()
        await waking(world)
        for _ in range(steps):
            world.agent.step("ns", "demo-0")
        world.edit(suspend=True)
        await rest(world)
        assert world.phase == "Suspended", steps
        assert world.pod() is None, steps
        assert world.registry.content(VM, "hibernate")["memory"] == ["work"], steps  # type: ignore[index]
        world.edit(suspend=False)
        await rest(world)
        assert world.memory() == ["work"], steps


@pytest.mark.scenario("S170", "S191")
async def test_a_waking_vm_that_a_hibernation_asks_for_ends_asleep_at_its_hands(world: World) -> None:
    """W-28: the Go operator waits in ``Waking`` for ever; here the set lets go of a VM that is held."""
    digest = await waking(world)
    hibernation(world)
    await world.run()
    assert world.tag() == digest
    mark = world.mark
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is None
    assert world.writes(mark) == []
    assert world.tag() == digest


@pytest.mark.scenario("S167", "S170")
async def test_a_wake_pod_that_is_deleted_is_made_again(world: World) -> None:
    await waking(world)
    world.agent.step("ns", "demo-0")
    terminating(world)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


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
    assert world.tag(tag=f"orphan-{digest.removeprefix('sha256:')[:12]}") == digest


@pytest.mark.scenario("S181")
async def test_while_a_drop_is_owed_no_flag_is_set(world: World) -> None:
    """Design 4.3 rule 2: a late effect of the unanswered drop could hit the new save."""
    await waking(world)
    world.agent.run()
    world.registry.down = "no answer"
    await world.run()
    assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    world.edit(suspend=True)
    for _ in range(3):
        outcome = await world.run()
        world.agent.run()
        assert outcome.error is not None
        assert keys.HIBERNATE not in annotations_of(world)
        assert world.condition("SnapshotCurrent")["reason"] == "TagDropPending"
    world.start_operator()
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world)
    world.registry.down = ""
    await rest(world)
    assert world.phase == "Suspended"
    assert world.registry.content(VM, "hibernate")["memory"] == ["work"]  # type: ignore[index]


@pytest.mark.scenario("S181")
async def test_while_a_drop_is_owed_an_edit_waits(world: World) -> None:
    """Design 4.3 rule 2: a new image must not come up with old memory."""
    await waking(world)
    world.agent.run()
    world.registry.refuse_drops = "405 UNSUPPORTED"
    await world.run()
    world.edit(agent={"network": "blue"})
    mark = world.mark
    for _ in range(3):
        await world.run()
        world.agent.run()
    assert "delete pod/demo-0" not in world.writes(mark)
    world.registry.refuse_drops = ""
    await rest(world)
    assert world.phase == "Running"
    assert annotations_of(world)[keys.NETWORK] == "blue"
    assert world.memory() == []


@pytest.mark.scenario("S172")
async def test_a_vm_that_is_only_said_to_live_keeps_its_tag(world: World) -> None:
    """I2, the lifecycle has to be ``ready`` for the stamp that the patch wrote which cleared the flag."""
    digest = await waking(world)
    world.agent.run()
    for values in (
        {keys.LIFECYCLE_STATE: "creating"},
        {keys.LIFECYCLE_STATE: "ready", keys.LIFECYCLE_GENERATION: "2"},
        {keys.LIFECYCLE_GENERATION: "3", keys.VM_ID: None},
    ):
        agent_says(world, values)
        await world.run()
        assert world.tag() == digest
        assert world.phase == "Waking"
