"""Starting positions of a set on the model, and faults of single calls, shared by the scenario tests of the main agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cocoon_operator.api import keys
from cocoon_operator.api.cocoonset import CocoonSetSpec
from cocoon_operator.api.errors import KubeError
from cocoon_operator.api.pod import Pod, pod_from_object
from cocoon_operator.reconcile.members import Member, main_member, members_of
from cocoon_operator.reconcile.objects import SetObject, set_from_object
from cocoon_operator.reconcile.pods import build_main, build_sub_agent, build_toolbox
from tests.model.apiserver import Object, cocoonset
from tests.model.judged import JudgedWorld
from tests.model.world import World

VM = "vk-ns-demo-0"
TAG = f"{VM}:hibernate"
GET, HEAD, DROP = f"GET {TAG}", f"HEAD {TAG}", f"DELETE {TAG}"
HINT_NODE = "slot_release_wake_total{cocoonset=demo,namespace=ns,placement=hint-node}"
POOL = "slot_release_wake_total{cocoonset=demo,namespace=ns,placement=pool}"
OLD_DIGEST = "sha256:" + "a" * 64


# -- a set at rest ------------------------------------------------------------------------------------------------------


async def up(world: World, **spec: Any) -> None:
    """A set that runs, with some work in its VM."""
    world.apply(**spec)
    await world.settle()
    assert world.phase == "Running"
    world.agent.work(VM, "work")


async def asleep(world: World, **spec: Any) -> str:
    """A set that is suspended with that work saved; returns the digest of the save."""
    await up(world, **spec)
    world.edit(suspend=True)
    await world.settle()
    assert world.phase == "Suspended"
    assert world.memory() is None
    return str(world.tag())


async def released(world: World, **spec: Any) -> str:
    """A set whose seat is free; returns the digest of the save. Counters begin anew."""
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


def saved(world: World, vm_name: str = VM, *, image: str = "base", memory: Iterable[str] = ("saved",)) -> str:
    """A snapshot in the registry under ``:hibernate``; returns its digest."""
    return world.registry.push(vm_name, "hibernate", {"memory": list(memory), "image": image, "id": "vm-0"})


def made_by_go(
    world: World, status: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """A set that the Go operator left: finalizer, a status without ``SnapshotCurrent``, no list of names but the one given."""
    world.apply(**spec)
    world.api.patch(
        "set",
        "ns",
        "demo",
        {"metadata": {"finalizers": [keys.SET_FINALIZER], "annotations": dict(annotations or {})}},
        by="go",
    )
    world.api.patch("set", "ns", "demo", {"status": dict(status)}, by="go", subresource="status")
    return world.set()


# -- pods ----------------------------------------------------------------------------------------------------------------


def set_object(name: str = "demo", namespace: str = "ns", generation: int = 1, **spec: Any) -> SetObject:
    """A set as a run sees it, made from a spec with the CRD's defaults."""
    body = cocoonset(name, namespace, **spec)
    body["metadata"].update(uid="uid-set", generation=generation, resourceVersion="1")
    target = set_from_object(body)
    assert target.spec is not None, target.spec_error
    return target


def spec_of(target: SetObject) -> CocoonSetSpec:
    assert target.spec is not None
    return target.spec


def member(target: SetObject, slot: str) -> Member:
    """The member of a set with this slot label."""
    return next(m for m in members_of(target, spec_of(target)) if m.slot == slot)


def built_main(target: SetObject, *, restore: bool = False, hint: str = "") -> Object:
    return build_main(target, spec_of(target), main_member(target), restore=restore, hint=hint)


def built_sub(target: SetObject, slot: str = "1", *, fork_from: str = VM, node: str = "node-a") -> Object:
    return build_sub_agent(target, spec_of(target), member(target, slot), fork_from=fork_from, node=node)


def built_toolbox(target: SetObject, name: str = "tb") -> Object:
    found = member(target, name)
    assert found.toolbox is not None
    return build_toolbox(target, spec_of(target), found, found.toolbox)


def read(body: Mapping[str, Any]) -> Pod:
    return pod_from_object(dict(body))


