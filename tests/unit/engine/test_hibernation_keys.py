"""Under which key a CocoonHibernation runs, what makes it run, and that nothing of one VM runs twice at once (design 4.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from typing_extensions import override

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Answer, WriteAnswer
from cocoon_operator.api.errors import ConflictError
from cocoon_operator.api.hibernation import Hibernation, hibernation_from_object
from cocoon_operator.api.pod import Pod, pod_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.cache import Cache, Ref
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.controller import Controller
from cocoon_operator.engine.engine import LONE, SETS, Engine, EngineSettings
from cocoon_operator.engine.queue import Backoff, WorkQueue
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import lone_key, lone_pod
from cocoon_operator.engine.world import World
from cocoon_operator.reconcile.objects import SetObject, set_from_object
from cocoon_operator.reconcile.reconciler import Reconciler
from cocoon_operator.reconcile.view import Outcome, View
from tests.model.agent import ModelAgent
from tests.model.apiserver import ModelAPIServer, ModelClock, Object, cocoonset
from tests.model.registry import ModelRegistry
from tests.model.world import ModelCache, ModelClaims, ModelCluster, ModelMeasures, ModelRecorder
from tests.unit.kubernetes.kube_api_server import KubeApiServer
from tests.unit.kubernetes.waiting import until

NOW = datetime(2026, 11, 30, tzinfo=UTC)
DEMO, SOLO = Key("ns", "demo"), lone_key("ns", "solo")
HIBERNATION = f"/apis/{keys.GROUP}/v1/namespaces/ns/cocoonhibernations/h"
_BOX = {"name": "db", "image": "box", "mode": "run"}


def a_set(
    name: str = "demo", *, namespace: str = "ns", created: str = "2026-01-01T00:00:00Z", **spec: Any
) -> SetObject:
    body = cocoonset(name, namespace, **spec)
    body["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "10", "creationTimestamp": created}
    return set_from_object(body)


def a_pod(
    name: str = "demo-0", *, owner: str = "demo", label: str = "demo", version: int = 11, **annotations: str
) -> Pod:
    controller = {"kind": keys.KIND_SET, "name": owner, "uid": f"uid-{owner}", "controller": True}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {keys.LABEL_SET: label},
        "annotations": annotations,
        "ownerReferences": [controller] if owner else [],
    }
    return pod_from_object({"metadata": metadata, "spec": {"nodeName": "node-a"}, "status": {}})


def a_hibernation(pod: str, *, name: str = "h", vm: str = "", version: int = 12, **status: Any) -> Hibernation:
    return hibernation_from_object(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)},
            "spec": {"podRef": {"name": pod}, "desire": "Hibernate"},
            "status": {"vmName": vm, **status},
        }
    )


@dataclass
class Desk:
    """A cache, and who was asked to run since the last look."""

    asked: list[Key] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = Cache(self.asked.append)

    def enqueued(self) -> set[Key]:
        found, self.asked[:] = set(self.asked), []
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- home ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "home"),
    [
        ("demo-0", DEMO),
        ("demo-7", DEMO),
        ("demo-db", DEMO),
        ("demo-other", lone_key("ns", "demo-other")),
        ("demo", lone_key("ns", "demo")),
        ("solo", SOLO),
        ("", lone_key("ns", "")),
    ],
)
def test_without_a_pod_the_set_that_can_have_one_of_this_name(desk: Desk, pod: str, home: Key) -> None:
    desk.cache.see_set(a_set(toolboxes=[_BOX]))
    assert desk.cache.home(a_hibernation(pod)) == home


@pytest.mark.scenario("S309")
@pytest.mark.parametrize(("pod", "vm"), [("solo", "vk-ns-demo-0"), ("demo-0", "vk-ns-other-0")])
def test_it_is_seen_by_every_set_that_its_pod_or_its_vm_may_be_of(desk: Desk, pod: str, vm: str) -> None:
    """Driven under one key, known under each that its names lead to: none acts on the VM without knowing of it."""
    for name in ("demo", "other"):
        desk.cache.see_set(a_set(name))
    desk.enqueued()
    desk.cache.see_hibernation(a_hibernation(pod, vm=vm))
    sets = {DEMO} | ({Key("ns", "other")} if "other" in vm else set())
    assert desk.enqueued() == sets | {desk.cache.home(a_hibernation(pod, vm=vm))}
    for key in sets:
        view = desk.cache.view(key, NOW)
        assert [item.name for item in view.hibernations] == ["h"]
        assert view.driven == ({"h"} if key == DEMO and pod == "demo-0" else frozenset())


def test_its_pod_s_own_set_whatever_names_say(desk: Desk) -> None:
    """``a-b-0`` can be of set ``a-b`` and a toolbox of set ``a``; the pod knows."""
    desk.cache.see_set(a_set("a", toolboxes=[{**_BOX, "name": "b-0"}], created="2025-01-01T00:00:00Z"))
    desk.cache.see_set(a_set("a-b"))
    target = a_hibernation("a-b-0")
    assert desk.cache.home(target) == Key("ns", "a"), "without a pod the older one"
    desk.cache.see_pod(a_pod("a-b-0", owner="a-b", label="a-b"))
    assert desk.cache.home(target) == Key("ns", "a-b")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod(owner=""), id="a pod that nobody controls"),
        pytest.param(a_pod(owner="earlier"), id="a pod of an earlier set"),
    ],
)
def test_a_pod_that_is_not_the_set_s_is_no_set_s(desk: Desk, pod: Pod) -> None:
    desk.cache.see_set(a_set())
    desk.cache.see_pod(pod)
    assert desk.cache.home(a_hibernation("demo-0")) == lone_key("ns", "demo-0")


def test_a_set_of_another_namespace_has_nothing_to_do_with_it(desk: Desk) -> None:
    desk.cache.see_set(a_set(namespace="other"))
    assert desk.cache.home(a_hibernation("demo-0")) == lone_key("ns", "demo-0")
    desk.enqueued()
    desk.cache.see_hibernation(a_hibernation("demo-0"))
    assert desk.enqueued() == {lone_key("ns", "demo-0")}


def test_several_on_one_pod_are_seen_together(desk: Desk) -> None:
    for name in ("a", "b"):
        desk.cache.see_hibernation(a_hibernation("solo", name=name))
    view = desk.cache.view(SOLO, NOW)
    assert ([item.name for item in view.hibernations], view.driven, view.set) == (
        ["a", "b"],
        frozenset({"a", "b"}),
        None,
    )
    desk.cache.see_set(a_set())
    desk.cache.see_hibernation(a_hibernation("demo-0", name="c"))
    assert [item.name for item in desk.cache.view(DEMO, NOW).hibernations] == ["c"]


def test_every_key_is_known_to_the_slow_resync(desk: Desk) -> None:
    desk.cache.see_set(a_set())
    desk.cache.see_hibernation(a_hibernation("demo-0", name="a"))
    desk.cache.see_hibernation(a_hibernation("solo", name="b"))
    assert desk.cache.known_keys() == [DEMO, SOLO]
    assert desk.cache.is_home(SOLO)
    assert not desk.cache.is_home(lone_key("ns", "demo-0"))


# -- what makes it run -----------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S271")
def test_its_pod_s_events_run_it(desk: Desk) -> None:
    desk.cache.see_set(a_set())
    desk.cache.see_hibernation(a_hibernation("demo-1"))
    desk.enqueued()
    desk.cache.see_pod(a_pod("demo-1"))
    assert desk.enqueued() == {DEMO}
    desk.cache.see_pod(a_pod("demo-1", version=20, **{keys.LIFECYCLE_STATE: "ready"}))
    assert desk.enqueued() == {DEMO}
    desk.cache.lose_pod(a_pod("demo-1", version=21))
    assert desk.enqueued() == {DEMO}


@pytest.mark.scenario("S271")
def test_the_events_of_a_pod_that_only_carries_the_label_run_it_too(desk: Desk) -> None:
    """Nobody's pod: the set of its label looks, and so does the CocoonHibernation under its own key."""
    desk.cache.see_set(a_set())
    desk.cache.see_hibernation(a_hibernation("guest"))
    desk.enqueued()
    desk.cache.see_pod(a_pod("guest", owner=""))
    assert desk.enqueued() == {DEMO, lone_key("ns", "guest")}


