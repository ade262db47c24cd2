"""A run's view contains the run's own writes, and nothing that is in doubt (W-34, W-57, W-59)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import AlreadyExistsError, ConflictError, UnavailableError
from cocoon_operator.api.hibernation import hibernation_from_object
from cocoon_operator.api.pod import Pod, pod_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import lone_key
from cocoon_operator.engine.world import World
from cocoon_operator.reconcile.objects import SetObject, set_from_object
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer

DEMO = Key("ns", "demo")
POD = "/api/v1/namespaces/ns/pods/demo-0"
SET = f"/apis/{keys.GROUP}/v1/namespaces/ns/cocoonsets/demo"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Ground:
    """A world, its cache, and who was asked to run."""

    api: KubeApiServer
    world: World
    cache: Cache
    enqueued: list[Key] = field(default_factory=list)

    def load(self) -> None:
        """Fill the cache from what the server has."""
        version = str(self.api.version)
        self.cache.replace_pods(
            [pod_from_object(self.api.objects[p]) for p in self.api.objects if "/pods/" in p], version
        )
        sets = [set_from_object(self.api.objects[p]) for p in self.api.objects if "/cocoonsets/" in p]
        self.cache.replace_sets(sets, version)
        self.cache.replace_hibernations([], version)
        self.enqueued.clear()

    def pod(self) -> Pod:
        (pod,) = self.cache.view(DEMO, NOW).pods
        return pod

    def see(self) -> None:
        """Let the pod's watch catch up."""
        self.cache.see_pod(pod_from_object(self.api.objects[POD]))


@pytest.fixture
def ground(api: KubeApiServer, client: KubeClient) -> Ground:
    enqueued: list[Key] = []
    cache = Cache(enqueued.append)
    return Ground(api, World(client, cache), cache, enqueued)


def pod_body(node: str = "node-a", **annotations: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": "demo-0",
            "namespace": "ns",
            "labels": {keys.LABEL_SET: "demo"},
            "annotations": annotations,
            "ownerReferences": [{"kind": "CocoonSet", "name": "demo", "uid": "s", "controller": True}],
        },
        "spec": {"nodeName": node} if node else {},
    }


def set_body() -> dict[str, Any]:
    return {
        "kind": "CocoonSet",
        "metadata": {"name": "demo", "namespace": "ns", "generation": 1, "annotations": {"user": "x"}},
        "spec": {"agent": {"image": "i"}},
    }


