"""One CocoonSet in a namespace of its own: what a user does to it, what becomes of its VM, and what it cost."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from nodes import IMAGE, NODES, PREFIX

from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.rawapi import Api, Obj
from cocoon_devkit.registry import Registry
from cocoon_operator.api import keys

OTHER_IMAGE: Final = "other-base"
SECONDS: Final = 20.0
"""How long a test waits for something that takes well under a second on an idle machine."""
REST: Final = 2.6
"""Seconds without a write after which a set is at rest: longer than the window in which changes of its status gather."""
_MERGE: Final = "application/merge-patch+json"
_PROBE: Final = {"User-Agent": "cocoon-devkit-probe"}
_MANIFEST: Final = {"Accept": "application/vnd.oci.image.manifest.v1+json"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every seat of a run has in common."""

    api: Api
    nodes: AgentProcess
    registry: Registry
    audit: OperatorAudit

    @property
    def agent(self) -> AgentClient:
        """The nodes' control endpoint; another one after somebody has started them again."""
        return self.nodes.client


class Seat:
    """A set, its main agent's pod and VM. ``work`` is remembered: :meth:`check_memory` compares."""

    def __init__(self, around: Surroundings, namespace: str, name: str = "demo") -> None:
        self.around = around
        self.api = around.api
        self.registry = around.registry
        self.audit = around.audit
        self.namespace = namespace
        self.name = name
        self.pod_name = f"{name}-0"
        self.vm = f"vk-{namespace}-{name}-0"
        self.written: list[str] = []

    def neighbour(self, name: str) -> Seat:
        """Another set of the same namespace."""
        return Seat(self.around, self.namespace, name)

    def neighbour_up(self, name: str) -> Seat:
        """Another set of the same namespace, running."""
        other = self.neighbour(name)
        other.up()
        return other

    @property
    def agent(self) -> AgentClient:
        return self.around.agent

    @property
    def _sets(self) -> str:
        return f"/apis/{keys.API_VERSION}/namespaces/{self.namespace}/{keys.PLURAL_SETS}"

    @property
    def path(self) -> str:
        return f"{self._sets}/{self.name}"

    @property
    def pod_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod_name}"

    # -- what a user does ---------------------------------------------------------------------------------------------

    def create(self, *, annotations: dict[str, str] | None = None, agent: Obj | None = None, **spec: Any) -> None:
        """Create the set; ``agent`` adds to ``spec.agent``, whose image is the published one."""
        body = {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_SET,
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": annotations or {}},
            "spec": {"agent": {"image": IMAGE, **(agent or {})}, **spec},
        }
        self.api.call("POST", self._sets, body)

    def up(self, **spec: Any) -> None:
        """Create the set, wait until it runs and is at rest in the registry, and begin some work in its VM."""
        self.create(**spec)
        self.until_running()
        self.work("first")

    def edit(self, **spec: Any) -> None:
        """Merge-patch the spec."""
        self.api.call("PATCH", self.path, {"spec": spec}, _MERGE)

    def annotate(self, **notes: str | None) -> None:
        """Merge-patch annotations of the set: ``start_fresh`` is ``cocoonset.cocoonstack.io/start-fresh``."""
        named = {f"{keys.GROUP}/{key.replace('_', '-')}": value for key, value in notes.items()}
        self.api.call("PATCH", self.path, {"metadata": {"annotations": named}}, _MERGE)

    def suspend(self) -> None:
        """Ask for sleep and wait for it."""
        self.edit(suspend=True)
        self.until_suspended()

    def wake(self) -> None:
        """Ask for the VM again and wait for it."""
        self.edit(suspend=False)
        self.until_running()

    def delete(self) -> None:
        """Send the DELETE."""
        self.api.call("DELETE", self.path)

    def delete_pod(self) -> None:
        """Send the DELETE of the main agent's pod, as a user would."""
        self.api.call("DELETE", self.pod_path)

    def annotate_pod(self, notes: dict[str, str | None]) -> None:
        self.api.call("PATCH", self.pod_path, {"metadata": {"annotations": notes}}, _MERGE)

    # -- what is there ------------------------------------------------------------------------------------------------

    def find(self) -> Obj | None:
        return self.api.find(self.path)

    def get(self) -> Obj:
        found = self.find()
        assert found is not None, f"{self.name} is gone"
        return found

    @property
    def status(self) -> Obj:
        return dict(self.get().get("status") or {})

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    def condition(self, kind: str) -> Obj:
        """A condition as it is stored, empty when there is none."""
        return condition(self.get(), kind)

    def note(self, key: str) -> str | None:
        """An annotation of the set."""
        return note(self.get(), key)

    def find_pod(self) -> Obj | None:
        return self.api.find(self.pod_path)

    def pod(self) -> Obj:
        found = self.find_pod()
        assert found is not None, f"{self.pod_name} is gone"
        return found

    def events(self, reason: str = "") -> list[Obj]:
        """The operator's events on the set, all or those with a reason."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.kind={keys.KIND_SET}"
        found = self.api.call("GET", f"{path},involvedObject.name={self.name}")["items"]
        return [event for event in found if reason in ("", event["reason"])]

    def until_event_seen(self, reason: str) -> None:
        """Wait until an event was sent at least once."""
        self.until(lambda: bool(self.events(reason)), f"event {reason}")

    def until_event(self, reason: str, *, count: int = 1) -> Obj:
        """Wait for an event, and be sure that it happened ``count`` times; returns the newest."""
        self.until_event_seen(reason)
        found = self.events(reason)
        assert sum(int(event.get("count") or 1) for event in found) == count, [event["message"] for event in found]
        return found[-1]

    # -- the VM -------------------------------------------------------------------------------------------------------

    def homes(self) -> list[str]:
        """The nodes that have a VM of the set's name, running or not."""
        return [node for node in NODES if self.vm in self.agent.vms(node)]

    def find_vm(self) -> Obj | None:
        """The VM, wherever it is. Two of one name are an error (I3)."""
        found = [vms[self.vm] for node in NODES if self.vm in (vms := self.agent.vms(node))]
        assert len(found) <= 1, f"two VMs of one name: {found}"
        return found[0] if found else None

    def the_vm(self) -> Obj:
        vm = self.find_vm()
        assert vm is not None, f"no VM {self.vm}"
        return vm

    @property
    def node(self) -> str:
        """Where the VM is."""
        (node,) = self.homes()
        return node

    def work(self, text: str) -> None:
        """Write a line into the running VM, and remember that it has to be there from now on."""
        self.agent.write_work(self.node, self.vm, text)
        self.written.append(text)

    def check_memory(self) -> None:
        """Every line that was ever written is in the running VM, in order: nothing lost, nothing rolled back."""
        vm = self.the_vm()
        assert vm["state"] == "running"
        assert vm["memory"]["work"] == self.written, f"lost or rolled back: {vm}"

    def cached_on(self) -> list[str]:
        """The nodes that keep a local snapshot of the VM."""
        return [node for node in NODES if self.vm in self.agent.snapshots(node)]

    @contextmanager
    def barrier(self, point: str, node: str = "") -> Iterator[Callable[[], None]]:
        """Hold the agent at a point of this VM's life on every node; the value waits until it is held. Opened at the end."""
        armed = {each: self.agent.barrier(each, point, vm=self.vm) for each in ([node] if node else NODES)}

        def held() -> None:
            def somebody() -> bool:
                return any(
                    fault["waiting"] for each, number in armed.items() for fault in self.agent.faults(each)
                    if fault["id"] == number
                )  # fmt: skip

            self.until(somebody, f"the agent is at {point}")

        try:
            yield held
        finally:
            for each, number in armed.items():
                self.agent.clear(each, number)

    @contextmanager
    def without_agent(self) -> Iterator[None]:
        """Kill the agent of the pod's node: it would write what it knows over a pod status of ours (R1.25)."""
        node = self.pod()["spec"]["nodeName"]
        self.agent.kill_node(node)
        try:
            yield
        finally:
            self.agent.start_node(node)

    @contextmanager
    def fault(self, point: str, message: str = "") -> Iterator[None]:
        """Let a point fail for this VM on every node."""
        armed = {each: self.agent.fault(each, point, vm=self.vm, message=message) for each in NODES}
        try:
            yield
        finally:
            for each, number in armed.items():
                self.agent.clear(each, number)

    @contextmanager
    def blind_agents(self) -> Iterator[None]:
        """Let the agents see no news of pods until the end of the block."""
        for node in NODES:
            self.agent.pause_informer(node, paused=True)
        try:
            yield
        finally:
            for node in NODES:
                self.agent.pause_informer(node, paused=False)

    # -- the registry -------------------------------------------------------------------------------------------------

    def manifest(self, tag: str = keys.TAG_HIBERNATE) -> bytes | None:
        """The manifest behind a tag of the VM, None when the registry says that there is none."""
        return self.ask_registry("GET", f"manifests/{tag}", _MANIFEST)

    def tag(self, tag: str = keys.TAG_HIBERNATE) -> str | None:
        """The digest behind a tag of the VM."""
        return self._head(f"manifests/{tag}")

    def tags(self) -> set[str]:
        """Every tag of the VM's repository."""
        body = self.ask_registry("GET", "tags/list", {})
        return set(json.loads(body).get("tags") or ()) if body is not None else set()

    def put_manifest(self, tag: str, manifest: bytes) -> None:
        self.ask_registry("PUT", f"manifests/{tag}", {"Content-Type": _MANIFEST["Accept"]}, manifest)

    def drop_tag(self, tag: str = keys.TAG_HIBERNATE) -> None:
        self.ask_registry("DELETE", f"manifests/{tag}", {})

    def ask_registry(self, method: str, path: str, headers: dict[str, str], data: bytes | None = None) -> bytes | None:
        """The body of an answer about the VM's repository, None for 404."""
        request = self._request(method, path, headers, data)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def _head(self, path: str) -> str | None:
        try:
            with urllib.request.urlopen(self._request("HEAD", path, _MANIFEST), timeout=10) as answer:
                return str(answer.headers["Docker-Content-Digest"])
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def _request(
        self, method: str, path: str, headers: dict[str, str], data: bytes | None = None
    ) -> urllib.request.Request:
        url = f"{self.registry.url}/v2/{PREFIX}/{self.vm}/{path}"
        return urllib.request.Request(url, method=method, headers={**_PROBE, **headers}, data=data)

    # -- what the operator did ----------------------------------------------------------------------------------------

    def writes(self, mark: int) -> list[str]:
        """The operator's writes to the set and its pods since a mark of the audit log."""
        return self.audit.writes(mark, namespace=self.namespace, name=self.name)

    def asked(self, mark: int) -> list[str]:
        """The operator's requests about this VM since a mark of the registry's log, such as ``GET hibernate``."""
        start = f"/v2/{PREFIX}/{self.vm}/manifests/"
        return [
            f"{request.method} {request.path.removeprefix(start)}"
            for request in self.registry.requests(mark)
            if request.user_agent == keys.EVENT_COMPONENT and request.path.startswith(start)
        ]

    def orphaned_work(self) -> list[str]:
        """The work in the snapshot that was moved aside: it must be the only one of the VM."""
        (tag,) = [tag for tag in self.tags() if tag.startswith("orphan-")]
        return self.saved_work(tag)

    def layers(self, tag: str = keys.TAG_HIBERNATE) -> set[str]:
        """The digests of the layers of a snapshot."""
        manifest = self.manifest(tag)
        assert manifest is not None, f"no {self.vm}:{tag}"
        return {layer["digest"] for layer in json.loads(manifest)["layers"]}

    def saved_work(self, tag: str = keys.TAG_HIBERNATE) -> list[str]:
        """The work in the memory that is saved under a tag."""
        manifest = self.manifest(tag)
        assert manifest is not None, f"no {self.vm}:{tag}"
        (layer,) = [each for each in json.loads(manifest)["layers"] if each["mediaType"].endswith(".vm.memory")]
        body = self.ask_registry("GET", f"blobs/{layer['digest']}", {})
        assert body is not None
        return list(json.loads(body)["work"])

    # -- waiting ------------------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Poll until something holds; the failure shows the set and its pod."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what}\n{self.describe()}")
            time.sleep(0.03)

    def until_phase(self, phase: str, seconds: float = SECONDS) -> None:
        self.until(lambda: self.phase == phase, f"phase {phase}", seconds)

    def until_condition(self, kind: str, reason: str, seconds: float = SECONDS) -> Obj:
        """Wait until a condition has a reason; returns it."""
        self.until(lambda: self.condition(kind).get("reason") == reason, f"{kind}={reason}", seconds)
        return self.condition(kind)

    def until_observed(self) -> None:
        """Wait until the operator has answered to the last edit."""
        self.until(
            lambda: self.status.get("observedGeneration") == self.get()["metadata"]["generation"], "the edit was seen"
        )

    def until_running(self, seconds: float = SECONDS) -> None:
        """Wait until the set of this generation runs, and owes nothing."""
        self.until(lambda: _at(self.get(), "Running", "NoSnapshot"), "it runs", seconds)

    def until_suspended(self, seconds: float = SECONDS) -> None:
        """Wait until the set of this generation sleeps and is saved."""
        self.until(lambda: _at(self.get(), "Suspended", "Saved"), "it is suspended", seconds)

    def until_gone(self, seconds: float = SECONDS) -> None:
        """Wait until set and pod are gone, and no node has the VM."""
        self.until(lambda: self.find() is None and self.find_pod() is None and not self.homes(), "it is gone", seconds)

    def until_no_pod(self, seconds: float = SECONDS) -> None:
        """Wait until pod and VM are gone."""
        self.until(lambda: self.find_pod() is None and not self.homes(), "the pod is gone", seconds)

    def until_another_pod(self, uid: str) -> None:
        """Wait until the pod's name is another one's than the one with this UID."""
        self.until(
            lambda: (pod := self.find_pod()) is not None and pod["metadata"]["uid"] != uid, "the pod is made again"
        )

    def until_lifecycle(self, state: str, seconds: float = SECONDS) -> None:
        """Wait until the node agent says so."""
        self.until(lambda: note(self.find_pod() or {}, keys.LIFECYCLE_STATE) == state, f"lifecycle {state}", seconds)

    def settle(self, seconds: float = 0.5) -> None:
        """Give the operator time to do what it must not do."""
        time.sleep(seconds)

    def rest(self) -> None:
        """Wait until nobody has written anything in the namespace for ``REST`` seconds."""
        end = time.monotonic() + SECONDS
        mark, still = self.audit.mark(), time.monotonic()
        while (left := still + REST - time.monotonic()) > 0:
            time.sleep(min(left, REST / 8))
            if self.audit.moves(mark, namespace=self.namespace):
                assert time.monotonic() < end, f"no rest in {SECONDS:.0f} s: {self.describe()}"
                mark, still = self.audit.mark(), time.monotonic()

    def describe(self) -> str:
        """The set, its pod and its VM, for a failed test."""
        pod = self.find_pod() or {}
        parts = {
            "set": {key: value for key, value in (self.find() or {}).items() if key in ("spec", "status")},
            "notes": ((self.find() or {}).get("metadata") or {}).get("annotations"),
            "pod": (pod.get("metadata") or {}).get("annotations"),
            "pod status": pod.get("status"),
            "vms": {node: self.agent.vms(node).get(self.vm) for node in self.homes()},
            "tags": sorted(self.tags()) if self.registry.running else "registry is down",
            "events": [f"{event['reason']}: {event['message']}" for event in self.events()],
        }
        return json.dumps(parts, indent=1)


def _at(target: Obj, phase: str, snapshot: str) -> bool:
    status = target.get("status") or {}
    return (
        status.get("phase") == phase
        and status.get("observedGeneration") == target["metadata"]["generation"]
        and condition(target, "SnapshotCurrent").get("reason") == snapshot
    )


def condition(target: Obj, kind: str) -> Obj:
    """A condition of an object, empty when it has none of this type."""
    found = [each for each in (target.get("status") or {}).get("conditions") or [] if each["type"] == kind]
    return dict(found[0]) if found else {}


def note(target: Obj, key: str) -> str | None:
    """An annotation of an object."""
    value = ((target.get("metadata") or {}).get("annotations") or {}).get(key)
    return None if value is None else str(value)