def test_w20_a_heartbeat_of_its_pod_runs_nobody(desk: Desk) -> None:
    desk.cache.see_set(a_set())
    for pod in ("demo-0", "guest"):
        desk.cache.see_hibernation(a_hibernation(pod, name=pod, phase="Active"))
        desk.cache.see_pod(a_pod(pod))
    desk.enqueued()
    for version in range(30, 40, 2):
        for pod in ("demo-0", "guest"):
            beat = {"vm.cocoonstack.io/snapshot-status": str(version)}
            desk.cache.see_pod(a_pod(pod, version=version, **beat))
    assert desk.enqueued() == set()


def test_w56_what_changes_of_it_runs_its_set(desk: Desk) -> None:
    desk.cache.see_set(a_set())
    desk.enqueued()
    for version, status in enumerate(({}, {"phase": "Hibernating"}, {"phase": "Hibernated"}), start=20):
        desk.cache.see_hibernation(a_hibernation("demo-0", version=version, **status))
        assert desk.enqueued() == {DEMO}, status
    desk.cache.see_hibernation(a_hibernation("demo-0", version=30, phase="Hibernated"))
    assert desk.enqueued() == set(), "the same again is no news"
    desk.cache.lose_hibernation(a_hibernation("demo-0", version=31))
    assert desk.enqueued() == {DEMO}


