"""The operator on the model: its ports, its cache, and a harness that drives it from event to rest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cocoon_operator.api import keys, names
from cocoon_operator.api.errors import InvalidError
from cocoon_operator.api.hibernation import Hibernation, hibernation_from_object
from cocoon_operator.api.pod import Pod, pod_from_object
from cocoon_operator.reconcile.objects import SetObject, set_from_object
from cocoon_operator.reconcile.reconciler import Reconciler
from cocoon_operator.reconcile.records import can_have_pod
from cocoon_operator.reconcile.view import Outcome, View
from tests.model.agent import ModelAgent
from tests.model.apiserver import ModelAPIServer, ModelClock, Object, cocoonset
from tests.model.registry import ModelRegistry

OPERATOR = "operator"
Hook = Callable[[str, str], None]


def _no_hook(_moment: str, _call: str) -> None:
    return


@dataclass
class ModelCache:
    """What the operator has seen: the watch up to a point, its own answers on top (never older than either)."""

    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def apply(self, kind: str, obj: Object) -> None:
        metadata = obj["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        seen = self.objects.get(key)
        newer = seen is None or int(metadata["resourceVersion"]) >= int(seen["metadata"]["resourceVersion"])
        if newer and metadata["uid"] not in self.gone:
            self.objects[key] = copy.deepcopy(obj)

    def remove(self, kind: str, obj: Object) -> None:
        metadata = obj["metadata"]
        self.gone.add(metadata["uid"])
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        if key in self.objects and self.objects[key]["metadata"]["uid"] == metadata["uid"]:
            del self.objects[key]


@dataclass
class ModelCluster:
    """Port ``Cluster`` on the model API server. ``hook`` is called before and after each call and may raise."""

    api: ModelAPIServer
    cache: ModelCache
    hook: Hook = _no_hook

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        self.hook("before", f"get {name}")
        found = self.api.get("pod", namespace, name)
        if found is not None:
            self.cache.apply("pod", found)
        return _pod(found) if found is not None else None

    async def list_pods(self, namespace: str, set_name: str) -> Sequence[Pod]:
        self.hook("before", f"list {set_name}")
        if len(set_name) > 63:
            raise InvalidError("unable to parse requirement: must be no more than 63 characters", status=400)
        return [_pod(pod) for pod in self.api.list("pod", namespace) if _label(pod) == set_name]

    async def create_pod(self, namespace: str, body: Mapping[str, Any]) -> Pod:
        return self._pod_write(f"create {body['metadata']['name']}", lambda: self.api.create("pod", body, by=OPERATOR))

    async def patch_pod(self, pod: Pod, annotations: Mapping[str, str | None], *, guarded: bool = False) -> Pod:
        body = {"metadata": {"annotations": dict(annotations)}}
        version = pod.resource_version if guarded else ""
        return self._pod_write(
            f"patch {pod.name}",
            lambda: self.api.patch("pod", pod.namespace, pod.name, body, by=OPERATOR, uid=pod.uid, version=version),
        )

    async def delete_pod(self, pod: Pod) -> bool:
        self.hook("before", f"delete {pod.name}")
        if self.api.get("pod", pod.namespace, pod.name) is None:
            return False
        answer = self.api.delete("pod", pod.namespace, pod.name, by=OPERATOR, uid=pod.uid, version=pod.resource_version)
        if self.api.get("pod", pod.namespace, pod.name) is None:
            self.cache.remove("pod", answer)
        else:
            self.cache.apply("pod", answer)
        self.hook("after", f"delete {pod.name}")
        return True

    async def patch_set(
        self,
        target: SetObject,
        *,
        annotations: Mapping[str, str | None] | None = None,
        finalizers: Sequence[str] | None = None,
    ) -> SetObject:
        metadata: Object = {}
        if annotations:
            metadata["annotations"] = dict(annotations)
        if finalizers is not None:
            metadata["finalizers"] = list(finalizers)
        return self._set_write(target, {"metadata": metadata}, "")

    async def patch_set_status(self, target: SetObject, status: Mapping[str, Any]) -> SetObject:
        return self._set_write(target, {"status": dict(status)}, "status")

    async def patch_hibernation(self, target: Hibernation, *, finalizers: Sequence[str]) -> Hibernation:
        return self._hibernation_write(target, {"metadata": {"finalizers": list(finalizers)}}, "")

    async def patch_hibernation_status(self, target: Hibernation, status: Mapping[str, Any]) -> Hibernation:
        return self._hibernation_write(target, {"status": dict(status)}, "status")

    def _hibernation_write(self, target: Hibernation, body: Object, subresource: str) -> Hibernation:
        return hibernation_from_object(self._write("hibernation", target, body, subresource))

    def _pod_write(self, call: str, write: Callable[[], Object]) -> Pod:
        self.hook("before", call)
        answer = write()
        self.hook("after", call)
        self.cache.apply("pod", answer)
        return _pod(answer)

    def _set_write(self, target: SetObject, body: Object, subresource: str) -> SetObject:
        return set_from_object(self._write("set", target, body, subresource))

    def _write(self, kind: str, target: SetObject | Hibernation, body: Object, subresource: str) -> Object:
        call = f"patch{subresource} {'' if kind == 'set' else kind + '/'}{target.name}"
        self.hook("before", call)
        answer = self.api.patch(
            kind,
            target.namespace,
            target.name,
            body,
            by=OPERATOR,
            uid=target.uid,
            version=target.resource_version,
            subresource=subresource,
        )
        self.hook("after", call)
        self.cache.apply(kind, answer)
        return answer


@dataclass
class ModelRecorder:
    """Events, in order."""

    events: list[tuple[str, str, str, str]] = field(default_factory=list)

    def event(self, target: SetObject | Hibernation, kind: str, reason: str, message: str) -> None:
        self.events.append((target.name, kind, reason, message))

    def reasons(self) -> list[str]:
        return [reason for _, _, reason, _ in self.events]


@dataclass
class ModelMeasures:
    """Counters and durations by name and labels."""

    counts: dict[tuple[str, tuple[tuple[str, str], ...]], int] = field(default_factory=dict)
    durations: list[tuple[str, float, dict[str, str]]] = field(default_factory=list)

    def count(self, name: str, **labels: str) -> None:
        key = (name, tuple(sorted(labels.items())))
        self.counts[key] = self.counts.get(key, 0) + 1

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self.durations.append((name, seconds, labels))

    def of(self, name: str) -> int:
        return sum(value for (counter, _), value in self.counts.items() if counter == name)


@dataclass
class ModelClaims:
    """The index over the operator's cache of sets, by the agents' names alone."""

    cache: ModelCache
    complete: bool = True

    def hibernations(self, vm_name: str) -> Sequence[Hibernation]:
        found = [
            hibernation_from_object(obj) for (kind, _, _), obj in self.cache.objects.items() if kind == "hibernation"
        ]
        return [item for item in found if names.vm_name_of_pod(item.namespace, item.pod_name) == vm_name]

    def claimants(self, vm_name: str) -> Sequence[SetObject]:
        sets = [set_from_object(obj) for (kind, _, _), obj in self.cache.objects.items() if kind == "set"]
        fitting = [s for s in sets if _can_have(s, vm_name)]
        return sorted(fitting, key=lambda s: (s.creation_timestamp, s.uid))


class World:
    """Everything together. ``settle`` runs operator and agent until nothing happens any more."""

    def __init__(self) -> None:
        self.clock = ModelClock()
        self.api = ModelAPIServer(self.clock)
        self.registry = ModelRegistry()
        self.agent = ModelAgent(self.api, self.registry)
        self.recorder = ModelRecorder()
        self.measures = ModelMeasures()
        self.hook: Hook = _no_hook
        self.outcome = Outcome()
        self.tag_collection_timeout = 600.0
        self.start_operator()

    # -- operator --------------------------------------------------------------------------------------------------

    def start_operator(self) -> None:
        """A new process: nothing is remembered, everything is listed."""
        self.cache = ModelCache()
        self.cluster = ModelCluster(self.api, self.cache, self._call)
        self.claims = ModelClaims(self.cache)
        self.reconciler = Reconciler(
            cluster=self.cluster,
            registry=self.registry,
            recorder=self.recorder,
            measures=self.measures,
            claims=self.claims,
            clock=self.clock,
            tag_collection_timeout=self.tag_collection_timeout,
        )
        self.seen = len(self.api.changes)
        for kind in ("set", "pod", "hibernation"):
            for obj in self.api.list(kind):
                self.cache.apply(kind, obj)

    def _call(self, moment: str, call: str) -> None:
        self.hook(moment, call)

    def observe(self, limit: int | None = None) -> int:
        """Let the operator's watches catch up, wholly or by ``limit`` changes."""
        end = len(self.api.changes) if limit is None else min(len(self.api.changes), self.seen + limit)
        for verb, obj in self.api.changes[self.seen : end]:
            kind = {"CocoonSet": "set", "CocoonHibernation": "hibernation"}.get(obj.get("kind", ""), "pod")
            if verb == "DELETED":
                self.cache.remove(kind, obj)
            else:
                self.cache.apply(kind, obj)
        advanced, self.seen = end - self.seen, end
        return advanced

    def view(self, name: str = "demo", namespace: str = "ns") -> View:
        found = self.cache.objects.get(("set", namespace, name))
        pods = [
            _pod(obj)
            for (kind, a_namespace, _), obj in sorted(self.cache.objects.items())
            if kind == "pod" and a_namespace == namespace and _label(obj) == name
        ]
        hibernations = tuple(
            hibernation_from_object(copy.deepcopy(obj))
            for (kind, a_namespace, _), obj in sorted(self.cache.objects.items())
            if kind == "hibernation" and a_namespace == namespace
        )
        target = set_from_object(copy.deepcopy(found)) if found is not None else None
        driven = frozenset(item.name for item in hibernations if target and can_have_pod(target, item.pod_name))
        return View(target, tuple(pods), hibernations, self.clock.now(), driven)

    def lone_view(self, pod: str, namespace: str = "ns") -> View:
        """What lives under the key of a pod outside every set."""
        everything = [
            hibernation_from_object(copy.deepcopy(obj))
            for (kind, _, _), obj in sorted(self.cache.objects.items())
            if kind == "hibernation"
        ]
        found = tuple(item for item in everything if (item.namespace, item.pod_name) == (namespace, pod))
        return View(None, (), found, self.clock.now(), frozenset(item.name for item in found))

    async def reconcile(self, name: str = "demo", namespace: str = "ns") -> Outcome:
        """One run on what the operator has seen so far, of the set and of the CocoonHibernations that are no set's."""
        view = self.view(name, namespace)
        lone = sorted({item.pod_name for item in view.hibernations if item.name not in view.driven})
        views = [view, *(self.lone_view(pod, namespace) for pod in lone)]
        outcomes = [await self.reconciler.reconcile(each) for each in views]
        waits = [outcome.requeue_after for outcome in outcomes if outcome.requeue_after is not None]
        error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        self.outcome = Outcome(requeue_after=min(waits, default=None), error=error)
        return self.outcome

    async def run(self, name: str = "demo", namespace: str = "ns") -> Outcome:
        """One run with fresh caches."""
        self.observe()
        return await self.reconcile(name, namespace)

    async def settle(self, name: str = "demo", namespace: str = "ns", *, rounds: int = 80) -> None:
        """Operator and agent in turn, each to its end, until nobody has a reason to go on.

        As in the engine, the operator runs for what others did, for a deadline, or after an error; what it wrote itself is no
        reason: a pass that relies on another one has to say so. Waits of up to 15 s pass, longer ones end the settling.
        """
        failed = ""
        for _ in range(rounds):
            mark = len(self.api.writes)
            await self.run(name, namespace)
            self.agent.run()
            if any(write.by != OPERATOR for write in self.api.writes[mark:]):
                failed = ""
                continue
            wait = self.outcome.requeue_after
            if self.outcome.error is not None and len(self.api.writes) > mark and repr(self.outcome.error) != failed:
                failed = repr(self.outcome.error)
                continue
            if wait is None or wait > 15 or self.outcome.error is not None:
                return
            self.clock.advance(wait)
        raise AssertionError("the model does not come to rest")

    # -- users -----------------------------------------------------------------------------------------------------

    def apply(self, name: str = "demo", namespace: str = "ns", **spec: Any) -> Object:
        return self.api.create("set", cocoonset(name, namespace, **spec), by="user")

    def apply_hibernation(self, name: str, pod: str, desire: str, namespace: str = "ns") -> Object:
        body = {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_HIBERNATION,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"podRef": {"name": pod}, "desire": desire},
        }
        return self.api.create("hibernation", body, by="user")

    def edit(self, name: str = "demo", namespace: str = "ns", **spec: Any) -> None:
        self.api.patch("set", namespace, name, {"spec": spec}, by="user")

    def annotate(self, values: Mapping[str, str | None], name: str = "demo", namespace: str = "ns") -> None:
        self.api.patch("set", namespace, name, {"metadata": {"annotations": dict(values)}}, by="user")

    def delete_set(self, name: str = "demo", namespace: str = "ns") -> None:
        self.api.delete("set", namespace, name, by="user")

    def delete_pod(self, name: str = "demo-0", namespace: str = "ns") -> None:
        """A user, or a node that is lost, takes the pod away at once."""
        if self.api.get("pod", namespace, name) is not None:
            self.api.remove("pod", namespace, name)
        self.agent.vms.pop(names.vm_name_of_pod(namespace, name), None)

    # -- reading ---------------------------------------------------------------------------------------------------

    def set(self, name: str = "demo", namespace: str = "ns") -> Object:
        found = self.api.get("set", namespace, name)
        assert found is not None, f"CocoonSet {name} does not exist"
        return found

    def pod(self, name: str = "demo-0", namespace: str = "ns") -> Object | None:
        return self.api.get("pod", namespace, name)

    def annotation(self, key: str, name: str = "demo", namespace: str = "ns") -> str | None:
        value: str | None = (self.set(name, namespace)["metadata"].get("annotations") or {}).get(key)
        return value

    @property
    def phase(self) -> str:
        return str(self.set()["status"].get("phase", ""))

    def condition(self, kind: str) -> Object:
        found = [c for c in self.set()["status"].get("conditions", []) if c["type"] == kind]
        return found[0] if found else {}

    def tag(self, vm_name: str = "vk-ns-demo-0", tag: str = "hibernate") -> str | None:
        return self.registry.tags.get((vm_name, tag))

    def memory(self, vm_name: str = "vk-ns-demo-0") -> list[str] | None:
        vm = self.agent.vms.get(vm_name)
        return vm.memory if vm else None

    def writes(self, since: int = 0) -> list[str]:
        """What the operator wrote to the API server."""
        return self.api.writes_by(OPERATOR, since)

    @property
    def mark(self) -> int:
        return len(self.api.writes)


def _can_have(target: SetObject, vm_name: str) -> bool:
    if names.slot_of_vm_name(target.namespace, target.name, vm_name) >= 0:
        return True
    boxes = target.spec.toolboxes if target.spec else ()
    return any(names.vm_name(target.namespace, target.name, box.name) == vm_name for box in boxes)


def _pod(obj: Object) -> Pod:
    return pod_from_object(_without_nulls(obj))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


def _label(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(keys.LABEL_SET, ""))
