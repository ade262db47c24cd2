"""Unsuspend in place: flags are cleared, nothing else is made (contract 4.8, scenarios L; design 4.3)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    DROP,
    HEAD,
    SLEEPING,
    VM,
    annotations_of,
    asked,
    asleep,
    bodies,
    built_main,
    built_sub,
    built_toolbox,
    events,
    hibernation,
    made_by_go,
    rest,
    running_status,
    saved,
    set_object,
    stand,
    up,
)

pytestmark = pytest.mark.asyncio

SUB = "vk-ns-demo-1"
BOX = {"name": "tb", "mode": "run", "image": "tools"}


@pytest.mark.scenario("S188")
async def test_the_flags_go_and_other_pods_are_left_alone(world: World) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 1}, "toolboxes": [BOX]}
    target = set_object(**options)
    made_by_go(world, {"phase": "Suspended"}, **options)
    for body in (built_main(target), built_sub(target)):
        stand(world, body, annotations=SLEEPING, status={"phase": "Pending"})
    stand(world, built_toolbox(target), annotations=AWAKE, status=running_status())
    main, sub = saved(world), saved(world, SUB)
    await world.run()
    assert [w for w in world.writes() if "pod" in w] == ["patch pod/demo-0", "patch pod/demo-1"]
    assert bodies(world, 0, "patch pod/demo-0") == [{"metadata": {"annotations": {keys.HIBERNATE: None}}}]
    assert asked(world)[:2] == [HEAD, f"HEAD {SUB}:hibernate"]
    assert annotations_of(world, "demo-tb")[keys.GENERATION] == "1"
    assert (world.tag(), world.tag(SUB)) == (main, sub)


@pytest.mark.scenario("S189")
async def test_without_a_flag_there_is_nothing_to_do(world: World) -> None:
    await up(world)
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert (world.writes(mark), asked(world, before)) == ([], [])


@pytest.mark.scenario("S190", "S191")
@pytest.mark.parametrize(("desire", "phase"), [("Hibernate", ""), ("Hibernate", "Hibernated"), ("Hibernate", "Failed")])
async def test_a_held_main_keeps_its_flag_and_a_sub_agent_loses_its(world: World, desire: str, phase: str) -> None:
    options: dict[str, Any] = {"agent": {"replicas": 1}}
    target = set_object(**options)
    made_by_go(world, {"phase": "Suspended"}, **options)
    for body in (built_main(target), built_sub(target)):
        stand(world, body, annotations=SLEEPING, status={"phase": "Pending"})
    main, sub = saved(world), saved(world, SUB)
    hibernation(world, desire=desire, phase=phase)
    await world.run()
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert keys.HIBERNATE not in annotations_of(world, "demo-1")
    assert (world.tag(), world.tag(SUB)) == (main, sub)
    world.start_operator()
    await rest(world)
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.tag() == main
    assert world.tag(SUB) is None


@pytest.mark.scenario("S190")
@pytest.mark.parametrize(
    ("desire", "phase"), [("Wake", ""), ("Wake", "Active"), ("Wake", "Failed"), ("Wake", "Waking")]
)
async def test_a_hibernation_that_asks_for_no_sleep_holds_nothing(world: World, desire: str, phase: str) -> None:
    await asleep(world)
    hibernation(world, desire=desire, phase=phase)
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S190")
async def test_a_hibernation_that_is_being_deleted_holds_nothing(world: World) -> None:
    """Design 4.2: a deleted HIB simply no longer asks for sleep, and waking is the set's business (W-07)."""
    await asleep(world)
    hibernation(world, phase="Hibernated")
    world.edit(suspend=False)
    await rest(world)
    assert world.memory() is None
    obj = world.api.objects[("hibernation", "ns", "demo-0")]
    obj["metadata"]["finalizers"] = [keys.HIBERNATION_FINALIZER]
    world.api.delete("hibernation", "ns", "demo-0", by="user")
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert world.tag() is None


@pytest.mark.scenario("S190")
async def test_the_oldest_living_hibernation_decides(world: World) -> None:
    """Design 4.2 (W-45)."""
    await asleep(world)
    hibernation(world, "first", pod="demo-0", desire="Hibernate")
    world.clock.advance(1)
    hibernation(world, "second", pod="demo-0", desire="Wake", phase="Active")
    world.edit(suspend=False)
    await rest(world)
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    world.api.delete("hibernation", "ns", "first", by="user")
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S190")
async def test_a_hibernation_without_pod_is_ignored(world: World) -> None:
    await asleep(world)
    world.api.create(
        "hibernation",
        {
            "kind": keys.KIND_HIBERNATION,
            "metadata": {"name": "demo-0", "namespace": "ns"},
            "spec": {"podRef": {"name": ""}},
        },
        by="user",
    )
    world.edit(suspend=False)
    await rest(world)
    assert world.phase == "Running"


@pytest.mark.scenario("S190")
async def test_a_held_set_says_so(world: World) -> None:
    """Design 4.2: condition ``HeldByHibernation``, and no poll while it sleeps (W-49)."""
    await asleep(world)
    hibernation(world, phase="Hibernated")
    world.edit(suspend=False)
    await rest(world)
    conditions = world.set()["status"]["conditions"]
    assert any("HeldByHibernation" in (c["type"], c["reason"]) for c in conditions)
    assert world.condition("Ready")["status"] == "False"
    mark = world.mark
    outcome = await world.run()
    assert world.writes(mark) == []
    assert (outcome.requeue_after, outcome.error) == (None, None)


