"""What a test of the node agent has in hand: its nodes, pods as the operator would make them, and what can be seen."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.registry import Registry

NODES = ("n1", "n2")
PREFIX = "cocoon"
IMAGE = "base"

VM = "vm.cocoonstack.io/"
SET = "cocoonset.cocoonstack.io/"
LIFECYCLE = f"{VM}lifecycle-state"
GENERATION = f"{SET}generation"
OBSERVED = f"{VM}lifecycle-observed-generation"
MESSAGE = f"{VM}lifecycle-state-message"

_ACCEPT = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"

Obj = dict[str, Any]


class Fleet:
    """Two nodes, a cluster, a registry and a namespace. VM names are unique to the namespace."""

    def __init__(self, process: AgentProcess, cluster: Cluster, registry: Registry, namespace: str) -> None:
        self.process = process
        self.cluster = cluster
        self.registry = registry
        self.namespace = namespace
        self.started = self.agent.mark()

    @property
    def agent(self) -> AgentClient:
        return self.process.client

    def close(self) -> None:
        """Clear every fault and let every pod go."""
        for node in NODES:
            self.agent.clear(node)
        self.kubectl("delete", "pods", "--all", "--wait=false")
        self.until(lambda: self.cluster.kubectl.get("pods", "-n", self.namespace)["items"] == [], "every pod is gone")

    def kubectl(self, *args: str) -> str:
        return self.cluster.kubectl(*args, "--namespace", self.namespace).stdout

    # -- pods ---------------------------------------------------------------------------------------------------------

    def vm(self, name: str) -> str:
        """The VM name of a pod: that of an agent's slot, such as ``demo-0``."""
        return f"vk-{self.namespace}-{name}"

    def pod(self, name: str, **changes: str | None) -> Obj:
        """A pod object; ``changes`` are annotations by short name (``hibernate``, ``mode``), None leaves one out."""
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
                "name": name,
                "namespace": self.namespace,
                "annotations": {key: value for key, value in notes.items() if value is not None},
            },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeName": "n1",
                "tolerations": [
                    {"key": "virtual-kubelet.io/provider", "operator": "Exists"},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
                ],
                "containers": [{"name": "agent", "image": "example.invalid/placeholder:latest"}],
            },
        }

    def owned(self, pod: Obj, owner: str) -> Obj:
        """The pod with an owner reference to a CocoonSet of that name."""
        reference = {"apiVersion": "v1", "kind": "CocoonSet", "name": owner, "uid": "none", "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]
        return pod

    def create(self, pod: Obj) -> str:
        """Create a pod; returns its UID."""
        text = self.cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(pod)).stdout
        return str(json.loads(text)["metadata"]["uid"])

    def boot(self, name: str, **changes: str | None) -> Obj:
        """Create a pod and wait until it is ready."""
        self.create(self.pod(name, **changes))
        return self.until_state(name, "ready")

    def get(self, name: str) -> Obj | None:
        answer = self.cluster.kubectl("get", "pod", name, "-n", self.namespace, "-o", "json", check=False)
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def annotate(self, name: str, **changes: str | None) -> None:
        """Patch annotations by short name; None removes one."""
        notes = {long_name(key): value for key, value in changes.items()}
        body = json.dumps({"metadata": {"annotations": notes}})
        self.kubectl("patch", "pod", name, "--type", "merge", "-p", body)

    def hibernate(self, name: str) -> Obj:
        """Ask for sleep and wait for it."""
        self.annotate(name, hibernate="true")
        return self.until_state(name, "hibernated")

    def wake(self, name: str) -> Obj:
        """Take the request for sleep back and wait for a ready VM."""
        self.annotate(name, hibernate=None)
        return self.until_state(name, "ready")

    def delete(self, name: str, *, wait: bool = True) -> None:
        """Delete a pod; with ``wait`` until the object is gone and the agent has forgotten it."""
        self.kubectl("delete", "pod", name, "--wait=false")
        if wait:
            self.until_gone(name)

    def events(self, name: str) -> set[str]:
        """The reasons of the events on a pod."""
        items = self.cluster.kubectl.get("events", "-n", self.namespace)["items"]
        return {each["reason"] for each in items if each["involvedObject"]["name"] == name}

    # -- waiting ------------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.05)

    def until_pod(self, name: str, condition: Callable[[Obj], bool], what: str, seconds: float = 15.0) -> Obj:
        seen: list[Obj | None] = []

        def holds() -> bool:
            seen[:] = [self.get(name)]
            return seen[0] is not None and condition(seen[0])

        try:
            self.until(holds, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; the pod is {json.dumps(seen[0], indent=1)}") from None
        assert seen[0] is not None
        return seen[0]

    def until_state(self, name: str, state: str, seconds: float = 15.0) -> Obj:
        """Wait for a lifecycle state, and for the pod status that goes with it."""
        pod = self.until_pod(name, lambda pod: note(pod, LIFECYCLE) == state, f"{name} is {state}", seconds)
        if state == "hibernated":
            return self.until_pod(name, lambda pod: pod["status"]["phase"] == "Pending", f"{name} is Pending")
        return pod

    def until_event(self, name: str, reason: str) -> None:
        self.until(lambda: reason in self.events(name), f"event {reason} on {name}")

    def until_gone(self, name: str) -> None:
        key = f"{self.namespace}/{name}"

        def gone() -> bool:
            tracked = {pod["key"] for node in NODES for pod in self.agent.pods(node)}
            return self.get(name) is None and key not in tracked

        self.until(gone, f"{name} is gone")

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

    def work(self, name: str, text: str, node: str = "n1") -> None:
        self.agent.write_work(node, self.vm(name), text)

    def journal(self, kind: str = "", op: str = "", *, since: int | None = None) -> list[Obj]:
        """The journal since the test began."""
        return self.agent.journal(since=self.started if since is None else since, kind=kind, op=op)

    def layer_reads(self, since: int) -> list[Obj]:
        return [each for each in self.journal("registry", "GET", since=since) if each["blob"] == "layer"]

    def manifest(self, repository: str, tag: str) -> Obj | None:
        """The manifest behind a tag, None when the registry says that there is none."""
        body = self._registry("GET", f"{repository}/manifests/{tag}", {"Accept": _ACCEPT})
        return json.loads(body) if body is not None else None

    def config(self, repository: str, tag: str) -> Obj:
        """The config blob behind a tag."""
        manifest = self.manifest(repository, tag)
        assert manifest is not None
        body = self._registry("GET", f"{repository}/blobs/{manifest['config']['digest']}", {})
        assert body is not None
        return dict(json.loads(body))

    def tag_id(self, name: str, tag: str = "hibernate") -> str:
        """The snapshot id that a tag of a pod's VM names."""
        return str(self.config(self.vm(name), tag)["snapshotId"])

    def has_tag(self, name: str, tag: str = "hibernate") -> bool:
        return self.manifest(self.vm(name), tag) is not None

    def put_manifest(self, repository: str, tag: str, manifest: Obj) -> None:
        headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
        self._registry("PUT", f"{repository}/manifests/{tag}", headers, json.dumps(manifest).encode())

    def drop_tag(self, name: str, tag: str = "hibernate") -> None:
        """What the operator does after a wake."""
        self._registry("DELETE", f"{self.vm(name)}/manifests/{tag}", {})

    def _registry(self, method: str, path: str, headers: dict[str, str], data: bytes | None = None) -> bytes | None:
        url = f"{self.registry.url}/v2/{PREFIX}/{path}"
        request = urllib.request.Request(url, method=method, headers=headers, data=data)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise


def long_name(key: str) -> str:
    """``hibernate`` -> ``vm.cocoonstack.io/hibernate``; underscores stand for dashes."""
    name = key.replace("_", "-")
    of_set = {"mode", "image", "os", "managed", "snapshot-policy", "generation", "storage", "force-pull", "network"}
    return (SET if name in of_set else VM) + name


def note(pod: Obj, key: str) -> str:
    """An annotation of a pod, "" when it has none."""
    return str((pod["metadata"].get("annotations") or {}).get(key, ""))


def ready(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def running(pod: Obj) -> bool:
    return any("running" in each.get("state", {}) for each in pod["status"].get("containerStatuses") or [])