def test_it_changes_hands_when_its_set_comes_and_when_it_goes(desk: Desk) -> None:
    desk.cache.see_hibernation(a_hibernation("demo-0"))
    assert desk.enqueued() == {lone_key("ns", "demo-0")}
    desk.cache.see_set(a_set())
    assert desk.enqueued() == {DEMO}
    assert desk.cache.view(DEMO, NOW).driven == {"h"}
    assert desk.cache.view(lone_key("ns", "demo-0"), NOW).driven == frozenset()
    desk.cache.lose_set(a_set())
    assert desk.enqueued() == {DEMO, lone_key("ns", "demo-0")}
    assert desk.cache.view(lone_key("ns", "demo-0"), NOW).driven == {"h"}


def test_one_whose_deletion_was_missed_is_let_go_by_the_next_list(desk: Desk) -> None:
    """It must not keep a VM asleep for ever (design 3)."""
    desk.cache.see_set(a_set())
    desk.cache.see_hibernation(a_hibernation("demo-0"))
    desk.enqueued()
    desk.cache.replace_hibernations([], "50")
    assert desk.enqueued() == {DEMO}
    assert desk.cache.view(DEMO, NOW).hibernations == ()


# -- its own writes ----------------------------------------------------------------------------------------------------------


def stored(finalizers: list[str], **metadata: Any) -> Object:
    return {
        "kind": keys.KIND_HIBERNATION,
        "metadata": {"name": "h", "namespace": "ns", "generation": 1, "finalizers": finalizers, **metadata},
        "spec": {"podRef": {"name": "solo"}, "desire": "Hibernate"},
    }


@dataclass
class Ground:
    """The engine's client side against an API server of this process."""

    api: KubeApiServer
    world: World
    desk: Desk

    def seen(self) -> Hibernation:
        target = hibernation_from_object(self.api.objects[HIBERNATION])
        self.desk.cache.see_hibernation(target)
        self.desk.enqueued()
        return target


@pytest.fixture
def ground(api: KubeApiServer, client: KubeClient, desk: Desk) -> Ground:
    return Ground(api, World(client, desk.cache), desk)