@pytest.mark.scenario("S190")
async def test_a_held_vm_whose_pod_is_gone_stays_absent(world: World) -> None:
    """Rows 5 and 6 of the intent table (W-03)."""
    digest = await asleep(world)
    hibernation(world, phase="Hibernated")
    world.edit(suspend=False)
    await rest(world)
    world.delete_pod()
    mark = world.mark
    await rest(world)
    assert world.pod() is None
    assert [w for w in world.writes(mark) if "pod" in w] == []
    assert world.tag() == digest
    world.api.delete("hibernation", "ns", "demo-0", by="user")
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S192")
async def test_an_unpinned_retain_set_drops_its_tags_behind_the_wake(world: World) -> None:
    """Legacy W-17: the Go operator leaves the tag, here it never lags behind a living VM (design 4.3 rule 2)."""
    digest = await asleep(world)
    world.edit(suspend=False)
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert world.writes(mark)[-1] == "patch/status set/demo"
    assert bodies(world, mark, "patch pod/demo-0") == [
        {"metadata": {"annotations": {keys.HIBERNATE: None, keys.GENERATION: "3"}}}
    ]
    assert world.phase == "Pending"
    assert world.condition("SnapshotCurrent")["reason"] == "WakeInProgress"
    assert asked(world, before) == [HEAD]
    assert world.tag() == digest
    await rest(world)
    assert asked(world, before) == [HEAD, DROP]
    assert (world.phase, world.tag()) == ("Running", None)


@pytest.mark.scenario("S193")
async def test_a_pinned_retain_set_wakes_like_any_other(world: World) -> None:
    """The Go operator shows ``Migrating`` on the way; the end is the same: tag dropped, ``Running``."""
    await asleep(world, nodeName="node-b")
    world.edit(suspend=False)
    mark, before = world.mark, len(world.registry.requests)
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]
    assert asked(world, before) == [HEAD, DROP]
    assert [w for w in world.writes(mark) if w.startswith(("create", "delete"))] == []
    assert world.tag() is None


@pytest.mark.scenario("S188", "S138")
async def test_a_sleeping_vm_is_not_woken_while_the_registry_says_nothing(world: World) -> None:
    """Design 4.3 rule 1: the agent drops its local copy when it finds no tag, so clearing blindly can destroy the last one."""
    await asleep(world)
    world.registry.down = "connection refused"
    world.edit(suspend=False)
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert bodies(world, mark, "patch pod/demo-0") in ([], [{"metadata": {"annotations": {keys.GENERATION: "3"}}}])
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == (
        "Unknown",
        "RegistryUnreachable",
    )
    world.registry.down = ""
    await rest(world)
    assert world.memory() == ["work"]


@pytest.mark.scenario("S188")
async def test_a_sleeping_vm_without_tag_is_not_woken(world: World) -> None:
    """Design 4.3 rule 4: a save is on record, its digest is gone too: hold."""
    digest = await asleep(world)
    world.registry.tags.clear()
    world.registry.manifests.clear()
    world.edit(suspend=False)
    before = len(world.registry.requests)
    for _ in range(2):
        await world.run()
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert asked(world, before) == [HEAD, f"GET {VM}:{digest}"] * 2
    assert world.condition("Ready")["reason"] == "SnapshotMissing"
    assert [reason for _, reason, _ in events(world)] == ["SnapshotMissing"]


@pytest.mark.scenario("S188")
async def test_a_sleeping_vm_whose_digest_is_still_there_gets_its_tag_back(world: World) -> None:
    digest = await asleep(world)
    world.registry.tags.clear()
    world.edit(suspend=False)
    before = len(world.registry.requests)
    await rest(world)
    assert asked(world, before) == [HEAD, f"GET {VM}:{digest}", f"PUT {VM}:hibernate", DROP]
    assert world.memory() == ["work"]
    assert [reason for _, reason, _ in events(world)] == ["SnapshotTagRestored"]


@pytest.mark.scenario("S188")
async def test_a_vm_that_still_lives_is_unflagged_without_asking(world: World) -> None:
    """Design 4.3 rule 1."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.edit(suspend=False)
    before = len(world.registry.requests)
    world.registry.down = "connection refused"
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world)
    assert asked(world, before) == []
    world.registry.down = ""
    await rest(world)
    assert world.phase == "Running"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S188")
async def test_a_static_toolbox_loses_its_flag_and_no_tag_is_asked(world: World) -> None:
    static = {"name": "st", "mode": "static", "staticVMID": "vm-7", "staticIP": "10.1.1.7"}
    target = set_object(toolboxes=[static])
    made_by_go(world, {"phase": "Suspended"}, toolboxes=[static])
    stand(world, built_main(target), annotations=SLEEPING, status={"phase": "Pending"})
    stand(world, built_toolbox(target, "st"), annotations={keys.HIBERNATE: "true"}, status=running_status())
    saved(world)
    await world.run()
    assert keys.HIBERNATE not in annotations_of(world, "demo-st")
    assert not any("demo-st" in request for request in asked(world))


@pytest.mark.scenario("S192")
async def test_the_flag_goes_after_the_status_that_knows_of_the_tag(world: World) -> None:
    """Intent: a status other than ``NoSnapshot`` is stored before the responsibility passes from a flag to us."""
    await up(world)
    world.edit(suspend=True)
    await world.run()
    world.agent.run()
    world.api.objects[("set", "ns", "demo")]["status"]["conditions"] = [
        {**c, "status": "True", "reason": "NoSnapshot"} if c["type"] == "SnapshotCurrent" else c
        for c in world.set()["status"]["conditions"]
    ]
    world.edit(suspend=False)
    world.start_operator()
    mark = world.mark
    await world.run()
    assert world.writes(mark)[:2] == ["patch/status set/demo", "patch pod/demo-0"]
    await rest(world)
    assert world.memory() == ["work"]
    assert world.tag() is None
