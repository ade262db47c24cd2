"""What a test of the node agent has in hand: its nodes, pods as the operator would make them, and what can be seen."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nodes import IMAGE, NODES, PREFIX

from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.rawapi import Api
from cocoon_devkit.registry import Registry

FAMILY = "agent-test"

VM = "vm.cocoonstack.io/"
SET = "cocoonset.cocoonstack.io/"
ID = f"{VM}id"
IP = f"{VM}ip"
LIFECYCLE = f"{VM}lifecycle-state"
OBSERVED = f"{VM}lifecycle-observed-generation"
MESSAGE = f"{VM}lifecycle-state-message"
GENERATION = f"{SET}generation"
BASE_IMAGE = "cocoonstack.snapshot.baseimage"

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_OF_SET = frozenset(
    {"mode", "image", "os", "managed", "snapshot-policy", "generation", "storage", "force-pull", "network"}
)
_COUNTER = itertools.count(1)

Obj = dict[str, Any]


class Fleet:
    """Nodes, a registry, a namespace. Pod names are short in tests and unique in the cluster."""

    def __init__(
        self,
        process: AgentProcess,
        api: Api,
        registry: Registry | None,
        namespace: str,
        nodes: Sequence[str] = NODES,
    ) -> None:
        self.process = process
        self.nodes = nodes
        self.api = api
        self._registry = registry
        self.namespace = namespace
        self.prefix = f"t{next(_COUNTER)}"
        self.started = self.agent.mark()

    @property
    def registry(self) -> Registry:
        assert self._registry is not None
        return self._registry

    @property
    def agent(self) -> AgentClient:
        return self.process.client

    def close(self) -> None:
        """Clear every fault and let every pod go; nobody waits for it, names are not used again."""
        for node in self.nodes:
            self.agent.clear(node)
        self.api.call("DELETE", f"{self._pods}?labelSelector={FAMILY}={self.prefix}", {"gracePeriodSeconds": 0})

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def full(self, name: str) -> str:
        """The name of a pod in the cluster."""
        return f"{self.prefix}-{name}"

    def path(self, name: str) -> str:
        return f"{self._pods}/{self.full(name)}"

    def vm(self, name: str) -> str:
        """The VM name of a pod."""
        return f"vk-{self.namespace}-{self.full(name)}"

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pod(self, name: str, /, *, node: str | None = "n1", **changes: str | None) -> Obj:
        """A pod object; ``changes`` are annotations by short name (``hibernate``, ``mode``), None leaves one out.

        Without a ``node`` it waits for the scheduler, which may choose either.
        """
        notes: dict[str, str | None] = {
            f"{VM}name": self.vm(name),
            f"{SET}mode": "clone",
            f"{SET}image": IMAGE,
            f"{SET}os": "linux",
            f"{SET}managed": "true",
            f"{SET}snapshot-policy": "never",
            f"{VM}backend": "cloud-hypervisor",
            GENERATION: "1",
        }
        notes |= {long_name(key): value for key, value in changes.items()}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.full(name),
                "namespace": self.namespace,
                "labels": {FAMILY: self.prefix},
                "annotations": {key: value for key, value in notes.items() if value is not None},
            },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                **({"nodeName": node} if node else {}),
                "tolerations": [
                    {"key": "virtual-kubelet.io/provider", "operator": "Exists"},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
                ],
                "containers": [{"name": "agent", "image": "example.invalid/placeholder:latest"}],
            },
        }

    def create(self, pod: Obj) -> str:
        """Create a pod; returns its UID."""
        return str(self.api.call("POST", self._pods, pod)["metadata"]["uid"])

    def begin(self, name: str, /, *, node: str | None = "n1", **changes: str | None) -> str:
        """Create a pod of this name; returns its UID."""
        return self.create(self.pod(name, node=node, **changes))

    def boot(self, name: str, /, *, node: str | None = "n1", **changes: str | None) -> Obj:
        """Create a pod and wait until it is ready."""
        self.begin(name, node=node, **changes)
        return self.until_state(name, "ready")

    def get(self, name: str) -> Obj | None:
        return self.api.find(self.path(name))

    def the_pod(self, name: str) -> Obj:
        pod = self.get(name)
        assert pod is not None
        return pod

    def annotate(self, name: str, /, **changes: str | None) -> None:
        """Patch annotations by short name; None removes one."""
        notes = {long_name(key): value for key, value in changes.items()}
        body = {"metadata": {"annotations": notes}}
        self.api.call("PATCH", self.path(name), body, "application/merge-patch+json")

    def hibernate(self, name: str) -> Obj:
        """Ask for sleep and wait for it."""
        self.annotate(name, hibernate="true")
        return self.until_state(name, "hibernated")

    def wake(self, name: str) -> Obj:
        """Take the request for sleep back and wait for a ready VM."""
        self.annotate(name, hibernate=None)
        return self.until_state(name, "ready")

    def ask_delete(self, name: str, *, force: bool = False) -> None:
        """Send the DELETE; with ``force`` the object vanishes at once."""
        self.api.call("DELETE", self.path(name), {"gracePeriodSeconds": 0} if force else {})

    def delete(self, name: str, *, force: bool = False) -> None:
        """Delete a pod, and wait until the object is gone and the agent has forgotten it."""
        self.ask_delete(name, force=force)
        self.until_gone(name)

    def release(self, name: str) -> None:
        """What the operator does to a saved pod of a released seat: keep flag, then delete."""
        self.annotate(name, keep_snapshot_on_delete="true")
        self.delete(name)

    def events(self, name: str) -> set[str]:
        """The reasons of the events on a pod."""
        path = f"/api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={self.full(name)}"
        return {str(each["reason"]) for each in self.api.call("GET", path)["items"]}

    @contextlib.contextmanager
    def recording(self, name: str) -> Iterator[list[Obj]]:
        """Watch a pod from before its creation on: every version that an observer could see, in order."""
        seen: list[Obj] = []
        version = self.api.call("GET", self._pods)["metadata"]["resourceVersion"]
        field = f"fieldSelector=metadata.name={self.full(name)}"
        path = f"{self._pods}?watch=true&{field}&resourceVersion={version}&timeoutSeconds=30"
        done = threading.Event()

        def record() -> None:
            for event in self.api.stream(path):
                if done.is_set():
                    return
                seen.append(event["object"])

        thread = threading.Thread(target=record, daemon=True)
        thread.start()
        yield seen
        # The stream ends with its own timeout; what matters is that it saw the last version that the test saw.
        last = self.get(name)
        if last is not None:
            wanted = last["metadata"]["resourceVersion"]
            self.until(
                lambda: any(each["metadata"]["resourceVersion"] == wanted for each in seen), "the watch is level"
            )
        done.set()

    # -- waiting ------------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.02)

    def until_pod(self, name: str, condition: Callable[[Obj], bool], what: str, seconds: float = 15.0) -> Obj:
        """Wait for a condition of a pod; returns the pod as it then is."""
        seen: list[Obj | None] = [None]

        def holds() -> bool:
            seen[0] = self.get(name)
            return seen[0] is not None and condition(seen[0])

        try:
            self.until(holds, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the pod is {json.dumps(seen[0], indent=1)}") from None
        assert seen[0] is not None
        return seen[0]

    def until_state(self, name: str, state: str, seconds: float = 15.0) -> Obj:
        """Wait for a lifecycle state, and for the pod status that goes with ``hibernated``."""
        pod = self.until_pod(name, lambda pod: note(pod, LIFECYCLE) == state, f"{name} is {state}", seconds)
        if state == "hibernated":
            return self.until_pod(name, lambda pod: pod["status"]["phase"] == "Pending", f"{name} is Pending")
        return pod

    def until_event(self, name: str, *reasons: str) -> None:
        self.until(lambda: set(reasons) <= self.events(name), f"events {reasons} on {name}")

    def until_gone(self, name: str) -> None:
        """Wait until the object is gone and no agent tracks it any more."""
        key = f"{self.namespace}/{self.full(name)}"

        def gone() -> bool:
            tracked = {pod["key"] for node in self.nodes for pod in self.agent.pods(node)}
            return self.get(name) is None and key not in tracked

        self.until(gone, f"{name} is gone")

    def settle(self, seconds: float = 0.4) -> None:
        """Give the agent time to do what it must not do."""
        time.sleep(seconds)

    # -- what the nodes and the registry have --------------------------------------------------------------------------

    def find_vm(self, name: str, node: str = "n1") -> Obj | None:
        """The VM of a pod on a node."""
        return self.agent.vms(node).get(self.vm(name))

    def the_vm(self, name: str, node: str = "n1") -> Obj:
        vm = self.find_vm(name, node)
        assert vm is not None
        return vm

    def local(self, name: str, node: str = "n1") -> Obj | None:
        """The local snapshot that is named like the VM."""
        return self.agent.snapshots(node).get(self.vm(name))

    def local_id(self, name: str, node: str = "n1") -> str:
        snapshot = self.local(name, node)
        return str(snapshot["id"]) if snapshot is not None else ""

    def work(self, name: str, text: str, node: str = "n1") -> None:
        self.agent.write_work(node, self.vm(name), text)

    def journal(self, kind: str = "", op: str = "", *, since: int | None = None) -> list[Obj]:
        """The journal since the test began."""
        return self.agent.journal(since=self.started if since is None else since, kind=kind, op=op)

    def writes(self, name: str, since: int | None = None) -> list[Obj]:
        """The agent's writes to a pod: annotation patches, status patches, deletes."""
        key = f"{self.namespace}/{self.full(name)}"
        ops = {"annotate", "status", "delete"}
        return [each for each in self.journal("api", since=since) if each["op"] in ops and each["pod"] == key]

    def calls(self, name: str, since: int | None = None) -> list[str]:
        """What the framework called for a pod: ``create``, ``update``, ``delete`` and their failures."""
        key = f"{self.namespace}/{self.full(name)}"
        return [str(each["op"]) for each in self.journal("provider", since=since) if each.get("pod") == key]

    def engine(self, op: str, name: str, since: int | None = None) -> list[Obj]:
        """Engine calls about the VM of a pod."""
        return [each for each in self.journal("engine", op, since=since) if each.get("vm") == self.vm(name)]

    def layer_reads(self, since: int) -> list[Obj]:
        return [each for each in self.journal("registry", "GET", since=since) if each["blob"] == "layer"]

    # -- the registry -------------------------------------------------------------------------------------------------

    def manifest(self, repository: str, tag: str) -> Obj | None:
        """The manifest behind a tag, None when the registry says that there is none."""
        body = self.ask_registry("GET", f"{repository}/manifests/{tag}", {"Accept": MANIFEST})
        return json.loads(body) if body is not None else None

    def the_manifest(self, name: str, tag: str = "hibernate") -> Obj:
        manifest = self.manifest(self.vm(name), tag)
        assert manifest is not None
        return manifest

    def config(self, repository: str, tag: str) -> Obj:
        """The config blob behind a tag."""
        manifest = self.manifest(repository, tag)
        assert manifest is not None
        body = self.ask_registry("GET", f"{repository}/blobs/{manifest['config']['digest']}", {})
        assert body is not None
        return dict(json.loads(body))

    def tag_id(self, name: str, tag: str = "hibernate") -> str:
        """The snapshot id that a tag of a pod's VM names."""
        return str(self.config(self.vm(name), tag)["snapshotId"])

    def has_tag(self, name: str, tag: str = "hibernate") -> bool:
        return self.manifest(self.vm(name), tag) is not None

    def put_manifest(self, repository: str, tag: str, manifest: Obj) -> None:
        data = json.dumps(manifest).encode()
        self.ask_registry("PUT", f"{repository}/manifests/{tag}", {"Content-Type": MANIFEST}, data)

    def drop_tag(self, name: str, tag: str = "hibernate") -> None:
        """What the operator does after a wake."""
        self.ask_registry("DELETE", f"{self.vm(name)}/manifests/{tag}", {})

    def ask_registry(self, method: str, path: str, headers: dict[str, str], data: bytes | None = None) -> bytes | None:
        """Return the body of the answer, None for 404."""
        url = f"{self.registry.url}/v2/{PREFIX}/{path}"
        request = urllib.request.Request(url, method=method, headers=headers, data=data)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise


def owned(pod: Obj, owner: str) -> Obj:
    """The pod with an owner reference of kind CocoonSet; its group is unknown, so that nobody collects the orphan."""
    reference = {
        "apiVersion": "agent-test.invalid/v1",
        "kind": "CocoonSet",
        "name": owner,
        "uid": "0",
        "controller": True,
    }
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [reference]}}


def long_name(key: str) -> str:
    """``hibernate`` -> ``vm.cocoonstack.io/hibernate``; underscores stand for dashes."""
    name = key.replace("_", "-")
    return (SET if name in _OF_SET else VM) + name


def note(pod: Obj, key: str) -> str:
    """An annotation of a pod, "" when it has none."""
    return str((pod["metadata"].get("annotations") or {}).get(key, ""))


def ready(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def running(pod: Obj) -> bool:
    return any("running" in each.get("state", {}) for each in pod["status"].get("containerStatuses") or [])
