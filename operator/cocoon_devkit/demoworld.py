"""What can be seen of a CocoonSet with one agent: in the cluster, on the nodes, in the registry."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.rawapi import Api

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
NONE: Final = "-"
_ID_LENGTH: Final = 8

Obj = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the demo's table."""

    name: str
    phase: str
    ready: str
    pod_on: str
    vm: str
    tag: str
    cache_on: str


@dataclass(frozen=True)
class Look:
    """Everything at one moment. ``tag`` is the digest behind ``:hibernate``, "" for none; ``vms`` and ``caches`` by node."""

    cocoonset: Obj | None
    pod: Obj | None
    tag: str
    vms: dict[str, Obj] = field(default_factory=dict)
    caches: dict[str, Obj] = field(default_factory=dict)

    @property
    def status(self) -> Obj:
        return (self.cocoonset or {}).get("status") or {}

    @property
    def annotations(self) -> dict[str, str]:
        return (self.cocoonset or {}).get("metadata", {}).get("annotations") or {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    @property
    def current(self) -> bool:
        """Whether the status is about the newest spec."""
        metadata = (self.cocoonset or {}).get("metadata", {})
        return bool(metadata.get("generation") == self.status.get("observedGeneration"))

    @property
    def agent(self) -> Obj:
        """The status of the main agent, empty without one."""
        agents: list[Obj] = self.status.get("agents") or []
        return next((agent for agent in agents if agent.get("slot") == 0), {})

    @property
    def node(self) -> str:
        """The node of the pod, "" without one."""
        return str((self.pod or {}).get("spec", {}).get("nodeName") or "")

    @property
    def pod_uid(self) -> str:
        return str((self.pod or {}).get("metadata", {}).get("uid") or "")

    @property
    def vm(self) -> Obj:
        """The VM on the pod's node, empty without one."""
        return self.vms.get(self.node, {})

    @property
    def work(self) -> list[str]:
        """What was written into the VM and is still there."""
        return list((self.vm.get("memory") or {}).get("work") or [])

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition of the set."""
        found: list[Obj] = self.status.get("conditions") or []
        return next(((str(each["status"]), str(each["reason"])) for each in found if each["type"] == kind), ("", ""))

    @property
    def row(self) -> Row:
        metadata = (self.cocoonset or {}).get("metadata", {})
        ready = f"{self.status['readyAgents']}/{self.status['desiredAgents']}" if "readyAgents" in self.status else NONE
        vms = [f"{vm['state']} {short(vm['id'])}" for vm in self.vms.values()]
        deleting = " (deleting)" if "deletionTimestamp" in metadata else ""
        return Row(
            name=str(metadata.get("name", NONE)) + deleting,
            phase=self.phase or NONE,
            ready=ready,
            pod_on=self.node or ("unscheduled" if self.pod else NONE),
            vm=", ".join(vms) or NONE,
            tag=short(self.tag.removeprefix("sha256:")) or NONE,
            cache_on=", ".join(self.caches) or NONE,
        )


@dataclass(frozen=True)
class DemoWorld:
    """Where to look. ``repository`` is the URL of the VM's repository in the registry, up to its name."""

    api: Api
    agent: AgentClient
    repository: str
    nodes: tuple[str, ...]
    namespace: str
    name: str

    @property
    def vm_name(self) -> str:
        return f"vk-{self.namespace}-{self.name}-0"

    def look(self) -> Look:
        """Look at everything, one after another."""
        custom = f"/apis/cocoonset.cocoonstack.io/v1/namespaces/{self.namespace}/cocoonsets/{self.name}"
        vms = {node: self.agent.vms(node).get(self.vm_name) for node in self.nodes}
        caches = {node: self.agent.snapshots(node).get(self.vm_name) for node in self.nodes}
        return Look(
            cocoonset=self.api.find(custom),
            pod=self.api.find(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-0"),
            tag=self.tag("hibernate"),
            vms={node: vm for node, vm in vms.items() if vm},
            caches={node: snapshot for node, snapshot in caches.items() if snapshot},
        )

    def tag(self, tag: str) -> str:
        """The digest behind a tag of the VM's repository, "" where the registry says that there is none."""
        request = urllib.request.Request(  # noqa: S310 (the URL is ours)
            f"{self.repository}/{self.vm_name}/manifests/{tag}", method="HEAD", headers={"Accept": MANIFEST}
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return str(answer.headers["Docker-Content-Digest"])
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return ""
            raise

    def pods_of_node(self, node: str) -> list[str]:
        """The pods that take a seat on a node, as the API server lists them."""
        found = self.api.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node}")
        return [str(pod["metadata"]["name"]) for pod in found["items"]]

    def layer_downloads(self, since: int) -> int:
        """How many layers of snapshots the nodes downloaded after a mark of their journal."""
        entries = self.agent.journal(since=since, kind="registry", op="GET")
        return sum(1 for entry in entries if entry.get("blob") == "layer")


def short(text: str) -> str:
    """The beginning of an id: enough to see whether two are the same."""
    return text[:_ID_LENGTH]