def stand(
    world: World,
    body: Mapping[str, Any],
    *,
    node: str = "node-a",
    annotations: Mapping[str, str | None] | None = None,
    status: Mapping[str, Any] | None = None,
) -> Object:
    """Put a pod of the set ``demo`` into the world, owned by the set that is there now, bound and with this status."""
    owner = dict(body["metadata"]["ownerReferences"][0], uid=world.set()["metadata"]["uid"])
    metadata = {**body["metadata"], "ownerReferences": [owner]}
    pod_spec = {**body["spec"], **({"nodeName": node} if node else {})}
    made = world.api.create(
        "pod", {**body, "metadata": metadata, "spec": pod_spec, "status": dict(status or {})}, by="go"
    )
    name = made["metadata"]["name"]
    if annotations:
        world.api.patch("pod", "ns", name, {"metadata": {"annotations": dict(annotations)}}, by="go")
    found = world.pod(name)
    assert found is not None
    return found


def running_status(*, ready: bool = True) -> dict[str, Any]:
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "agent", "state": {"running": {}}}],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }


AWAKE = {keys.VM_ID: "vm-9", keys.LIFECYCLE_STATE: "ready", keys.LIFECYCLE_GENERATION: "1"}
SLEEPING = {
    keys.HIBERNATE: "true",
    keys.LIFECYCLE_STATE: "hibernated",
    keys.LIFECYCLE_GENERATION: "1",
    "model/trace": "slept",
}


def agent_says(world: World, values: Mapping[str, str | None], pod: str = "demo-0") -> None:
    """The node agent writes annotations of a pod."""
    world.api.patch("pod", "ns", pod, {"metadata": {"annotations": dict(values)}}, by="agent")


def agent_shows(world: World, status: Mapping[str, Any], pod: str = "demo-0") -> None:
    """The node agent writes a pod's status."""
    world.api.patch("pod", "ns", pod, {"status": dict(status)}, by="agent", subresource="status")


def annotations_of(world: World, pod: str = "demo-0") -> dict[str, str]:
    found = world.pod(pod)
    assert found is not None, f"pod {pod} does not exist"
    values: dict[str, str] = found["metadata"]["annotations"]
    return values


def terminating(world: World, pod: str = "demo-0") -> None:
    """Somebody deletes the pod, and its node takes its time."""
    world.api.delete("pod", "ns", pod, by="user")
    found = world.pod(pod)
    assert found is not None
    assert found["metadata"]["deletionTimestamp"]


def hibernation(
    world: World, name: str = "demo-0", *, desire: str = "Hibernate", phase: str = "", pod: str = ""
) -> None:
    """A CocoonHibernation, as stored."""
    world.apply_hibernation(name, pod or name, desire)
    if phase:
        world.api.patch("hibernation", "ns", name, {"status": {"phase": phase}}, by="user", subresource="status")


# -- faults and counts ---------------------------------------------------------------------------------------------------


def refuse(world: World, call: str, error: KubeError, *, times: int = 1000) -> None:
    """Let the API server answer a call (``patch demo-0``, ``delete demo-0``, ``patchstatus demo``) with an error."""
    left = [times]

    def hook(moment: str, happening: str) -> None:
        if moment == "before" and happening == call and left[0] > 0:
            left[0] -= 1
            raise error

    world.hook = hook


async def rest(world: World) -> None:
    """Settle until nothing changes any more, removals of pods by their node included."""
    for _ in range(10):
        before = len(world.api.changes)
        await world.settle()
        if len(world.api.changes) == before:
            return
    raise AssertionError("the model does not come to rest")


def heal(world: World) -> None:
    world.hook = lambda _moment, _call: None


def counters(world: World) -> dict[str, int]:
    """Counters as ``name{label=value,...}``."""
    return {
        name + ("{" + ",".join(f"{k}={v}" for k, v in labels) + "}"): value
        for (name, labels), value in world.measures.counts.items()
    }


MILESTONES = frozenset({"Suspended", "Resumed", "Recreating", "MigrationStarted", "Migrated"})


def events(world: World) -> list[tuple[str, str, str]]:
    """Events of the set as (type, reason, message), without the milestones that test_milestones.py proves."""
    told = [(kind, reason, message) for _, kind, reason, message in world.recorder.events]
    return [event for event in told if event[1] not in MILESTONES]


