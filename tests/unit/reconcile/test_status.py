"""The status of a set (contract 1.4 to 1.7 and 4.13, scenarios F)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.run import Context, Memory, Run
from cocoon_operator.reconcile.status import build, difference, has_edge
from cocoon_operator.reconcile.view import View
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    SLEEPING,
    VM,
    agent_says,
    agent_shows,
    asleep,
    bodies,
    built_main,
    built_sub,
    built_toolbox,
    made_by_go,
    read,
    running_status,
    set_object,
    stand,
    up,
)

BOX = {"name": "tb", "mode": "run", "image": "tools"}


def seen(body: Object, *, ready: bool = True, values: Mapping[str, str] | None = None) -> Object:
    """A pod whose VM runs."""
    number = body["metadata"]["labels"][keys.LABEL_SLOT]
    body["metadata"]["annotations"].update({keys.VM_ID: f"vm-{number}", keys.VM_IP: f"10.0.0.{len(number)}"})
    body["metadata"]["annotations"].update(values or {})
    body["status"] = running_status(ready=ready)
    return body


def run_of(target: SetObject, pods: Iterable[Object]) -> Run:
    world = World()
    context = Context(world.cluster, world.registry, world.recorder, world.measures, world.claims, world.clock)
    return Run(context, View(target, tuple(map(read, pods)), (), world.clock.now()), target, Memory())


def status_of(target: SetObject, *pods: Object, phase: SetPhase | None = None) -> dict[str, Any]:
    run = run_of(target, pods)
    run.phase = phase
    return build(run)


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in status["conditions"] if c["type"] == kind)
    return found


# -- phase and counters -------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S092")
def test_without_main_the_phase_is_pending() -> None:
    target = set_object(agent={"replicas": 1})
    assert status_of(target)["phase"] == "Pending"
    assert status_of(target, seen(built_sub(target)))["phase"] == "Pending"


@pytest.mark.scenario("S093")
def test_a_missing_sub_agent_means_scaling() -> None:
    target = set_object(agent={"replicas": 1})
    assert status_of(target, seen(built_main(target)))["phase"] == "Scaling"


@pytest.mark.scenario("S094", "S099")
def test_everything_ready_means_running() -> None:
    target = set_object(agent={"replicas": 1})
    status = status_of(target, seen(built_main(target)), seen(built_sub(target)))
    assert status["phase"] == "Running"
    ready = condition(status, "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "AllAgentsReady")
    assert ready["message"] == "2/2 agents ready, 0/0 toolboxes ready"


@pytest.mark.scenario("S095")
def test_counters_and_entries_of_two_agents_of_three() -> None:
    target = set_object(agent={"replicas": 2})
    status = status_of(target, seen(built_main(target)), seen(built_sub(target)))
    assert (status["desiredAgents"], status["readyAgents"]) == (3, 2)
    assert [(a["slot"], a["role"]) for a in status["agents"]] == [(0, "main"), (1, "sub-agent")]
    assert status["agents"][1]["forkedFrom"] == VM
    assert "forkedFrom" not in status["agents"][0]


@pytest.mark.scenario("S095")
def test_the_fork_source_is_the_current_mains_and_empty_without_one() -> None:
    target = set_object(agent={"replicas": 1})
    sub = seen(built_sub(target, fork_from="vk-ns-older-0"))
    assert status_of(target, seen(built_main(target)), sub)["agents"][1]["forkedFrom"] == VM
    assert "forkedFrom" not in status_of(target, sub)["agents"][0]


@pytest.mark.scenario("S096", "S100")
def test_a_toolbox_that_is_not_ready_means_scaling() -> None:
    target = set_object(toolboxes=[BOX])
    for boxes in ([], [seen(built_toolbox(target), ready=False)]):
        status = status_of(target, seen(built_main(target)), *boxes)
        assert status["phase"] == "Scaling"
        assert (status["readyToolboxes"], status["desiredToolboxes"]) == (0, 1)
        ready = condition(status, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "AgentsNotReady")
        assert ready["message"] == "1/1 agents ready, 0/1 toolboxes ready"


@pytest.mark.scenario("S097")
def test_equal_builds_have_no_difference_and_no_edge() -> None:
    target = set_object(agent={"replicas": 1})
    pods = (seen(built_main(target)), seen(built_sub(target)))
    first, second = status_of(target, *pods), status_of(target, *pods)
    assert difference(first, second) == {}
    assert not has_edge(first, second)
    other = status_of(target, *pods, phase=SetPhase.FAILED)
    assert difference(first, other)["phase"] == "Failed"
    assert has_edge(first, other)


@pytest.mark.scenario("S098")
def test_an_agents_entry_says_what_the_pod_says() -> None:
    target = set_object()
    assert status_of(target, seen(built_main(target)))["agents"] == [
        {
            "slot": 0,
            "role": "main",
            "podName": "demo-0",
            "vmName": VM,
            "vmID": "vm-0",
            "ip": "10.0.0.1",
            "phase": "Running",
        }
    ]


@pytest.mark.scenario("S098")
def test_empty_values_are_left_out() -> None:
    target = set_object()
    assert status_of(target, built_main(target))["agents"] == [
        {"slot": 0, "role": "main", "podName": "demo-0", "vmName": VM}
    ]


@pytest.mark.scenario("S095", "S086")
def test_agents_are_listed_by_slot_and_toolboxes_by_name() -> None:
    boxes = [{**BOX, "name": name} for name in ("zz", "aa")]
    target = set_object(agent={"replicas": 11}, toolboxes=boxes)
    subs = [seen(built_sub(target, slot)) for slot in ("10", "2", "1")]
    status = status_of(
        target, *subs, seen(built_main(target)), *(seen(built_toolbox(target, b["name"])) for b in boxes)
    )
    assert [agent["slot"] for agent in status["agents"]] == [0, 1, 2, 10]
    assert [box["name"] for box in status["toolboxes"]] == ["aa", "zz"]


@pytest.mark.parametrize(
    ("options", "annotations", "port", "kind"),
    [
        ({}, {}, None, "ssh"),
        ({"os": "windows"}, {}, None, "rdp"),
        ({"os": "android"}, {}, None, "adb"),
        ({"os": "windows"}, {keys.VNC_PORT: "5901"}, 5901, "vnc"),
        ({"connType": "adb"}, {keys.VNC_PORT: "5901"}, 5901, "adb"),
        ({}, {keys.VNC_PORT: "soon"}, None, "ssh"),
        ({}, {keys.VNC_PORT: "99999999999"}, None, "ssh"),
    ],
)
def test_a_toolboxs_entry_says_how_to_connect(
    options: dict[str, Any], annotations: dict[str, str], port: int | None, kind: str
) -> None:
    target = set_object(toolboxes=[{**BOX, **options}])
    (entry,) = status_of(target, seen(built_toolbox(target), values=annotations))["toolboxes"]
    assert entry == {
        "name": "tb",
        "podName": "demo-tb",
        "vmName": "vk-ns-demo-tb",
        "vmID": "vm-tb",
        "ip": "10.0.0.2",
        "phase": "Running",
        "connType": kind,
        **({"vncPort": port} if port else {}),
    }


@pytest.mark.scenario("S105")
def test_a_surplus_agent_keeps_the_set_from_being_ready() -> None:
    target = set_object()
    surplus = seen(built_sub(set_object(agent={"replicas": 1})))
    status = status_of(target, seen(built_main(target)), surplus)
    assert (status["readyAgents"], status["desiredAgents"]) == (2, 1)
    ready = condition(status, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "AgentsNotReady")
    assert ready["message"] == "2/1 agents ready, 0/0 toolboxes ready"


# -- conditions ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S101")
@pytest.mark.parametrize(
    ("phase", "progressing"),
    [
        ("Pending", True),
        ("Scaling", True),
        ("Running", False),
        ("Suspended", False),
        ("Failed", False),
        ("Suspending", True),
        ("Waking", True),
        ("Migrating", True),
    ],
)
def test_progressing_follows_the_phase(phase: str, progressing: bool) -> None:
    """Legacy W-24: the last three are ``False/Stable`` in the Go operator though the set is on its way."""
    target = set_object(generation=7)
    status = status_of(target, seen(built_main(target)), phase=SetPhase(phase))
    found = condition(status, "Progressing")
    assert found["status"] == ("True" if progressing else "False")
    assert found["reason"] == ("Reconciling" if progressing else "Stable")
    assert found["message"] == phase
    assert [c["observedGeneration"] for c in status["conditions"]] == [7] * 3


@pytest.mark.scenario("S101")
def test_what_is_missing_is_counted_in_the_message() -> None:
    target = set_object(agent={"replicas": 1}, toolboxes=[BOX])
    ready = condition(status_of(target, seen(built_main(target))), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "AgentsNotReady")
    assert ready["message"] == "1/2 agents ready, 0/1 toolboxes ready"


@pytest.mark.scenario("S106")
@pytest.mark.parametrize("phase", [p for p in SetPhase if p is not SetPhase.RUNNING])
def test_ready_looks_at_the_phase(phase: SetPhase) -> None:
    """Legacy W-24: the Go operator's set can be ``Ready`` while it is ``Failed`` or ``Suspending``."""
    target = set_object()
    assert condition(status_of(target, seen(built_main(target)), phase=phase), "Ready")["status"] == "False"


