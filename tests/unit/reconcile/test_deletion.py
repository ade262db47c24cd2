"""Deletion of a set and collection of its tags (contract 4.12 and 4.15, scenarios Q; design 4.3 rule 6)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import UnavailableError
from tests.model.world import World
from tests.unit.reconcile.staging import (
    AWAKE,
    VM,
    asked,
    asleep,
    bodies,
    built_main,
    built_sub,
    events,
    heal,
    made_by_go,
    refuse,
    rest,
    running_status,
    saved,
    set_object,
    stand,
    up,
)

pytestmark = pytest.mark.asyncio


def gone(world: World) -> bool:
    return world.api.list("set") == []


def drops(*names: str) -> list[str]:
    return [f"DELETE {name}" for name in names]


async def listed(world: World, names: str, *, policy: str = "always") -> None:
    """A suspended set without pods that has these VM names on its list."""
    made_by_go(
        world,
        {"phase": "Suspended"},
        {keys.DELETE_VM_NAMES: names},
        hibernatePolicy="release",
        suspend=True,
        snapshotPolicy=policy,
    )
    world.delete_set()


@pytest.mark.scenario("S250")
async def test_policy_never_deletes_both_tags_hibernate_first(world: World) -> None:
    await up(world, snapshotPolicy="never")
    saved(world)
    world.registry.push(VM, "latest", {"memory": []})
    world.delete_set()
    before = len(world.registry.requests)
    await rest(world)
    assert asked(world, before) == drops(f"{VM}:hibernate", f"{VM}:latest")
    assert world.registry.tags == {}
    assert gone(world)


@pytest.mark.scenario("S251")
async def test_policy_always_keeps_latest(world: World) -> None:
    await up(world)
    saved(world)
    latest = world.registry.push(VM, "latest", {"memory": []})
    world.delete_set()
    before = len(world.registry.requests)
    await rest(world)
    assert asked(world, before) == drops(f"{VM}:hibernate")
    assert world.registry.tags == {(VM, "latest"): latest}
    assert gone(world)


@pytest.mark.scenario("S252")
async def test_policy_main_only_keeps_latest_of_slot_0(world: World) -> None:
    names = ["vk-ns-demo-tb", "vk-ns-demo-1", "vk-ns-demo-db-0", VM]
    await listed(world, ",".join(names), policy="main-only")
    await rest(world)
    assert asked(world) == drops(
        "vk-ns-demo-0:hibernate",
        "vk-ns-demo-1:hibernate",
        "vk-ns-demo-1:latest",
        "vk-ns-demo-db-0:hibernate",
        "vk-ns-demo-db-0:latest",
        "vk-ns-demo-tb:hibernate",
        "vk-ns-demo-tb:latest",
    )
    assert gone(world)


@pytest.mark.scenario("S252")
async def test_the_policy_of_today_decides(world: World) -> None:
    await up(world)
    world.edit(snapshotPolicy="never")
    world.delete_set()
    await rest(world)
    assert asked(world)[-2:] == drops(f"{VM}:hibernate", f"{VM}:latest")


@pytest.mark.scenario("S253")
async def test_a_pod_that_never_reached_the_status_is_collected_after(world: World) -> None:
    made_by_go(world, {})
    stand(world, built_main(set_object()), annotations=AWAKE, status=running_status())
    saved(world)
    world.delete_set()
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch set/demo", "delete pod/demo-0"]
    assert world.annotation(keys.DELETE_VM_NAMES) == VM
    await rest(world)
    assert asked(world) == drops(f"{VM}:hibernate")
    assert gone(world)


@pytest.mark.scenario("S254")
async def test_names_come_from_the_status_when_the_pods_are_gone(world: World) -> None:
    entries = [{"slot": slot, "role": "x", "vmName": f"vk-ns-demo-{slot}"} for slot in (0, 1)]
    boxes = [{"name": "tb", "vmName": "vk-ns-demo-tb"}]
    made_by_go(world, {"phase": "Running", "agents": entries, "toolboxes": boxes})
    world.delete_set()
    await rest(world)
    assert asked(world) == drops("vk-ns-demo-0:hibernate", "vk-ns-demo-1:hibernate", "vk-ns-demo-tb:hibernate")
    assert gone(world)


@pytest.mark.scenario("S255")
async def test_the_list_is_completed_before_the_pods_go(world: World) -> None:
    made_by_go(
        world,
        {"phase": "Running", "agents": [{"slot": 3, "role": "sub-agent", "vmName": "vk-ns-demo-3"}]},
        {keys.DELETE_VM_NAMES: " vk-ns-demo-9 , ,vk-ns-demo-2"},
    )
    stand(world, built_main(set_object()), annotations=AWAKE, status=running_status())
    world.delete_set()
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch set/demo", "delete pod/demo-0"]
    assert world.annotation(keys.DELETE_VM_NAMES) == "vk-ns-demo-0,vk-ns-demo-2,vk-ns-demo-3,vk-ns-demo-9"
    await rest(world)
    assert asked(world) == drops(*(f"vk-ns-demo-{slot}:hibernate" for slot in (0, 2, 3, 9)))
    assert gone(world)


@pytest.mark.scenario("S255")
async def test_a_list_that_cannot_be_written_deletes_nothing(world: World) -> None:
    """I5: what a later step needs is persisted before the step that destroys its source."""
    made_by_go(world, {})
    stand(world, built_main(set_object()), annotations=AWAKE, status=running_status())
    world.delete_set()
    refuse(world, "patch demo", UnavailableError("timeout", status=504))
    outcome = await world.run()
    assert outcome.error is not None
    pod = world.pod()
    assert pod is not None
    assert "deletionTimestamp" not in pod["metadata"]


@pytest.mark.scenario("S256")
async def test_a_terminating_pod_keeps_tags_and_finalizer(world: World) -> None:
    """Its deletion is the event; the Go operator polls every 5 s and deletes it again each time (W-36)."""
    await asleep(world)
    digest = world.tag()
    world.delete_set()
    mark, before = world.mark, len(world.registry.requests)
    for _ in range(3):
        outcome = await world.run()
        assert (outcome.requeue_after, outcome.error) == (None, None)
    assert world.writes(mark) == ["delete pod/demo-0"]
    assert asked(world, before) == []
    assert world.tag() == digest
    assert keys.SET_FINALIZER in world.set()["metadata"]["finalizers"]
    await rest(world)
    assert gone(world)
    assert world.registry.tags == {}


@pytest.mark.scenario("S256")
async def test_a_pod_that_only_the_api_server_knows_is_waited_for(world: World) -> None:
    """Before tags go, the pods are listed live: the last step that cannot be undone does not rest on the cache alone."""
    await asleep(world)
    world.delete_set()
    world.observe()
    del world.cache.objects[("pod", "ns", "demo-0")]
    before = len(world.registry.requests)
    await world.reconcile()
    assert asked(world, before) == []
    assert not gone(world)
    world.start_operator()
    await rest(world)
    assert gone(world)


@pytest.mark.scenario("S257")
@pytest.mark.parametrize("fault", ["refuse_drops", "down"])
async def test_tags_that_cannot_be_collected_are_waited_for_up_to_the_limit(world: World, fault: str) -> None:
    """Design 4: after the limit of 4.3 rule 6, with a Warning that names the tags (W-15)."""
    digest = await asleep(world, hibernatePolicy="release")
    await rest(world)
    setattr(world.registry, fault, "500 broken")
    world.delete_set()
    for _ in range(3):
        outcome = await world.run()
        assert outcome.error is not None
        assert not gone(world)
    assert [(kind, reason) for kind, reason, _ in events(world)] == [("Warning", "TagCollectionDelayed")]
    assert f"{VM}:hibernate" in world.condition("TagsCollected")["message"]
    world.clock.advance(599)
    world.start_operator()
    await world.run()
    assert not gone(world)
    world.clock.advance(2)
    await world.run()
    assert gone(world)
    assert world.tag() == digest
    kind, reason, message = events(world)[-1]
    assert (kind, reason) == ("Warning", "TagsNotCollected")
    assert f"{VM}:hibernate" in message


@pytest.mark.scenario("S257")
async def test_tags_that_can_be_collected_again_are(world: World) -> None:
    await asleep(world)
    world.registry.down = "connection refused"
    world.delete_set()
    await rest(world)
    assert not gone(world)
    world.registry.down = ""
    await rest(world)
    assert gone(world)
    assert world.registry.tags == {}


@pytest.mark.scenario("S257")
async def test_without_a_limit_a_deletion_waits_for_ever(world: World) -> None:
    world.tag_collection_timeout = 0.0
    world.start_operator()
    await asleep(world)
    world.registry.down = "connection refused"
    world.delete_set()
    await rest(world)
    world.clock.advance(1_000_000)
    await rest(world)
    assert not gone(world)
    world.registry.down = ""
    await rest(world)
    assert gone(world)


@pytest.mark.scenario("S258")
async def test_the_tag_of_a_released_seat_is_collected(world: World) -> None:
    await asleep(world, hibernatePolicy="release")
    await rest(world)
    assert "agents" not in world.set()["status"]
    world.delete_set()
    mark, before = world.mark, len(world.registry.requests)
    await rest(world)
    assert asked(world, before) == drops(f"{VM}:hibernate")
    assert world.writes(mark) == ["patch set/demo"]
    assert bodies(world, mark, "patch set/demo") == [{"metadata": {"finalizers": []}}]
    assert world.registry.tags == {}
    assert gone(world)


@pytest.mark.scenario("S259")
async def test_without_names_only_the_finalizer_goes(world: World) -> None:
    made_by_go(world, {})
    world.delete_set()
    mark = world.mark
    await rest(world)
    assert world.writes(mark) == ["patch set/demo"]
    assert bodies(world, mark, "patch set/demo") == [{"metadata": {"finalizers": []}}]
    assert asked(world) == []
    assert gone(world)


@pytest.mark.scenario("S260")
@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"agent": {"image": 7}},
        {"agent": {"image": "base"}, "toolboxes": [{"name": "7", "mode": "run", "image": "x"}]},
        {"agent": {"image": "base", "replicas": 2}, "hibernatePolicy": "release"},
    ],
)
async def test_a_spec_that_cannot_be_acted_on_does_not_hold_a_deletion(world: World, spec: object) -> None:
    await asleep(world)
    world.api.objects[("set", "ns", "demo")]["spec"] = spec
    world.delete_set()
    world.start_operator()
    await rest(world)
    assert gone(world)
    assert world.api.list("pod") == []
    assert (VM, "hibernate") not in world.registry.tags


@pytest.mark.scenario("S261")
async def test_the_spec_is_left_as_the_user_wrote_it(world: World) -> None:
    """Legacy W-57: a patch of the finalizers alone, and the generation stays."""
    spec: dict[str, Any] = {"agent": {"storage": "1024Gi"}, "toolboxes": []}
    before = world.apply(**spec)["spec"]
    await rest(world)
    after = world.set()
    assert after["spec"] == before
    assert after["metadata"]["generation"] == 1
    assert set(bodies(world, 0, "patch set/demo")[0]) == {"metadata"}


async def test_other_finalizers_outlive_ours(world: World) -> None:
    await up(world)
    finalizers = ["user/one", *world.set()["metadata"]["finalizers"], "user/two"]
    world.api.patch("set", "ns", "demo", {"metadata": {"finalizers": finalizers}}, by="user")
    world.delete_set()
    await rest(world)
    assert world.set()["metadata"]["finalizers"] == ["user/one", "user/two"]
    mark, before = world.mark, len(world.registry.requests)
    await world.run()
    assert (world.writes(mark), asked(world, before)) == ([], [])


async def test_nothing_is_collected_without_our_finalizer(world: World) -> None:
    """Design 4.3 rule 6: only while the finalizer is held."""
    world.apply()
    world.api.patch("set", "ns", "demo", {"metadata": {"finalizers": ["user/one"]}}, by="user")
    digest = saved(world)
    world.delete_set()
    await rest(world)
    assert world.writes() == []
    assert world.tag() == digest


async def test_a_name_that_an_older_set_claims_is_not_collected(world: World) -> None:
    """W-25, W-63."""
    world.apply("b-c", "a")
    await world.run("b-c", "a")
    world.clock.advance(1)
    world.apply("c", "a-b")
    await world.run("c", "a-b")
    digest = saved(world, "vk-a-b-c-0")
    names = {keys.DELETE_VM_NAMES: "vk-a-b-c-0"}
    world.annotate(names, "c", "a-b")
    world.delete_set("c", "a-b")
    await world.run("c", "a-b")
    await world.run("c", "a-b")
    assert world.api.get("set", "a-b", "c") is None
    assert world.tag("vk-a-b-c-0") == digest


async def test_a_pod_delete_that_fails_holds_tags_and_finalizer(world: World) -> None:
    await asleep(world)
    world.delete_set()
    refuse(world, "delete demo-0", UnavailableError("timeout", status=504))
    before = len(world.registry.requests)
    outcome = await world.run()
    assert outcome.error is not None
    assert asked(world, before) == []
    assert not gone(world)
    heal(world)
    await rest(world)
    assert gone(world)


async def test_every_pod_of_the_set_goes(world: World) -> None:
    target = set_object(agent={"replicas": 2})
    made_by_go(world, {"phase": "Running"}, agent={"replicas": 2})
    for body in (built_main(target), built_sub(target), built_sub(target, "2")):
        stand(world, body, annotations=AWAKE, status=running_status())
    world.delete_set()
    mark = world.mark
    await world.run()
    assert world.writes(mark) == ["patch set/demo", *(f"delete pod/demo-{slot}" for slot in range(3))]
    await rest(world)
    assert gone(world)
    assert asked(world) == drops(*(f"vk-ns-demo-{slot}:hibernate" for slot in range(3)))


@pytest.mark.parametrize("call", ["delete demo-0", "list demo", "patch demo"])
async def test_an_error_of_the_api_is_said_while_it_lasts(world: World, call: str) -> None:
    """I8: whatever a deletion waits for can be read; the finalizer's patch is the last of its writes."""
    await up(world)
    world.delete_set()
    refuse(world, call, UnavailableError("etcd is gone", status=500))
    for _ in range(3):
        await world.run()
        world.agent.run()
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "APIError", "etcd is gone")
    mark = world.mark
    for _ in range(3):
        world.start_operator()
        outcome = await world.run()
        assert isinstance(outcome.error, UnavailableError)
    assert world.writes(mark) == []
    heal(world)
    await rest(world)
    assert gone(world)


async def test_an_error_of_the_api_that_is_over_is_no_longer_said(world: World) -> None:
    """While the pod still terminates; a deletion without trouble writes no status at all."""
    await up(world)
    world.delete_set()
    refuse(world, "delete demo-0", UnavailableError("etcd is gone", status=500), times=1)
    mark = world.mark
    await world.run()
    assert world.condition("Ready")["reason"] == "APIError"
    await world.run()
    assert world.condition("Ready")["reason"] == "AgentsNotReady"
    await rest(world)
    assert gone(world)
    assert world.writes(mark) == [
        "patch/status set/demo",
        "delete pod/demo-0",
        "patch/status set/demo",
        "patch set/demo",
    ]
