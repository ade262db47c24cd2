"""The Node object, its status and its lease (1.2-1.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.engine import Engine, EngineError
from cocoon_devkit.agent.journal import NodeJournal
from cocoon_devkit.agent.kube import MERGE, STRATEGIC, Kube, KubeStatusError
from cocoon_devkit.agent.settings import NodeSettings
from cocoon_devkit.agent.tracked import Table
from cocoon_devkit.agent.wire import Obj

LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 60.0

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_READY: Final = ("Ready", "True", "KubeletReady")
_NOT_READY: Final = ("Ready", "False", "KubeletNotReady")
_CONDITIONS: Final = (
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("NetworkUnavailable", "False", "RouteCreated"),
)


class NodeObject:
    """Registers the node and keeps it alive. It never deletes the Node, also not at a shutdown (R1.6)."""

    def __init__(self, kube: Kube, settings: NodeSettings, engine: Engine, table: Table, journal: NodeJournal) -> None:
        self._kube = kube
        self._settings = settings
        self._engine = engine
        self._table = table
        self._journal = journal
        self._uid = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._pushed_storage = 0
        self._since = _now()
        self._free_at_start = self.free_storage()

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self._settings.name}"

    async def register(self) -> None:
        """Create the Node or re-assert labels and status of an existing one (R1.4). Raises :class:`KubeStatusError`."""
        body: Obj = {"metadata": {"name": self._settings.name, "labels": self.labels()}, "spec": self._spec()}
        try:
            answer = await self._kube.post("/api/v1/nodes", body)
        except KubeStatusError as error:
            if error.status != 409:
                raise
            labels: dict[str, str | None] = {wire.NODE_CPU_CLASS: None, **self.labels()}
            answer = await self._kube.patch(self._path, {"metadata": {"labels": labels}}, MERGE)
        self._uid = str(answer["metadata"]["uid"])
        await self.renew_lease()
        await self.push_status()

    def labels(self) -> dict[str, str]:
        """Return the labels of R1.1."""
        labels = {
            "type": "virtual-kubelet",
            "kubernetes.io/role": "agent",
            wire.NODE_HOSTNAME: self._settings.name,
            wire.NODE_POOL: self._settings.pool,
            "node-role.kubernetes.io/cocoon-vm": "",
        }
        if self._settings.cpu_class:
            labels[wire.NODE_CPU_CLASS] = self._settings.cpu_class
        return labels

    def _spec(self) -> Obj:
        spec: Obj = {"taints": add_taint(list(self._settings.taints))}
        if self._settings.provider_id:
            spec["providerID"] = self._settings.provider_id
        return spec

    # -- status -----------------------------------------------------------------------------------------------------

    def free_storage(self) -> int:
        """Return the bytes that are free on the node's one disk (R1.10)."""
        capacity = self._settings.capacity
        overlays = sum(vm.overlay_bytes for vm in self._engine.vms())
        snapshots = sum(snapshot.size for snapshot in self._engine.snapshots())
        return capacity.storage - capacity.base_images - snapshots - overlays

    def storage(self) -> int:
        """Return allocatable storage in bytes (R1.9).

        Dynamic: what is free plus what tracked VMs' overlays already hold, so that a VM counts once. At start: what was free
        then. Pinned: the pinned value. The reserve is taken off each.
        """
        settings = self._settings
        if settings.pinned_storage:
            return settings.capacity.usable(settings.pinned_storage)
        if settings.storage_allocatable == "startup":
            return max(0, settings.capacity.usable(self._free_at_start))
        overlays = {vm.name: vm.overlay_bytes for vm in self._engine.vms()}
        tracked = sum(overlays.get(each.vm_name, 0) for each in self._table if each.has_vm)
        return max(0, settings.capacity.usable(self.free_storage() + tracked))

    def status(self) -> Obj:
        """Return the whole node status."""
        settings = self._settings
        capacity = settings.capacity
        now = _now()
        return {
            "capacity": _resources(
                capacity.cpu, capacity.memory, settings.pinned_storage or capacity.storage, capacity.pods
            ),
            "allocatable": _resources(
                capacity.usable(capacity.cpu), capacity.usable(capacity.memory), self.storage(), capacity.pods
            ),
            "addresses": [
                {"type": "InternalIP", "address": settings.address},
                {"type": "Hostname", "address": settings.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": settings.kubelet_port}},
            "nodeInfo": _node_info(settings.name),
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": reason,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": self._since,
                }
                for kind, status, reason in (_READY if settings.ready else _NOT_READY, *_CONDITIONS)
            ],
        }

    async def push_status(self) -> None:
        """Write the status now. Raises :class:`KubeStatusError`."""
        status = self.status()
        self._pushed_storage = int(status["allocatable"]["ephemeral-storage"])
        await self._kube.patch(f"{self._path}/status", {"status": status}, STRATEGIC)
        self._journal.api("node-status", storage=self._pushed_storage)

    async def cordon(self, *, on: bool) -> None:
        """Let the scheduler place nothing here any more, or again (F-16). Raises :class:`KubeStatusError`."""
        await self._kube.patch(self._path, {"spec": {"unschedulable": on or None}}, MERGE)
        self._journal.api("cordon", on=on)

    async def renew_lease(self) -> None:
        """Create or renew the node's lease (R1.11). Raises :class:`KubeStatusError`."""
        spec: Obj = {
            "holderIdentity": self._settings.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._settings.name, "uid": self._uid}
        metadata = {"name": self._settings.name, "namespace": "kube-node-lease", "ownerReferences": [owner]}
        try:
            await self._kube.patch(f"{_LEASES}/{self._settings.name}", {"metadata": metadata, "spec": spec}, MERGE)
        except KubeStatusError as error:
            if error.status != 404:
                raise
            await self._kube.post(_LEASES, {"metadata": metadata, "spec": spec})
        self._journal.api("lease")

    # -- heartbeats -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Renew the lease every 10 s, the status every minute, and allocatable storage when it changed."""
        windows = self._settings.windows
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(RENEW_SECONDS, self.renew_lease)),
            loop.create_task(self._every(STATUS_SECONDS, self.push_status)),
            loop.create_task(self._every(windows.of(windows.storage_refresh), self.push_changed_storage)),
        ]

    async def stop(self) -> None:
        """Stop the heartbeats; the Node stays and turns unknown (F-16)."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def beating(self) -> bool:
        return bool(self._tasks)

    async def push_changed_storage(self) -> None:
        """Push allocatable storage, and nothing else, when it changed (N007, N008) and could be measured (N009).

        Raises :class:`KubeStatusError`.
        """
        try:
            await self._engine.measure()
        except EngineError:
            return
        storage = self.storage()
        if storage == self._pushed_storage:
            return
        allocatable = {"allocatable": {"ephemeral-storage": str(storage)}}
        await self._kube.patch(f"{self._path}/status", {"status": allocatable}, STRATEGIC)
        self._pushed_storage = storage
        self._journal.api("node-storage", storage=storage)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except KubeStatusError as error:
                self._journal.api("heartbeat-failed", error=str(error))


def add_taint(taints: list[Obj]) -> list[Obj]:
    """Append the provider's taint, unless one with its key is there already (R1.2, N002)."""
    if any(taint.get("key") == wire.TAINT_KEY for taint in taints):
        return taints
    return [*taints, {"key": wire.TAINT_KEY, "value": "cocoon", "effect": "NoSchedule"}]


def _resources(cpu: int, memory: int, storage: int, pods: int) -> Obj:
    return {"cpu": str(cpu), "memory": str(memory), "ephemeral-storage": str(storage), "pods": str(pods)}


def _node_info(name: str) -> Obj:
    return {
        "kubeletVersion": "v0.0.0-fake-vk-cocoon",
        "operatingSystem": "linux",
        "architecture": "amd64",
        "osImage": "imaginary",
        "kernelVersion": "",
        "containerRuntimeVersion": "cocoon://0",
        "kubeProxyVersion": "",
        "machineID": name,
        "systemUUID": name,
        "bootID": name,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