def bodies(world: World, since: int, verb: str) -> list[Any]:
    """What the operator sent with its writes of a kind (``patch pod/demo-0``)."""
    return [w.body for w in world.api.writes[since:] if w.by == "operator" and str(w) == verb]


def pod_writes(world: World, since: int = 0) -> list[str]:
    """What the operator wrote to pods since a mark."""
    return [write for write in world.writes(since) if "pod/" in write]


def asked(world: World, since: int = 0) -> list[str]:
    """The registry requests since a mark."""
    return world.registry.requests[since:]


def orphan(digest: str) -> str:
    """The tag under which a snapshot is put aside."""
    return f"orphan-{digest.removeprefix('sha256:')[:12]}"


# -- sub-agents and toolboxes --------------------------------------------------------------------------------------------

RUN_BOX: dict[str, Any] = {"name": "db", "image": "box", "mode": "run"}
STATIC_BOX: dict[str, Any] = {"name": "vnc", "mode": "static", "staticIP": "10.1.1.1", "staticVMID": "x"}


def vm(slot: int | str) -> str:
    """The VM name of a slot or toolbox of the set ``demo``."""
    return f"vk-ns-demo-{slot}"


async def roles_up(world: World, replicas: int = 1, boxes: Iterable[Mapping[str, Any]] = (), **spec: Any) -> None:
    """A set with sub-agents and toolboxes that runs, with work of its own in every VM."""
    agent = {"replicas": replicas, **spec.pop("agent", {})}
    world.apply(agent=agent, toolboxes=[dict(box) for box in boxes], **spec)
    await rest(world)
    assert world.phase == "Running", world.set()["status"]
    for name in world.agent.vms:
        world.agent.work(name, f"work of {name}")


async def roles_asleep(world: World, replicas: int = 1, boxes: Iterable[Mapping[str, Any]] = (), **spec: Any) -> None:
    """The same set, suspended, with all of that saved."""
    await roles_up(world, replicas, boxes, **spec)
    world.edit(suspend=True)
    await rest(world)
    assert world.phase == "Suspended", world.set()["status"]
    assert world.agent.vms == {}


def pod_fails(world: World, pod: str, *, phase: str = "Failed") -> None:
    """The node reports that the pod ended; its VM is gone."""
    agent_shows(world, {"phase": phase, "containerStatuses": None, "conditions": None}, pod)
    world.agent.vms.pop(f"vk-ns-{pod}", None)


def milestones(world: World) -> list[tuple[str, str]]:
    """The events that tell the course of the set, as (reason, message)."""
    return [(reason, message) for _, _, reason, message in world.recorder.events if reason in MILESTONES]


def pods(world: World) -> list[str]:
    """The names of all pods, in order."""
    return [pod["metadata"]["name"] for pod in world.api.list("pod")]


def look(world: World) -> None:
    """Let the judge of a judged world see what the agent did before the operator acts again."""
    if isinstance(world, JudgedWorld) and world.judge is not None:
        world.judge.look()


async def judged_rest(world: JudgedWorld) -> None:
    """As :func:`rest`, judged after every round."""
    for _ in range(80):
        before = world.api.version
        await world.run()
        world.agent.run()
        look(world)
        if world.api.version == before:
            wait = world.outcome.requeue_after
            if wait is None or wait > 15 or world.outcome.error:
                return
            world.clock.advance(wait)
    raise AssertionError("the model does not come to rest")


async def restless(world: World, steps: int) -> bool:
    """Operator and agent in turn, one small step at a time, up to a number of steps. True: there was nothing more to do."""
    done = 0
    while True:
        before = world.api.version
        await world.run()
        done += world.api.version != before
        if done >= steps:
            return False
        stepped = done
        for pod in world.api.list("pod"):
            done += world.agent.step(pod["metadata"]["namespace"], pod["metadata"]["name"])
            look(world)
            if done >= steps:
                return False
        # A push to the registry is a step too, of which the API server knows nothing.
        if world.api.version == before and done == stepped:
            wait = world.outcome.requeue_after
            if wait is None or wait > 15 or world.outcome.error:
                return True
            world.clock.advance(wait)
