"""Toolboxes: run, cloned or static; names that work, names that are taken, and their own failures (contract 4.11)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    RUN_BOX,
    STATIC_BOX,
    agent_says,
    agent_shows,
    annotations_of,
    asked,
    bodies,
    built_sub,
    built_toolbox,
    events,
    heal,
    orphan,
    pod_fails,
    pods,
    refuse,
    rest,
    roles_up,
    running_status,
    set_object,
    stand,
    terminating,
    up,
    vm,
)

pytestmark = pytest.mark.asyncio


def box(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "box", "mode": "run", **more}


def made(world: World, since: int) -> list[str]:
    return [w.name for w in world.api.writes[since:] if (w.by, w.verb) == ("operator", "create")]


def deleted(world: World, since: int) -> list[str]:
    return [w.name for w in world.api.writes[since:] if (w.by, w.verb) == ("operator", "delete")]


# -- made ------------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S049", "S050", "S064", "S096")
async def test_toolboxes_of_every_mode_come_up_beside_main(world: World) -> None:
    await up(world)
    mark, requests = world.mark, len(world.registry.requests)
    clone = {"name": "ide", "image": "box", "mode": "clone"}
    world.edit(toolboxes=[RUN_BOX, clone, {**STATIC_BOX, "vncPort": 5901}])
    await world.run()
    assert world.phase == "Scaling"
    assert made(world, mark) == ["demo-db", "demo-ide", "demo-vnc"]
    assert asked(world, requests) == [f"GET {vm('db')}:hibernate", f"GET {vm('ide')}:hibernate"]
    await rest(world)
    assert world.phase == "Running"
    vnc = annotations_of(world, "demo-vnc")
    assert (vnc[keys.VM_ID], vnc[keys.VM_IP], vnc[keys.VNC_PORT]) == ("x", "10.1.1.1", "5901")
    assert keys.VNC_PORT not in annotations_of(world, "demo-db")
    for pod in ("demo-db", "demo-ide", "demo-vnc"):
        assert world.pod(pod)["spec"]["nodeName"] == "node-a"  # type: ignore[index]
        (body,) = bodies(world, mark, f"create pod/{pod}")
        assert "nodeName" not in body["spec"]
    assert world.annotation(keys.DELETE_VM_NAMES) == f"{vm(0)},{vm('db')},{vm('ide')}"
    status = {entry["name"]: entry for entry in world.set()["status"]["toolboxes"]}
    assert (status["vnc"]["vncPort"], status["vnc"]["connType"]) == (5901, "vnc")


@pytest.mark.scenario("S076")
async def test_an_edited_static_toolbox_is_represented_again(world: World) -> None:
    await roles_up(world, 1, [STATIC_BOX])
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(toolboxes=[{**STATIC_BOX, "staticIP": "10.1.1.2"}])
    await rest(world)
    assert (deleted(world, mark), made(world, mark)) == (["demo-vnc"], ["demo-vnc"])
    assert annotations_of(world, "demo-vnc")[keys.VM_IP] == "10.1.1.2"
    assert asked(world, requests) == []
    assert world.phase == "Running"


@pytest.mark.scenario("S067", "S068", "S085")
async def test_an_edited_toolbox_is_made_again_and_nobody_else(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX, box("ide")])
    mark = world.mark
    world.edit(toolboxes=[{**RUN_BOX, "image": "newer"}, box("ide")])
    await rest(world)
    assert (deleted(world, mark), made(world, mark)) == (["demo-db"], ["demo-db"])
    assert world.agent.vms[vm("db")].image == "newer"
    assert world.memory(vm("ide")) == ["work of vk-ns-demo-ide"]


# -- names -------------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S235", "S236", "S242", "S023")
@pytest.mark.parametrize("name", ["0", "1", "007", "9223372036854775807", "00000000000000000000000000001"])
async def test_a_name_that_is_a_number_is_refused(world: World, name: str) -> None:
    """Legacy: the whole pass fails in silence (W-23). Here the toolboxes stop, with a condition and one event."""
    await up(world)
    mark = world.mark
    world.edit(toolboxes=[box("db"), box(name)])
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is None
    assert made(world, mark) == []
    problem = f"spec.toolboxes[1].name: '{name}' is a number, which names an agent's slot"
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "InvalidSpec", problem)
    assert events(world) == [("Warning", "InvalidSpec", problem)]
    assert world.set()["status"]["observedGeneration"] == 2


@pytest.mark.scenario("S236")
@pytest.mark.parametrize("name", ["9223372036854775808", "1a", "a1", "1-2"])
async def test_a_name_that_is_no_64_bit_number_is_accepted(world: World, name: str) -> None:
    await up(world)
    world.edit(toolboxes=[box(name)])
    await rest(world)
    assert world.phase == "Running"
    assert pods(world) == ["demo-0", f"demo-{name}"]


@pytest.mark.scenario("S237", "S242")
async def test_a_name_given_twice_stops_the_toolboxes_before_any_write(world: World) -> None:
    await roles_up(world, 0, [box("tb")])
    mark = world.mark
    world.edit(toolboxes=[box("tb"), box("other"), box("tb", network="blue")])
    for _ in range(3):
        await world.run()
    assert (made(world, mark), deleted(world, mark)) == ([], [])
    problem = "spec.toolboxes: name 'tb' is given more than once"
    assert events(world) == [("Warning", "InvalidSpec", problem)]
    assert world.condition("Ready")["message"] == problem
    world.edit(toolboxes=[box("tb")])
    await rest(world)
    assert world.phase == "Running"
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.scenario("S242")
async def test_w50_a_list_that_cannot_work_does_not_stop_the_agents(world: World) -> None:
    await roles_up(world, 1)
    mark = world.mark
    world.edit(agent={"replicas": 3}, toolboxes=[box("0")])
    await rest(world)
    assert made(world, mark) == ["demo-2", "demo-3"]
    status = world.set()["status"]
    assert (status["readyAgents"], status["desiredAgents"]) == (4, 4)


# -- names that are taken --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S238")
async def test_a_toolbox_that_the_cache_does_not_show_is_taken_over(world: World) -> None:
    await up(world)
    world.edit(toolboxes=[box("tb")])
    world.observe()
    stand(world, built_toolbox(set_object(toolboxes=[box("tb")])), status=running_status())
    mark = world.mark
    outcome = await world.reconcile()
    assert outcome.error is None
    assert [w for w in world.writes(mark) if "demo-tb" in w] == ["patch pod/demo-tb"]
    assert events(world) == []


@pytest.mark.scenario("S240")
@pytest.mark.parametrize("whose", ["nobody's", "another set's", "a namesake's", "an agent's"])
async def test_w25_a_foreign_pod_with_a_toolboxs_name_is_told_and_waited_out(world: World, whose: str) -> None:
    await up(world)
    target = set_object(toolboxes=[box("tb")], agent={"replicas": 1})
    body = built_sub(target) if whose == "an agent's" else built_toolbox(target)
    body["metadata"]["name"] = "demo-tb"
    if whose == "an agent's":
        body["metadata"]["labels"][keys.LABEL_SLOT] = "tb"
    stand(world, body, status=running_status())
    stored = world.api.objects[("pod", "ns", "demo-tb")]
    if whose == "nobody's":
        del stored["metadata"]["ownerReferences"]
    elif whose != "an agent's":
        stored["metadata"]["ownerReferences"][0]["uid"] = "uid-other"
    if whose == "another set's":
        stored["metadata"]["ownerReferences"][0]["name"] = "other"
        stored["metadata"]["labels"][keys.LABEL_SET] = "other"
    world.start_operator()
    world.edit(toolboxes=[box("tb")])
    mark = world.mark
    await rest(world)
    assert not any(w.startswith(("delete", "create")) for w in world.writes(mark))
    assert [reason for _, reason, _ in events(world)] == ["PodNameCollision"]
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodNameCollision")
    assert "pod demo-tb exists and is" in ready["message"]
    # The event of a pod with the set's label is enough; nobody tells of another one.
    assert world.outcome.requeue_after == (30 if whose == "another set's" else None)
    world.api.remove("pod", "ns", "demo-tb")
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S240")
async def test_a_terminating_toolbox_is_waited_for(world: World) -> None:
    await roles_up(world, 0, [RUN_BOX])
    terminating(world, "demo-db")
    mark = world.mark
    outcome = await world.run()
    assert (outcome.error, made(world, mark), events(world)) == (None, [], [])
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S240")
async def test_a_terminating_toolbox_that_the_cache_does_not_show_is_no_collision(world: World) -> None:
    await roles_up(world, 0, [RUN_BOX])
    terminating(world, "demo-db")
    world.cache.objects.pop(("pod", "ns", "demo-db"))
    outcome = await world.reconcile()
    assert (outcome.error, events(world)) == (None, [])
    await rest(world)
    assert world.phase == "Running"


# -- failures --------------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S239", "S243")
async def test_a_failed_toolbox_is_deleted_and_made_again(world: World) -> None:
    """Legacy S243 has no event; here the delete follows the history, and is told."""
    await roles_up(world, 0, [RUN_BOX, STATIC_BOX])
    pod_fails(world, "demo-db")
    pod_fails(world, "demo-vnc")
    mark = world.mark
    await world.run()
    assert world.writes(mark) == [
        "patch set/demo",
        "delete pod/demo-db",
        "patch set/demo",
        "delete pod/demo-vnc",
        "patch/status set/demo",
    ]
    assert events(world) == [
        ("Normal", "ToolboxRebuilding", "toolbox db attempt 1/4"),
        ("Normal", "ToolboxRebuilding", "toolbox vnc attempt 1/4"),
    ]
    await rest(world)
    assert world.phase == "Running"


async def test_w50_a_toolbox_that_is_refused_stops_no_other(world: World) -> None:
    await up(world)
    world.edit(toolboxes=[box("aa"), box("bb"), box("cc")])
    refuse(world, "create demo-aa", KubeError("exceeded quota", status=403))
    mark = world.mark
    outcome = await world.run()
    assert str(outcome.error) == "exceeded quota"
    assert made(world, mark) == ["demo-bb", "demo-cc"]
    assert world.condition("Ready")["message"] == "exceeded quota"
    assert world.phase == "Scaling"
    heal(world)
    await rest(world)
    assert world.phase == "Running"


async def test_w29_a_toolbox_of_a_wiped_set_is_never_made_from_a_namesakes_snapshot(world: World) -> None:
    """A tag under a name that was never this set's is put aside, for a toolbox as for main (rule 3)."""
    await up(world)
    content = {"memory": ["old"], "image": "box", "id": "vm-0"}
    digest = world.registry.push(vm("db"), "hibernate", content)
    world.edit(toolboxes=[RUN_BOX])
    await rest(world)
    assert world.memory(vm("db")) == []
    assert world.registry.tags == {(vm("db"), orphan(digest)): digest}
    assert [reason for _, reason, _ in events(world)] == ["LeftoverSnapshotMoved"]


async def test_no_registry_is_asked_about_a_static_toolbox_that_failed(world: World) -> None:
    """There is no VM of ours, and no saved state that could be behind it (4.11)."""
    await up(world, toolboxes=[{"name": "vnc", "mode": "static", "staticIP": "10.1.1.1"}])
    agent_says(world, {keys.LIFECYCLE_STATE: "failed"}, "demo-vnc")
    agent_shows(world, {"phase": "Pending", "containerStatuses": None, "conditions": None}, "demo-vnc")
    mark, requests = world.mark, len(world.registry.requests)
    await rest(world)
    assert deleted(world, mark) == made(world, mark) == ["demo-vnc"]
    assert asked(world, requests) == []
    assert [reason for _, reason, _ in events(world)] == ["ToolboxRebuilding"]