@pytest.mark.asyncio
async def test_the_finalizer_is_a_patch_of_metadata_alone(ground: Ground) -> None:
    ground.api.put(HIBERNATION, stored(["x/y"]))
    target = ground.seen()
    answer = await ground.world.patch_hibernation(target, finalizers=[keys.HIBERNATION_FINALIZER, "x/y"])
    assert answer.finalizers == (keys.HIBERNATION_FINALIZER, "x/y")
    assert ground.api.objects[HIBERNATION]["spec"] == stored([])["spec"]
    assert ground.api.requests[-1] == ("PATCH", HIBERNATION)
    assert ground.desk.cache.hibernations.get(Key("ns", "h")) == answer
    assert ground.desk.enqueued() == set(), "what we wrote is no news"


@pytest.mark.asyncio
async def test_the_status_is_written_to_its_subresource_and_is_part_of_the_next_view(ground: Ground) -> None:
    ground.api.put(HIBERNATION, stored([]))
    target = ground.seen()
    await ground.world.patch_hibernation_status(target, {"phase": "Pending"})
    assert ground.api.requests[-1] == ("PATCH", f"{HIBERNATION}/status")
    (item,) = ground.desk.cache.view(SOLO, NOW).hibernations
    assert item.phase == "Pending"
    assert ground.desk.enqueued() == set()


@pytest.mark.asyncio
@pytest.mark.parametrize("write", ["finalizers", "status"])
async def test_a_view_that_is_behind_fails_and_is_read_again(ground: Ground, write: str) -> None:
    ground.api.put(HIBERNATION, stored([]))
    target = ground.seen()
    ground.api.patch(HIBERNATION, {"spec": {"desire": "Wake"}})
    call = (
        ground.world.patch_hibernation(target, finalizers=["a"])
        if write == "finalizers"
        else ground.world.patch_hibernation_status(target, {"phase": "Pending"})
    )
    with pytest.raises(ConflictError):
        await call
    assert ground.desk.cache.doubtful(SOLO) == {Ref("hibernation", Key("ns", "h"))}
    await ground.world.settle(SOLO)
    (item,) = ground.desk.cache.view(SOLO, NOW).hibernations
    assert item.desire == "Wake"
    assert ground.desk.cache.doubtful(SOLO) == set()


@pytest.mark.asyncio
async def test_the_last_finalizer_takes_the_object_along_and_who_is_left_runs(ground: Ground) -> None:
    """A younger one on the same pod has to decide now."""
    ground.api.put(HIBERNATION, stored([keys.HIBERNATION_FINALIZER], deletionTimestamp="2026-11-30T00:00:00Z"))
    target = ground.seen()
    await ground.world.patch_hibernation(target, finalizers=[])
    assert ground.desk.cache.view(SOLO, NOW).hibernations == ()
    assert ground.desk.enqueued() == {SOLO}


# -- one at a time -----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S310")
@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize(
    ("setting", "name"), [("workers", "cocoonset"), ("lone_workers", "cocoonhibernation")], ids=["sets", "lone"]
)
async def test_neither_controller_works_without_workers(
    client: KubeClient, setting: str, name: str, number: int
) -> None:
    changes: dict[str, Any] = {setting: number}
    with pytest.raises(ValueError, match=f"{name} concurrency must be at least 1, got {number}"):
        Engine(client, lambda _: Decider(), settings=replace(EngineSettings(), **changes))


class Decider:
    """Decides nothing."""

    async def reconcile(self, view: View) -> Outcome:
        return Outcome()

    def forget(self, namespace: str, name: str) -> None:
        return


@pytest.mark.asyncio
async def test_a_set_s_keys_and_the_others_have_queues_of_their_own(client: KubeClient) -> None:
    """One cannot keep the workers of the other busy."""
    engine = Engine(client, lambda _: Decider(), settings=EngineSettings())
    engine.cache.see_set(a_set())
    engine.cache.see_hibernation(a_hibernation("demo-0", name="a"))
    assert (len(engine.queues[SETS]), len(engine.queues[LONE])) == (1, 0)
    engine.cache.see_hibernation(a_hibernation("solo", name="b"))
    engine.cache.see_hibernation(a_hibernation("solo", name="c"))
    assert (len(engine.queues[SETS]), len(engine.queues[LONE])) == (1, 1)
    assert (lone_pod(SOLO), lone_pod(DEMO)) == ("solo", None)
    await engine.stop()


