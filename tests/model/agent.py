"""A node agent in small steps (N017, N064, N079, R1.33 to R1.36), so that everything can happen between any two of them.

Each VM's memory is a list that only grows while it runs. What a boot or a restore brings back is compared with what the VM
last held: that is how the model knows that state was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cocoon_operator.api import keys
from cocoon_operator.api.errors import NotFoundError
from tests.model.apiserver import ModelAPIServer, Object
from tests.model.registry import ModelRegistry


@dataclass
class ModelVM:
    """One running machine."""

    id: str
    memory: list[str]
    image: str


@dataclass
class ModelAgent:
    """The agent of all nodes. ``step`` does one thing to one pod and says whether there was anything to do."""

    api: ModelAPIServer
    registry: ModelRegistry
    nodes: list[str] = field(default_factory=lambda: ["node-a", "node-b"])
    capacity: bool = True
    vms: dict[str, ModelVM] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    fail: set[str] = field(default_factory=set)
    """Any of boot, save, push, wake, report: what fails until it is taken out again."""
    counter: int = 0
    works: bool = False
    """Whether somebody works in every VM as soon as it is ready, so that no two states are alike."""

    def run(self, steps: int = 200) -> None:
        """Step until nothing is left to do."""
        for _ in range(steps):
            if not any(
                self.step(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self.api.list("pod")
            ):
                return
        raise AssertionError("the model agent does not come to rest")

    def step(self, namespace: str, name: str) -> bool:
        pod = self.api.get("pod", namespace, name)
        if pod is None:
            return False
        if not pod["spec"].get("nodeName"):
            return self._schedule(pod)
        if pod["metadata"].get("deletionTimestamp"):
            return self._delete(pod)
        if pod["status"].get("phase") == "Failed" or keys.VM_NAME not in _annotations(pod):
            return False
        if _annotations(pod).get(keys.MANAGED) != "true":
            return self._represent(pod)
        return self._sync(pod)

    def work(self, vm_name: str, text: str) -> None:
        """A user works in a VM."""
        self.vms[vm_name].memory.append(text)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _schedule(self, pod: Object) -> bool:
        if pod["metadata"].get("deletionTimestamp"):
            return False
        if not self.capacity:
            message = "0/2 nodes are available"
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            if pod["status"].get("conditions") == [condition]:
                return False
            self._status(pod, {"conditions": [condition]})
            return True
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution")
        node = self.nodes[0]
        if required:
            node = required["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]
        elif preferred and preferred[0]["preference"]["matchExpressions"][0]["values"][0] in self.nodes:
            node = preferred[0]["preference"]["matchExpressions"][0]["values"][0]
        self._patch(pod, {"spec": {"nodeName": node}})
        self._status(pod, {"conditions": [{"type": "PodScheduled", "status": "True"}]})
        return True

    def _delete(self, pod: Object) -> bool:
        vm_name = _annotations(pod).get(keys.VM_NAME, "")
        if self.vms.pop(vm_name, None):
            self.history.append(f"removed {vm_name}")
        self.api.remove("pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
        return True

    def _represent(self, pod: Object) -> bool:
        """A static toolbox: there is no VM of ours, and no flag means anything to it (N041, N043)."""
        if pod["status"].get("phase") != "Running":
            self._status(
                pod,
                {
                    "phase": "Running",
                    "containerStatuses": [{"name": "agent", "state": {"running": {}}}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            )
            return True
        return self._lifecycle(pod, "ready")

    def _sync(self, pod: Object) -> bool:
        annotations = _annotations(pod)
        vm_name = annotations[keys.VM_NAME]
        state = annotations.get(keys.LIFECYCLE_STATE, "")
        vm = self.vms.get(vm_name)
        flagged = annotations.get(keys.HIBERNATE) == "true"
        if "model/missed" in annotations:
            if not flagged:
                self._annotate(pod, {"model/missed": None})
                return True
            return self._bring_up(pod, vm_name, vm, state)
        if vm is not None and (flagged or state == "hibernating"):
            # Once begun, a hibernation goes on to its end, whatever becomes of the flag: that is what W-58 is about.
            return self._hibernate(pod, vm_name, vm, state)
        slept = "model/trace" in annotations
        if state == "hibernating" and "model/stuck" not in annotations:
            return self._lifecycle(pod, "hibernated")
        if flagged and slept and state in ("hibernating", "hibernated", "failed"):
            if "model/stuck" in annotations:
                return False
            if state == "hibernating" and annotations.get(keys.VM_ID) is None:
                return self._lifecycle(pod, "hibernated")
            return self._echo(pod, state)
        if flagged:
            return self._bring_up(pod, vm_name, vm, state)
        if vm is None or state != "ready":
            return self._bring_up(pod, vm_name, vm, state)
        return self._echo(pod, state)

    def _bring_up(self, pod: Object, vm_name: str, vm: ModelVM | None, state: str) -> bool:
        annotations = _annotations(pod)
        if vm is None and state != "creating":
            if state == "failed" and not self._may_retry(annotations, vm_name):
                return self._echo(pod, state)
            if "model/stuck" in annotations:
                self._annotate(pod, {"model/stuck": None})
                return True
            if annotations.get(keys.HIBERNATE) == "true" and state == "":
                # A create does not look at the flag, and no update follows that would (R3.1, R1.16).
                self._annotate(pod, {"model/missed": "true"})
            return self._lifecycle(pod, "creating")
        if vm is None:
            return self._boot(pod, vm_name)
        if annotations.get(keys.VM_ID) != vm.id:
            self._annotate(pod, {keys.VM_ID: vm.id, keys.VM_IP: "10.0.0.1"})
            return True
        if pod["status"].get("phase") != "Running":
            self._status(
                pod,
                {
                    "phase": "Running",
                    "containerStatuses": [{"name": "agent", "state": {"running": {}}}],
                    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
                },
            )
            return True
        if not _ready(pod):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.api.clock.text()}
            self._status(pod, {"conditions": [ready]})
            return True
        if "model/missed" in annotations:
            return False
        return self._lifecycle(pod, "ready")

    def _may_retry(self, annotations: dict[str, str], vm_name: str) -> bool:
        """Whether another attempt would end otherwise, so that the model comes to rest between faults."""
        saved = self.registry.content(vm_name, "hibernate")
        if self.registry.down:
            return False
        if saved is not None:
            return "wake" not in self.fail and saved["image"] == annotations[keys.IMAGE]
        slept = annotations.get(keys.RESTORE) == "true" or "model/trace" in annotations
        source = annotations.get(keys.FORK_FROM, "")
        return "boot" not in self.fail and not slept and (not source or source in self.vms)

    def _boot(self, pod: Object, vm_name: str) -> bool:
        annotations = _annotations(pod)
        saved = self.registry.content(vm_name, "hibernate")
        slept = annotations.get(keys.RESTORE) == "true" or "model/trace" in annotations
        if self.registry.down:
            return self._fail(pod, "wake: registry unreachable")
        if saved is None and slept:
            return self._fail(pod, "wake: no snapshot")
        if saved is not None:
            if "wake" in self.fail or saved["image"] != annotations[keys.IMAGE]:
                return self._fail(pod, "wake: refused")
            memory = list(saved["memory"])
            self.history.append(f"restored {vm_name} {memory}")
        else:
            if "boot" in self.fail:
                return self._fail(pod, "boot failed")
            source = annotations.get(keys.FORK_FROM, "")
            if source and source not in self.vms:
                return self._fail(pod, "boot: fork source is not on this node")
            memory = [f"fork of {source}"] if source else []
            self.history.append(f"booted {vm_name}")
        self.counter += 1
        self.vms[vm_name] = ModelVM(f"vm-{self.counter}", memory, annotations[keys.IMAGE])
        return True

    def _hibernate(self, pod: Object, vm_name: str, vm: ModelVM, state: str) -> bool:
        annotations = _annotations(pod)
        broken = "save" in self.fail or "push" in self.fail or bool(self.registry.down)
        if state == "failed" and broken:
            return self._echo(pod, state)
        if state != "hibernating":
            return self._lifecycle(pod, "hibernating")
        if broken:
            return self._fail(pod, "hibernate: push failed")
        content = {"memory": list(vm.memory), "image": vm.image, "id": vm.id}
        if self.registry.content(vm_name, "hibernate") != content:
            self.registry.push(vm_name, "hibernate", content)
            return True
        if annotations.get(keys.VM_ID) or "model/trace" not in annotations:
            self._annotate(pod, {keys.VM_ID: None, keys.VM_IP: None, "model/trace": "slept"})
            return True
        if "report" in self.fail:
            # Killed between removing the VM and saying so: nothing is said any more until the pod is woken (N192).
            self._annotate(pod, {"model/stuck": "true"})
        del self.vms[vm_name]
        self.history.append(f"slept {vm_name} {vm.memory}")
        self._status(pod, {"phase": "Pending", "containerStatuses": None, "conditions": None})
        return True

    # -- writing ---------------------------------------------------------------------------------------------------

    def _fail(self, pod: Object, message: str) -> bool:
        return self._lifecycle(pod, "failed", message)

    def _lifecycle(self, pod: Object, state: str, message: str | None = None) -> bool:
        stamp = _annotations(pod).get(keys.GENERATION, "0")
        values: dict[str, str | None] = {
            keys.LIFECYCLE_STATE: state,
            keys.LIFECYCLE_GENERATION: stamp,
            keys.LIFECYCLE_MESSAGE: message,
        }
        current = _annotations(pod)
        if all(current.get(key) == value for key, value in values.items()):
            return False
        self._annotate(pod, values)
        vm = self.vms.get(current.get(keys.VM_NAME, ""))
        if state == "ready" and self.works and vm is not None:
            self.counter += 1
            vm.memory.append(f"work {self.counter}")
        return True

    def _echo(self, pod: Object, state: str) -> bool:
        return self._lifecycle(pod, state, _annotations(pod).get(keys.LIFECYCLE_MESSAGE))

    def _annotate(self, pod: Object, values: dict[str, Any]) -> None:
        self._patch(pod, {"metadata": {"annotations": values}})

    def _patch(self, pod: Object, body: Object) -> None:
        metadata = pod["metadata"]
        self.api.patch("pod", metadata["namespace"], metadata["name"], body, by="agent", uid=metadata["uid"])

    def _status(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        try:
            self.api.patch(
                "pod", metadata["namespace"], metadata["name"], {"status": status}, by="agent", subresource="status"
            )
        except NotFoundError:
            return


def _annotations(pod: Object) -> dict[str, str]:
    values: dict[str, str] = pod["metadata"].get("annotations") or {}
    return values


def _ready(pod: Object) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])
