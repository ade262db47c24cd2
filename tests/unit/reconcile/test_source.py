"""What a pod is made from: the tag alone decides (scenarios P; design 4.3 rules 1, 3 and 4)."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.apiserver import cocoonset
from tests.model.world import World
from tests.unit.reconcile.staging import (
    GET,
    VM,
    annotations_of,
    asked,
    asleep,
    built_main,
    events,
    hibernation,
    made_by_go,
    orphan,
    rest,
    saved,
    set_object,
    up,
)

pytestmark = pytest.mark.asyncio


@pytest.mark.scenario("S244")
@pytest.mark.parametrize("answer", ["present", "absent", "unknown"])
async def test_the_tag_is_asked_before_every_create(world: World, answer: str) -> None:
    """Design 4: without intent the tag is asked all the same, and present means restore."""
    await up(world)
    world.delete_pod()
    if answer == "present":
        saved(world)
    if answer == "unknown":
        world.registry.down = "503 Service Unavailable"
    before = len(world.registry.requests)
    outcome = await world.run()
    assert asked(world, before) == [GET]
    if answer == "unknown":
        assert outcome.error is not None
        assert world.pod() is None
        assert world.condition("Ready")["message"] == "503 Service Unavailable"
        return
    assert outcome.error is None
    assert annotations_of(world).get(keys.RESTORE) == ("true" if answer == "present" else None)


@pytest.mark.scenario("S246", "S248")
@pytest.mark.parametrize("phase", ["", "Pending", "Hibernated", "Waking", "Active", "Failed"])
async def test_the_phase_of_a_hibernation_does_not_decide_on_a_restore(world: World, phase: str) -> None:
    """The Go operator restores for ``Hibernated`` and ``Waking`` alone; the tag is the authority here, so nothing is lost."""
    await asleep(world)
    world.delete_pod()
    hibernation(world, desire="Wake", phase=phase)
    world.edit(suspend=False)
    await rest(world)
    assert annotations_of(world)[keys.RESTORE] == "true"
    assert world.memory() == ["work"]


@pytest.mark.scenario("S246")
@pytest.mark.parametrize(("desire", "phase"), [("Hibernate", "Hibernated"), ("Hibernate", ""), ("Hibernate", "Active")])
async def test_nothing_is_booted_for_a_hibernation_to_put_to_sleep(world: World, desire: str, phase: str) -> None:
    """Design 4.2: a VM held asleep with its pod gone stays absent."""
    digest = await asleep(world)
    world.delete_pod()
    hibernation(world, desire=desire, phase=phase)
    world.edit(suspend=False)
    mark = world.mark
    await rest(world)
    assert [w for w in world.writes(mark) if "pod" in w] == []
    assert world.tag() == digest


@pytest.mark.scenario("S248")
async def test_a_main_that_a_hibernation_wakes_waits_for_the_registry(world: World) -> None:
    await asleep(world)
    world.delete_pod()
    hibernation(world, desire="Wake", phase="Waking")
    world.edit(suspend=False)
    world.registry.down = "connection refused"
    outcome = await world.run()
    assert outcome.error is not None
    assert world.pod() is None


@pytest.mark.scenario("S249")
async def test_an_edit_of_a_vm_that_a_hibernation_holds_loses_nothing(world: World) -> None:
    """Legacy W-03: the Go operator deletes the sleeping pod, boots fresh and saves that over the real snapshot."""
    digest = await asleep(world)
    hibernation(world, phase="Hibernated")
    world.edit(suspend=False)
    await rest(world)
    world.edit(agent={"image": "other"})
    mark = world.mark
    await rest(world)
    assert [w for w in world.writes(mark) if w.startswith(("delete", "create"))] == []
    assert annotations_of(world)[keys.GENERATION] == str(world.set()["metadata"]["generation"])
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.tag() == digest
    world.edit(agent={"image": "base"})
    world.api.delete("hibernation", "ns", "demo-0", by="user")
    await rest(world)
    assert world.memory() == ["work"]


# -- whose tag it is -----------------------------------------------------------------------------------------------------


async def test_a_leftover_of_a_namesake_is_moved_aside(world: World) -> None:
    """Design 4.3 rule 3: put under ``orphan-``, then dropped, then verified, then a fresh boot; an event says so."""
    digest = saved(world)
    world.apply()
    await world.run()
    assert asked(world) == [GET, f"PUT {VM}:{orphan(digest)}", f"DELETE {VM}:hibernate", f"HEAD {VM}:{orphan(digest)}"]
    assert world.registry.tags == {(VM, orphan(digest)): digest}
    assert world.annotation(keys.DELETE_VM_NAMES) == VM
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "LeftoverSnapshotMoved")]
    assert f"{VM}:{orphan(digest)}" in events(world)[0][2]
    await rest(world)
    assert world.memory() == []
    assert world.agent.history == [f"booted {VM}"]


async def test_a_registry_that_refuses_the_copy_holds_the_set(world: World) -> None:
    """Design 4.3 rule 3: leftovers are then only reported."""
    digest = saved(world)
    world.registry.refuse_copies = "403 denied"
    world.apply()
    for _ in range(3):
        await world.run()
    assert world.tag() == digest
    assert world.pod() is None
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "LeftoverSnapshot")
    assert [reason for _, reason, _ in events(world)] == ["LeftoverSnapshot"]
    world.registry.refuse_copies = ""
    await rest(world)
    assert world.phase == "Running"
    assert world.tag(tag=orphan(digest)) == digest


async def test_where_one_namespace_is_watched_a_leftover_is_reported_and_not_moved(world: World) -> None:
    digest = saved(world)
    world.apply()
    world.claims.complete = False
    await world.run()
    outcome = await world.run()
    assert world.tag() == digest
    assert world.pod() is None
    assert not any(request.startswith(("PUT", "DELETE")) for request in asked(world))
    assert world.condition("Ready")["reason"] == "LeftoverSnapshot"
    assert [reason for _, reason, _ in events(world)] == ["LeftoverSnapshot"]
    assert outcome.requeue_after is not None
    world.registry.tags.clear()
    await rest(world)
    assert world.phase == "Running"


async def test_an_unanswered_first_look_leaves_the_name_unlisted(world: World) -> None:
    """A name is listed only when nothing was under it; a crash or an outage cannot make a leftover ours."""
    digest = saved(world)
    world.registry.down = "connection refused"
    world.apply()
    outcome = await world.run()
    assert outcome.error is not None
    assert world.annotation(keys.DELETE_VM_NAMES) is None
    assert keys.SET_FINALIZER in world.set()["metadata"]["finalizers"]
    assert world.pod() is None
    world.registry.down = ""
    world.start_operator()
    await rest(world)
    assert world.agent.history[0] == f"booted {VM}"
    assert world.tag(tag=orphan(digest)) == digest
    assert world.annotation(keys.DELETE_VM_NAMES) == VM


async def test_the_second_life_of_a_set_does_not_inherit_the_first_ones_memory(world: World) -> None:
    """Tags are collected with their set, and what is left all the same is a leftover for the next one."""
    await asleep(world)
    world.delete_set()
    await rest(world)
    digest = saved(world)
    world.apply()
    await rest(world)
    assert world.memory() == []
    assert world.tag(tag=orphan(digest)) == digest


async def test_a_go_made_set_without_list_restores_what_its_status_names(world: World) -> None:
    """Design 4.3 rule 3: the names in the status and of living pods count as own."""
    made_by_go(world, {"phase": "Running", "agents": [{"slot": 0, "role": "main", "vmName": VM}]})
    saved(world)
    await rest(world)
    assert world.memory() == ["saved"]
    assert world.annotation(keys.DELETE_VM_NAMES) == VM


async def test_the_older_set_owns_a_name_that_two_can_have(world: World) -> None:
    """W-25: set ``b-c`` of namespace ``a`` and set ``c`` of namespace ``a-b`` share ``vk-a-b-c-0``."""
    world.api.create("set", cocoonset("b-c", "a"), by="user")
    world.clock.advance(1)
    world.api.create("set", cocoonset("c", "a-b"), by="user")
    await world.run("b-c", "a")
    await world.run("c", "a-b")
    assert world.pod("b-c-0", "a") is not None
    assert world.pod("c-0", "a-b") is None
    conditions = world.set("c", "a-b")["status"]["conditions"]
    ready = next(c for c in conditions if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "NameCollision")
    assert "a/b-c" in ready["message"]


async def test_a_snapshot_of_another_image_is_moved_aside(world: World) -> None:
    """Design 4.4, by the manifest's base image alone: there is no pod left to compare with."""
    digest = await asleep(world, hibernatePolicy="release")
    await rest(world)
    world.edit(suspend=False, agent={"image": "other"})
    before = len(world.registry.requests)
    await rest(world)
    assert f"PUT {VM}:{orphan(digest)}" in asked(world, before)
    assert world.memory() == []
    assert world.tag(tag=orphan(digest)) == digest


async def test_a_snapshot_that_does_not_tell_its_image_is_restored(world: World) -> None:
    """Design 4.4: without the manifest's base-image annotation, restore."""
    await up(world)
    world.delete_pod()
    world.registry.push(VM, "hibernate", {"memory": ["untold"]})
    await world.run()
    assert annotations_of(world)[keys.RESTORE] == "true"


async def test_a_pod_whose_operator_crashed_before_listing_is_made_by_the_next_one(world: World) -> None:
    world.apply()
    body = built_main(set_object())
    assert body["metadata"]["name"] == "demo-0"

    class CrashError(BaseException):
        pass

    def hook(moment: str, call: str) -> None:
        if (moment, call) == ("after", "patch demo"):
            raise CrashError

    world.hook = hook
    with pytest.raises(CrashError):
        await world.run()
    world.hook = lambda _moment, _call: None
    world.start_operator()
    await rest(world)
    assert world.phase == "Running"
    assert world.annotation(keys.DELETE_VM_NAMES) == VM