@pytest.mark.asyncio
@pytest.mark.scenario("S311")
@pytest.mark.parametrize(
    "ending", [ValueError("a mistake"), ConflictError("behind"), Outcome(error=ConflictError("x"))]
)
async def test_a_key_is_free_again_after_every_pass(ending: Exception | Outcome) -> None:
    """There is no lock that could be left behind."""
    endings: list[Exception | Outcome] = [ending]
    results: list[str] = []

    class Breaking(Decider):
        @override
        async def reconcile(self, view: View) -> Outcome:
            found = endings.pop() if endings else Outcome()
            if isinstance(found, Exception):
                raise found
            return found

        async def settle(self, key: Key) -> None:
            return

    queue = WorkQueue(backoff=Backoff(first=0.01, longest=0.02))
    breaking = Breaking()
    cache = Cache(queue.add)
    controller = Controller(
        LONE,
        cache=cache,
        queue=queue,
        world=breaking,
        reconciler=breaking,
        clock=SystemClock(),
        workers=1,
        observe=lambda result, _: results.append(result),
    )
    cache.see_hibernation(a_hibernation("solo"))
    controller.start()
    await until(lambda: results == ["error", "success"])
    assert queue.running == frozenset()
    assert await controller.drain(1.0)


class SlowRegistry(ModelRegistry):
    """Every answer takes a while, and says how many were asked for at once."""

    flying: int = 0
    most: int = 0

    @contextmanager
    def _flight(self) -> Iterator[None]:
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            yield
        finally:
            self.flying -= 1

    @override
    async def probe(self, vm_name: str, reference: str) -> Answer:
        with self._flight():
            await asyncio.sleep(0.003)
            return await super().probe(vm_name, reference)

    @override
    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        with self._flight():
            await asyncio.sleep(0.003)
            return await super().drop(vm_name, tag)


class Bridge(ModelCache):
    """What the model answers, as the engine's cache hears of it."""

    def __init__(self, cache: Cache) -> None:
        super().__init__()
        self.engine = cache

    @override
    def apply(self, kind: str, obj: Object) -> None:
        super().apply(kind, obj)
        if kind == "set":
            self.engine.see_set(set_from_object(obj))
        elif kind == "pod":
            self.engine.see_pod(pod_from_object(without_nulls(obj)))
        else:
            self.engine.see_hibernation(hibernation_from_object(obj))

    @override
    def remove(self, kind: str, obj: Object) -> None:
        super().remove(kind, obj)
        if kind == "hibernation":
            self.engine.lose_hibernation(hibernation_from_object(obj))


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