@pytest.mark.asyncio
async def test_w59_the_next_view_contains_the_own_patch_before_the_watch_tells(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    await ground.world.patch_pod(ground.pod(), {keys.HIBERNATE: "true"})
    assert ground.pod().hibernate
    ground.cache.see_pod(
        pod_from_object({**pod_body(), "metadata": {**pod_body()["metadata"], "resourceVersion": "100"}})
    )
    assert ground.pod().hibernate
    assert ground.enqueued == []


@pytest.mark.asyncio
@pytest.mark.parametrize("first", ["watch", "answer"])
async def test_the_watch_of_an_own_write_costs_no_run_whichever_comes_first(ground: Ground, first: str) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    if first == "watch":
        ground.api.on_change = ground.see
    await ground.world.patch_pod(ground.pod(), {keys.HIBERNATE: "true"})
    ground.see()
    assert ground.pod().hibernate
    assert ground.enqueued == []


@pytest.mark.asyncio
async def test_a_heartbeat_between_view_and_write_costs_no_run(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    pod = ground.pod()

    def heartbeat(_: object) -> None:
        ground.api.patch(POD, {"status": {"observedGeneration": 1}})

    ground.api.on_request = heartbeat
    await ground.world.patch_pod(pod, {keys.HIBERNATE: "true"})
    ground.see()
    assert ground.enqueued == []


@pytest.mark.asyncio
async def test_what_another_wrote_in_between_is_not_swallowed_by_the_own_answer(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    pod = ground.pod()

    def agent(_: object) -> None:
        ground.api.patch(POD, {"metadata": {"annotations": {keys.LIFECYCLE_STATE: "ready"}}})

    ground.api.on_request = agent
    await ground.world.patch_pod(pod, {keys.GENERATION: "2"})
    ground.see()
    assert ground.pod().lifecycle == "ready"
    assert ground.enqueued == [DEMO]


@pytest.mark.asyncio
async def test_a_watch_event_during_a_write_that_failed_is_told_afterwards(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    pod = ground.pod()

    def agent(_: object) -> None:
        ground.api.patch(POD, {"metadata": {"annotations": {keys.LIFECYCLE_STATE: "ready"}}})
        ground.see()

    ground.api.on_request = agent
    with pytest.raises(ConflictError):
        await ground.world.patch_pod(pod, {keys.GENERATION: "2"}, guarded=True)
    assert ground.enqueued == [DEMO]


@pytest.mark.asyncio
async def test_w34_a_delete_spares_the_namesake_and_the_pod_that_changed(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    pod = ground.pod()
    ground.api.patch(POD, {"metadata": {"annotations": {keys.LIFECYCLE_STATE: "ready"}}})
    with pytest.raises(ConflictError):
        await ground.world.delete_pod(pod)
    ground.api.remove(POD)
    ground.api.put(POD, pod_body())
    with pytest.raises(ConflictError):
        await ground.world.delete_pod(pod)
    assert POD in ground.api.objects


@pytest.mark.asyncio
async def test_w34_a_patch_spares_the_namesake_and_says_conflict(ground: Ground) -> None:
    """The API server calls it 422 Invalid, since a UID cannot change; for us it is a view that was behind."""
    ground.api.put(POD, pod_body())
    ground.load()
    pod = ground.pod()
    ground.api.remove(POD)
    ground.api.put(POD, pod_body())
    with pytest.raises(ConflictError):
        await ground.world.patch_pod(pod, {keys.HIBERNATE: "true"})
    assert keys.HIBERNATE not in ground.api.objects[POD]["metadata"]["annotations"]
    await ground.world.settle(DEMO)
    assert ground.pod().uid != pod.uid


@pytest.mark.asyncio
async def test_a_conflict_makes_the_next_view_live(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    ground.api.patch(POD, {"metadata": {"annotations": {keys.LIFECYCLE_STATE: "ready"}}})
    with pytest.raises(ConflictError):
        await ground.world.delete_pod(ground.pod())
    await ground.world.settle(DEMO)
    assert ground.pod().lifecycle == "ready"
    assert ground.cache.doubtful(DEMO) == set()
    assert await ground.world.delete_pod(ground.pod())
    assert ground.pod().terminating


@pytest.mark.asyncio
async def test_a_delete_of_what_is_gone_says_so_and_the_view_forgets_it(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    pod = ground.pod()
    ground.api.remove(POD)
    assert not await ground.world.delete_pod(pod)
    assert ground.cache.view(DEMO, NOW).pods == ()


@pytest.mark.asyncio
async def test_a_delete_with_grace_is_no_news_but_one_without_is(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    assert await ground.world.delete_pod(ground.pod())
    ground.see()
    assert ground.enqueued == []
    ground.api.remove(POD)
    ground.api.put(POD, pod_body(node=""))
    ground.load()
    assert await ground.world.delete_pod(ground.pod())
    assert ground.cache.view(DEMO, NOW).pods == ()
    assert ground.enqueued == [DEMO]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["lose", "drop"])
async def test_a_create_of_unknown_outcome_is_looked_up_before_the_next_view(ground: Ground, kind: str) -> None:
    ground.load()
    ground.api.faults.append(Fault(kind))
    with pytest.raises(UnavailableError):
        await ground.world.create_pod("ns", pod_body())
    await ground.world.settle(DEMO)
    assert [pod.name for pod in ground.cache.view(DEMO, NOW).pods] == (["demo-0"] if kind == "lose" else [])


@pytest.mark.asyncio
async def test_as_long_as_the_doubt_cannot_be_resolved_there_is_no_view(ground: Ground) -> None:
    ground.load()
    ground.api.faults += [Fault("lose", method="POST")] + [Fault("status", 503, method="GET")] * 20
    with pytest.raises(UnavailableError):
        await ground.world.create_pod("ns", pod_body())
    with pytest.raises(UnavailableError):
        await ground.world.settle(DEMO)
    assert len(ground.cache.doubtful(DEMO)) == 1


@pytest.mark.asyncio
async def test_a_name_that_is_taken_is_looked_up(ground: Ground) -> None:
    ground.load()
    ground.api.put(POD, pod_body())
    with pytest.raises(AlreadyExistsError):
        await ground.world.create_pod("ns", pod_body())
    await ground.world.settle(DEMO)
    assert ground.pod().name == "demo-0"


@pytest.mark.asyncio
async def test_a_created_pod_is_in_the_next_view(ground: Ground) -> None:
    ground.load()
    created = await ground.world.create_pod("ns", pod_body())
    assert ground.pod() == created
    assert ground.enqueued == []


@pytest.mark.asyncio
async def test_a_pod_without_the_label_is_answered_but_not_kept(ground: Ground) -> None:
    ground.load()
    body = pod_body()
    body["metadata"]["labels"] = {}
    ground.api.put(POD, body)
    pod = await ground.world.get_pod("ns", "demo-0")
    assert pod is not None
    assert ground.cache.view(DEMO, NOW).pods == ()


@pytest.mark.asyncio
async def test_a_live_list_corrects_the_cache_both_ways(ground: Ground) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    ground.api.remove(POD)
    other = pod_body()
    other["metadata"]["name"] = "demo-1"
    ground.api.put(POD.replace("demo-0", "demo-1"), other)
    assert [pod.name for pod in await ground.world.list_pods("ns", "demo")] == ["demo-1"]
    assert [pod.name for pod in ground.cache.view(DEMO, NOW).pods] == ["demo-1"]


@pytest.mark.asyncio
async def test_w57_a_set_is_patched_in_its_metadata_only(ground: Ground) -> None:
    ground.api.put(SET, set_body())
    ground.load()
    target = ground.cache.sets.get(DEMO)
    assert target is not None
    answer = await ground.world.patch_set(target, annotations={keys.HINT_NODE: "n"}, finalizers=[keys.SET_FINALIZER])
    stored = ground.api.objects[SET]
    assert stored["spec"] == set_body()["spec"]
    assert stored["metadata"]["annotations"] == {"user": "x", keys.HINT_NODE: "n"}
    assert answer.finalizers == (keys.SET_FINALIZER,)
    assert ground.cache.sets.get(DEMO) == answer
    assert ground.enqueued == []


@pytest.mark.asyncio
async def test_w60_the_own_status_is_what_the_next_one_is_compared_with(ground: Ground) -> None:
    ground.api.put(SET, set_body())
    ground.load()
    target = ground.cache.sets.get(DEMO)
    assert target is not None
    await ground.world.patch_set_status(target, {"phase": "Suspending"})
    ground.cache.see_set(target)
    current = ground.cache.sets.get(DEMO)
    assert current is not None
    assert current.status == {"phase": "Suspending"}
    with pytest.raises(ConflictError):
        await ground.world.patch_set_status(target, {"phase": "Suspended"})
    ground.cache.see_set(set_from_object(ground.api.objects[SET]))
    assert ground.enqueued == []


@pytest.mark.asyncio
async def test_a_foreign_status_change_is_news(ground: Ground) -> None:
    ground.api.put(SET, set_body())
    ground.load()
    ground.api.patch(SET, {"status": {"phase": "Running"}})
    ground.cache.see_set(set_from_object(ground.api.objects[SET]))
    assert ground.enqueued == [DEMO]


@pytest.mark.asyncio
async def test_when_the_last_finalizer_goes_the_key_sees_that_the_set_is_gone(ground: Ground) -> None:
    body = set_body()
    body["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [keys.SET_FINALIZER]}
    ground.api.put(SET, body)
    ground.load()
    target = ground.cache.sets.get(DEMO)
    assert target is not None
    await ground.world.patch_set(target, finalizers=[])
    assert ground.cache.view(DEMO, NOW).set is None
    assert ground.enqueued == [DEMO]
    ground.cache.see_set(target)
    assert ground.cache.view(DEMO, NOW).set is None


Trigger = Callable[[dict[str, Any]], None]


def _annotate(key: str) -> Trigger:
    return lambda pod: pod["metadata"]["annotations"].update({key: "x"})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "runs"),
    [
        (lambda pod: pod["spec"].update(nodeName="node-b"), True),
        (lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"), True),
        (lambda pod: pod["metadata"]["labels"].update(x="1"), True),
        (lambda pod: pod.update(status={"phase": "Running"}), True),
        (lambda pod: pod.update(status={"conditions": [{"type": "Ready", "status": "True"}]}), True),
        (lambda pod: pod.update(status={"containerStatuses": [{"name": "a", "state": {"running": {}}}]}), True),
        (lambda pod: pod.update(status={"conditions": [{"type": "PodScheduled", "status": "False"}]}), True),
        (_annotate(keys.LIFECYCLE_STATE), True),
        (_annotate(keys.SNAPSHOT_REQUEST), False),
        (_annotate(keys.SNAPSHOT_STATUS), False),
        (lambda pod: pod.update(status={"conditions": [{"type": "Initialized", "status": "True"}]}), False),
    ],
)
async def test_w22_what_of_a_pod_makes_its_set_run(ground: Ground, change: Trigger, runs: bool) -> None:
    ground.api.put(POD, pod_body())
    ground.load()
    body = pod_body()
    change(body)
    ground.api.patch(POD, body)
    ground.see()
    assert ground.enqueued == ([DEMO] if runs else [])


def test_a_pod_concerns_its_controller_and_the_set_of_its_label(ground: Ground) -> None:
    body = pod_body()
    body["metadata"] |= {"labels": {keys.LABEL_SET: "other"}, "resourceVersion": "5", "uid": "p"}
    ground.cache.see_pod(pod_from_object(body))
    assert sorted(ground.enqueued) == [DEMO, Key("ns", "other")]
    assert [pod.name for pod in ground.cache.view(Key("ns", "other"), NOW).pods] == ["demo-0"]


@pytest.mark.parametrize(
    ("pod", "vm", "maps"),
    [
        ("demo-0", "", True),
        ("demo-box", "", True),
        ("demo", "", False),
        ("", "vk-ns-demo-0", True),
        ("", "vk-x-demo-0", False),
    ],
)
def test_a_hibernation_maps_to_sets_by_name(ground: Ground, pod: str, vm: str, maps: bool) -> None:
    target = {"metadata": {"name": "demo", "namespace": "ns", "resourceVersion": "4", "uid": "s"}, "spec": {}}
    ground.cache.see_set(set_from_object(target))
    ground.enqueued.clear()
    obj = {
        "metadata": {"name": "h", "namespace": "ns", "resourceVersion": "5", "uid": "h"},
        "spec": {"podRef": {"name": pod}},
        "status": {"vmName": vm},
    }
    hibernation = hibernation_from_object(obj)
    home = DEMO if pod == "demo-0" else lone_key("ns", pod)
    ground.cache.see_hibernation(hibernation)
    assert set(ground.enqueued) == {home} | ({DEMO} if maps else set())
    assert ground.cache.view(DEMO, NOW).hibernations == ((hibernation,) if maps else ())
    assert ground.cache.view(home, NOW).driven == {"h"}
    ground.cache.lose_hibernation(hibernation)
    assert ground.cache.view(DEMO, NOW).hibernations == ()
    assert ground.cache.view(home, NOW).driven == frozenset()


@pytest.mark.asyncio
async def test_w25_a_set_that_goes_makes_those_run_that_its_names_may_have_kept(ground: Ground) -> None:
    def a_set(namespace: str, name: str, uid: str) -> SetObject:
        metadata = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": "5"}
        return set_from_object({"metadata": metadata, "spec": {"agent": {"image": "base"}}})

    older = a_set("a", "b-c", "1")
    for other in (older, a_set("a-b", "c", "2"), a_set("a", "b", "3"), a_set("a", "x", "4")):
        ground.cache.see_set(other)
    ground.enqueued.clear()
    ground.cache.lose_set(older)
    assert set(ground.enqueued) == {Key("a", "b-c"), Key("a-b", "c"), Key("a", "b")}