@pytest.mark.asyncio
@pytest.mark.scenario("S106")
async def test_a_failed_set_whose_pod_is_still_ready_is_not_ready(world: World) -> None:
    """Legacy W-24."""
    await up(world)
    agent_says(world, {keys.LIFECYCLE_STATE: "failed", keys.LIFECYCLE_MESSAGE: "the disk is gone"})
    await world.run()
    assert world.phase == "Failed"
    assert world.set()["status"]["readyAgents"] == 1
    assert world.condition("Ready")["status"] == "False"


@pytest.mark.asyncio
@pytest.mark.scenario("S102")
async def test_a_condition_of_somebody_else_is_kept(world: World) -> None:
    await up(world)
    other = {
        "type": "Audited",
        "status": "True",
        "reason": "Ok",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    conditions = [other, *world.set()["status"]["conditions"]]
    world.api.patch("set", "ns", "demo", {"status": {"conditions": conditions}}, by="user", subresource="status")
    world.edit(suspend=True)
    await world.settle()
    assert world.phase == "Suspended"
    assert world.condition("Audited") == other


@pytest.mark.asyncio
@pytest.mark.scenario("S101", "S102")
async def test_the_transition_time_moves_with_the_status_alone(world: World) -> None:
    await up(world)
    before = world.condition("Ready")["lastTransitionTime"]
    world.clock.advance(100)
    world.edit(snapshotPolicy="never")
    await world.settle()
    assert world.condition("Ready")["observedGeneration"] == 2
    assert world.condition("Ready")["lastTransitionTime"] == before
    world.clock.advance(100)
    now = world.clock.text()
    agent_shows(world, running_status(ready=False))
    await world.run()
    assert world.condition("Ready")["lastTransitionTime"] == now


# -- writing -------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S103", "S117", "S110")
async def test_a_set_at_rest_is_neither_written_nor_asked_about(world: World) -> None:
    await up(world)
    for _ in range(3):
        mark, asked = world.mark, len(world.registry.requests)
        world.clock.advance(3600)
        outcome = await world.run()
        assert world.writes(mark) == []
        assert world.registry.requests[asked:] == []
        assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.asyncio
@pytest.mark.scenario("S103")
@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_a_sleeping_set_is_neither_written_nor_asked_about(world: World, policy: str) -> None:
    await asleep(world, hibernatePolicy=policy)
    world.start_operator()
    mark, asked = world.mark, len(world.registry.requests)
    for _ in range(3):
        world.clock.advance(3600)
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes(mark) == []
    assert world.registry.requests[asked:] == []


@pytest.mark.asyncio
@pytest.mark.scenario("S104")
async def test_zero_counters_are_stored_with_the_first_status(world: World) -> None:
    """W-55: the Go operator leaves them out and the column stays blank; storing them is the allowed superset."""
    world.apply()
    mark = world.mark
    await world.run()
    (body,) = bodies(world, mark, "patch/status set/demo")
    stored = world.set()["status"]
    for key, value in {"readyAgents": 0, "desiredAgents": 1, "readyToolboxes": 0, "desiredToolboxes": 0}.items():
        assert body["status"][key] == value
        assert stored[key] == value


@pytest.mark.asyncio
@pytest.mark.scenario("S103")
async def test_a_patch_carries_what_changed_and_no_more(world: World) -> None:
    await up(world)
    mark = world.mark
    agent_shows(world, running_status(ready=False))
    await world.run()
    (body,) = bodies(world, mark, "patch/status set/demo")
    assert set(body["status"]) == {"phase", "readyAgents", "conditions"}
    assert body["status"]["phase"] == "Pending"


@pytest.mark.asyncio
@pytest.mark.scenario("S154")
async def test_an_empty_list_is_sent_as_null(world: World) -> None:
    await up(world, hibernatePolicy="release")
    mark = world.mark
    world.edit(suspend=True)
    await world.settle()
    sent = [
        body["status"]["agents"] for body in bodies(world, mark, "patch/status set/demo") if "agents" in body["status"]
    ]
    assert sent[-1] is None
    assert "agents" not in world.set()["status"]


@pytest.mark.asyncio
async def test_small_changes_wait_for_company_and_edges_do_not(world: World) -> None:
    """Design, section 3: an edge is written at once, anything else after 2 s, then at most every 10 s."""
    await up(world)
    mark = world.mark
    agent_says(world, {keys.VM_IP: "10.0.0.2"})
    assert (await world.run()).requeue_after == 2
    assert world.writes(mark) == []
    world.clock.advance(1)
    agent_says(world, {keys.VM_IP: "10.0.0.3"})
    assert (await world.run()).requeue_after == 1
    world.clock.advance(1)
    assert (await world.run()).requeue_after is None
    assert world.writes(mark) == ["patch/status set/demo"]
    assert world.set()["status"]["agents"][0]["ip"] == "10.0.0.3"
    world.clock.advance(2)
    agent_says(world, {keys.VM_IP: "10.0.0.4"})
    assert (await world.run()).requeue_after == 8
    world.clock.advance(7)
    agent_shows(world, running_status(ready=False))
    await world.run()
    assert world.writes(mark) == ["patch/status set/demo"] * 2
    assert world.set()["status"]["agents"][0]["ip"] == "10.0.0.4"


@pytest.mark.asyncio
@pytest.mark.scenario("S098")
async def test_the_digest_of_a_save_is_listed_and_goes_with_the_wake(world: World) -> None:
    digest = await asleep(world)
    assert world.set()["status"]["agents"][0]["snapshotDigest"] == digest
    world.edit(suspend=False)
    await world.settle()
    assert "snapshotDigest" not in world.set()["status"]["agents"][0]


@pytest.mark.asyncio
async def test_the_entry_of_a_saved_vm_outlives_its_pod(world: World) -> None:
    """Design 4.3 rule 4: as long as the save is on record."""
    digest = await asleep(world)
    world.delete_pod()
    await world.settle()
    assert world.set()["status"]["agents"] == [{"slot": 0, "role": "main", "vmName": VM, "snapshotDigest": digest}]
    world.start_operator()
    await world.settle()
    assert world.set()["status"]["agents"] == [{"slot": 0, "role": "main", "vmName": VM, "snapshotDigest": digest}]


@pytest.mark.asyncio
@pytest.mark.scenario("S096")
async def test_sub_agents_and_toolboxes_of_the_go_operator_are_reported(world: World) -> None:
    target = set_object(agent={"replicas": 1}, toolboxes=[BOX])
    made_by_go(world, {"phase": "Running"}, agent={"replicas": 1}, toolboxes=[BOX])
    for body in (built_main(target), built_sub(target), built_toolbox(target)):
        stand(world, body, annotations=AWAKE, status=running_status())
    await world.run()
    status = world.set()["status"]
    assert (status["phase"], status["readyAgents"], status["readyToolboxes"]) == ("Running", 2, 1)
    assert [a["podName"] for a in status["agents"]] == ["demo-0", "demo-1"]
    assert [t["podName"] for t in status["toolboxes"]] == ["demo-tb"]


@pytest.mark.parametrize(
    "garbage",
    [
        {"conditions": "none", "agents": "none", "phase": 7},
        {"conditions": [None, "x", {"type": 4}], "agents": [None, 7, {"vmName": 4}], "toolboxes": {}},
        {"conditions": [{}], "agents": [{}], "observedGeneration": "x"},
    ],
)
def test_garbage_in_a_stored_status_is_overwritten(garbage: dict[str, Any]) -> None:
    target = set_object()
    object.__setattr__(target, "status", garbage)
    status = status_of(target, seen(built_main(target)))
    assert status["phase"] == "Running"
    assert difference(garbage, status)["phase"] == "Running"


@pytest.mark.asyncio
async def test_snapshot_current_says_what_the_set_relies_on(world: World) -> None:
    world.apply()
    await world.run()
    found = [world.condition("SnapshotCurrent")]
    await world.settle()
    found.append(world.condition("SnapshotCurrent"))
    world.edit(suspend=True)
    await world.run()
    found.append(world.condition("SnapshotCurrent"))
    await world.settle()
    found.append(world.condition("SnapshotCurrent"))
    world.edit(suspend=False)
    await world.run()
    found.append(world.condition("SnapshotCurrent"))
    await world.settle()
    found.append(world.condition("SnapshotCurrent"))
    assert [(c["status"], c["reason"]) for c in found] == [
        ("True", "NoSnapshot"),
        ("True", "NoSnapshot"),
        ("False", "Saving"),
        ("True", "Saved"),
        ("False", "WakeInProgress"),
        ("True", "NoSnapshot"),
    ]


@pytest.mark.asyncio
async def test_a_sleeping_pod_of_the_go_operator_is_listed_with_its_digest(world: World) -> None:
    made_by_go(world, {"phase": "Suspended"}, suspend=True)
    stand(world, built_main(set_object()), annotations=SLEEPING, status={"phase": "Pending"})
    digest = world.registry.push(VM, "hibernate", {"memory": ["go"], "image": "base"})
    await world.settle()
    assert world.phase == "Suspended"
    assert world.set()["status"]["agents"][0]["snapshotDigest"] == digest
    assert world.condition("SnapshotCurrent")["reason"] == "Saved"