class Cluster:
    """Both controllers of an engine, with more workers than they need, over the model's cluster."""

    def __init__(self) -> None:
        self.clock = ModelClock()
        self.api = ModelAPIServer(self.clock)
        self.registry = SlowRegistry()
        self.agent = ModelAgent(self.api, self.registry)
        self.queues = {name: WorkQueue(backoff=Backoff(first=0.005, longest=0.01)) for name in (SETS, LONE)}
        self.cache = Cache(lambda key: self.queues[SETS if lone_pod(key) is None else LONE].add(key))
        self.bridge = Bridge(self.cache)
        self.running: dict[Key, int] = {}
        self.twice = False
        self.passes = 0
        self.reconciler = Reconciler(
            cluster=ModelCluster(self.api, self.bridge),
            registry=self.registry,
            recorder=ModelRecorder(),
            measures=ModelMeasures(),
            claims=ModelClaims(self.bridge),
            clock=self.clock,
        )
        self.controllers = [
            Controller(name, cache=self.cache, queue=queue, world=self, reconciler=self, clock=self.clock, workers=4)
            for name, queue in self.queues.items()
        ]
        self.seen = 0

    async def settle(self, key: Key) -> None:
        return

    async def reconcile(self, view: View) -> Outcome:
        key = (
            DEMO if view.set is not None else lone_key("ns", view.hibernations[0].pod_name if view.hibernations else "")
        )
        self.running[key] = self.running.get(key, 0) + 1
        self.twice = self.twice or self.running[key] > 1
        self.passes += 1
        try:
            outcome = await self.reconciler.reconcile(view)
        finally:
            self.running[key] -= 1
        wait = outcome.requeue_after
        return Outcome(None if wait is None else wait / 1000, outcome.error)

    def forget(self, namespace: str, name: str) -> None:
        return

    def catch_up(self) -> None:
        """The watches."""
        for verb, obj in self.api.changes[self.seen :]:
            kind = {keys.KIND_SET: "set", keys.KIND_HIBERNATION: "hibernation"}.get(obj.get("kind", ""), "pod")
            (self.bridge.remove if verb == "DELETED" else self.bridge.apply)(kind, obj)
        self.seen = len(self.api.changes)

    async def play(self, moves: list[Callable[[], None]]) -> None:
        """Let the users' moves come one after another while everything runs, then wait until all is quiet."""
        for controller in self.controllers:
            controller.start()
        calm = 0
        for _ in range(2000):
            if moves:
                moves.pop(0)()
            before = (len(self.api.changes), self.passes)
            self.catch_up()
            for pod in self.api.list("pod"):
                self.agent.step(pod["metadata"]["namespace"], pod["metadata"]["name"])
            self.catch_up()
            self.clock.advance(0.2)
            await asyncio.sleep(0.002)
            busy = any(queue.running or len(queue) for queue in self.queues.values())
            calm = 0 if moves or busy or before != (len(self.api.changes), self.passes) else calm + 1
            if calm > 15:
                break
        for controller in self.controllers:
            await controller.cancel()

    def hibernate(self, name: str, pod: str, desire: str, **status: Any) -> None:
        body = {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_HIBERNATION,
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"podRef": {"name": pod}, "desire": desire},
            "status": status,
        }
        self.api.create("hibernation", body, by="user")

    def edit(self, name: str, desire: str) -> None:
        self.api.patch("hibernation", "ns", name, {"spec": {"desire": desire}}, by="user")

    def end(self, name: str) -> None:
        self.api.delete("hibernation", "ns", name, by="user")


@pytest.mark.asyncio
@pytest.mark.scenario("S307", "S308", "S309")
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
async def test_everything_about_one_vm_runs_one_after_another(pod: str) -> None:
    """Opposing desires, one that is deleted meanwhile, and in a set one that names another pod and this VM."""
    cluster = Cluster()
    if pod == "demo-0":
        cluster.api.create("set", cocoonset(), by="user")
    else:
        annotations = {keys.VM_NAME: "vk-ns-solo", keys.MANAGED: "true", keys.IMAGE: "base"}
        metadata = {"name": "solo", "namespace": "ns", "annotations": annotations}
        cluster.api.create("pod", {"metadata": metadata, "spec": {}}, by="user")
    moves: list[Callable[[], None]] = [
        lambda: None,
        lambda: cluster.hibernate("first", pod, "Hibernate"),
        lambda: cluster.hibernate("second", pod, "Wake"),
        *[partial(cluster.edit, "first", desire) for desire in ("Wake", "Hibernate", "Wake", "Hibernate")],
        lambda: cluster.edit("second", "Hibernate"),
        lambda: cluster.end("first"),
    ]
    if pod == "demo-0":
        stray = partial(cluster.hibernate, "stray", "demo-7", "Wake", vmName="vk-ns-demo-0", phase="Hibernated")
        moves = [*moves[:3], stray, *moves[3:6], lambda: cluster.end("stray"), *moves[6:]]
    await cluster.play([move for each in moves for move in (each, *[lambda: None] * 9)])
    assert not cluster.twice
    assert cluster.registry.most == 1
    assert len(cluster.registry.requests) >= 2
    assert [item["metadata"]["name"] for item in cluster.api.list("hibernation")] == ["second"]
    assert cluster.api.list("hibernation")[0]["status"]["phase"] == "Hibernated"
    assert cluster.agent.vms == {}
    assert (f"vk-ns-{pod}", "hibernate") in cluster.registry.tags
