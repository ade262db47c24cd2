"""The writes of the Go operator to one set, one a method, as the contract describes them (3.2, 3.3, 4.17, 4.20).

Written from the contract's text and with nothing of the operator under test: what is shared is the names of the keys.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, Final

from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys
from tests.e2e.operator.seat import SECONDS, Seat

MERGE: Final = "application/merge-patch+json"
_POLL: Final = 0.15
BOX: Final = {"name": "db", "mode": "run", "image": "ubuntu"}
_TOLERATIONS: Final = (
    {"key": "virtual-kubelet.io/provider", "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)


class GoOperator:
    """What the Go operator does to a set when its passes come; the waits are for the node agent, as its polls are."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.api = seat.api
        self._pods = f"/api/v1/namespaces/{seat.namespace}/pods"

    # -- the set ------------------------------------------------------------------------------------------------------

    def add_finalizer(self) -> None:
        """A full update, which also spells the spec out and so raises the generation (2.7, W-57)."""
        target = self.seat.get()
        target["metadata"]["finalizers"] = [*target["metadata"].get("finalizers", []), keys.SET_FINALIZER]
        for options in (target["spec"]["agent"], *target["spec"].get("toolboxes", [])):
            options.setdefault("resources", {})
        self.api.call("PUT", self.seat.path, target)

    def remove_finalizer(self) -> None:
        target = self.seat.get()
        target["metadata"]["finalizers"].remove(keys.SET_FINALIZER)
        self.api.call("PUT", self.seat.path, target)

    def names(self, *vm_names: str) -> None:
        self._note(keys.DELETE_VM_NAMES, ",".join(sorted(vm_names)))

    def hint(self) -> None:
        self._note(keys.HINT_NODE, self.seat.pod()["spec"]["nodeName"])

    def drop_hint(self) -> None:
        self._note(keys.HINT_NODE, None)

    def history(self, slot: int, count: int) -> None:
        """The rebuild history as Go prints it: nanoseconds and all (2.6)."""
        last = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z"
        entry = {str(slot): {"count": count, "lastDeleted": last}}
        self._note(keys.REBUILD_HISTORY, json.dumps(entry, separators=(",", ":")))

    def status(self, phase: str, pods: list[Obj] | None = None) -> None:
        """Phase, counters and lists from the pods as a pass sees them, and its two conditions (1.4 to 1.7, 4.13)."""
        target, pods = self.seat.get(), self.live_pods() if pods is None else pods
        agents = [pod for pod in pods if _role(pod) in ("main", "sub-agent")]
        boxes = [pod for pod in pods if _role(pod) == "toolbox"]
        spec, generation = target["spec"], target["metadata"]["generation"]
        ready, ready_boxes = sum(map(_ready, agents)), sum(map(_ready, boxes))
        desired, desired_boxes = 1 + spec["agent"].get("replicas", 0), len(spec.get("toolboxes", []))
        message = f"{ready}/{desired} agents ready, {ready_boxes}/{desired_boxes} toolboxes ready"
        all_ready = ready == desired and ready_boxes == desired_boxes
        progressing = phase in ("Pending", "Scaling")
        status = {
            "observedGeneration": generation,
            "phase": phase,
            "readyAgents": ready,
            "desiredAgents": desired,
            "readyToolboxes": ready_boxes,
            "desiredToolboxes": desired_boxes,
            "agents": [self._agent(pod) for pod in sorted(agents, key=_slot)] or None,
            "toolboxes": [self._box(pod) for pod in sorted(boxes, key=_slot)] or None,
            "conditions": [
                *_foreign(target),
                _condition(
                    "Ready", all_ready, "AllAgentsReady" if all_ready else "AgentsNotReady", message, generation
                ),
                _condition("Progressing", progressing, "Reconciling" if progressing else "Stable", phase, generation),
            ],
        }
        self.api.call("PATCH", f"{self.seat.path}/status", {"status": status}, MERGE)

    def _agent(self, pod: Obj) -> Obj:
        main = self.find(0)
        source = _note(main, keys.VM_NAME) if main is not None and _role(pod) == "sub-agent" else ""
        return {
            "slot": int(_slot(pod)),
            "role": _role(pod),
            **_entry(pod),
            **({"forkedFrom": source} if source else {}),
        }

    def _box(self, pod: Obj) -> Obj:
        return {"name": _slot(pod), **_entry(pod), "connType": "ssh"}

    def _note(self, key: str, value: str | None) -> None:
        self.api.call("PATCH", self.seat.path, {"metadata": {"annotations": {key: value}}}, MERGE)

    # -- its pods -----------------------------------------------------------------------------------------------------

    def pod_path(self, slot: int | str) -> str:
        return f"{self._pods}/{self.seat.name}-{slot}"

    def find(self, slot: int | str) -> Obj | None:
        return self.api.find(self.pod_path(slot))

    def live_pods(self) -> list[Obj]:
        query = f"?labelSelector={keys.LABEL_SET}%3D{self.seat.name}"
        pods: list[Obj] = self.api.call("GET", f"{self._pods}{query}")["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def stamp(self) -> None:
        """The generation on every live pod that has another one (R4)."""
        generation = str(self.seat.get()["metadata"]["generation"])
        for pod in self.live_pods():
            if _note(pod, keys.GENERATION) != generation:
                self.annotate(_slot(pod), **{keys.GENERATION: generation})

    def flag(self) -> None:
        for pod in self.live_pods():
            self.annotate(_slot(pod), **{keys.HIBERNATE: "true"})

    def unflag(self) -> None:
        for pod in self.live_pods():
            self.annotate(_slot(pod), **{keys.HIBERNATE: None})

    def keep(self) -> None:
        self.annotate(0, **{keys.KEEP_SNAPSHOT: "true"})

    def dead_letter(self, slot: int) -> None:
        self.annotate(slot, **{keys.DEAD_LETTER: "true"})

    def annotate(self, slot: int | str, **notes: str | None) -> None:
        self.api.call("PATCH", self.pod_path(slot), {"metadata": {"annotations": notes}}, MERGE)

    def delete(self, slot: int | str) -> None:
        """Plain, without preconditions (6)."""
        self.api.call("DELETE", self.pod_path(slot))

    def create_main(self, *, restore: bool = False, affinity: Obj | None = None) -> None:
        spec = self.seat.get()["spec"]
        body = self._pod("main", "0", spec["agent"], mode="clone", restore=restore)
        if affinity is not None:
            body["spec"]["affinity"] = {"nodeAffinity": affinity}
        self.api.call("POST", self._pods, body)

    def create_sub(self, slot: int) -> None:
        main, spec = self.find(0), self.seat.get()["spec"]
        assert main is not None
        body = self._pod("sub-agent", str(slot), spec["agent"], mode="clone")
        body["metadata"]["annotations"][keys.FORK_FROM] = _note(main, keys.VM_NAME)
        body["spec"]["nodeName"] = main["spec"]["nodeName"]
        self.api.call("POST", self._pods, body)

    def create_box(self) -> None:
        (box,) = self.seat.get()["spec"]["toolboxes"]
        self.api.call("POST", self._pods, self._pod("toolbox", box["name"], box, mode="run"))

    def _pod(self, role: str, slot: str, options: Obj, *, mode: str, restore: bool = False) -> Obj:
        target = self.seat.get()
        name, spec = self.seat.name, target["spec"]
        annotations = {
            keys.GENERATION: str(target["metadata"]["generation"]),
            keys.VM_NAME: f"vk-{self.seat.namespace}-{name}-{slot}",
            keys.IMAGE: options["image"],
            keys.MODE: options.get("mode", mode),
            keys.OS: options.get("os", "linux"),
            keys.SNAPSHOT_POLICY: spec.get("snapshotPolicy", "always"),
            keys.MANAGED: "true",
            keys.BACKEND: options.get("backend", "cloud-hypervisor"),
        }
        if restore:
            annotations[keys.RESTORE] = "true"
        owner = {
            "apiVersion": keys.API_VERSION,
            "kind": "CocoonSet",
            "name": name,
            "uid": target["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        labels = {
            "cocoonset.cocoonstack.io/name": name,
            "cocoonset.cocoonstack.io/role": role,
            "cocoonset.cocoonstack.io/slot": slot,
            "app.kubernetes.io/name": name,
        }
        return {
            "metadata": {
                "name": f"{name}-{slot}",
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner],
            },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": {"cocoonstack.io/pool": spec.get("nodePool", "default")},
                "tolerations": list(_TOLERATIONS),
                "containers": [
                    {"name": "agent", "image": "ghcr.io/cocoonstack/placeholder:latest", "resources": {}},
                ],
            },
        }

    # -- its polls ----------------------------------------------------------------------------------------------------

    def until_ready(self, slot: int | str) -> None:
        self._until(lambda: (pod := self.find(slot)) is not None and _ready(pod), f"{slot} is ready")

    def until_live(self, slot: int | str) -> None:
        """``vmLive`` of the contract's vocabulary, and the agent's ``ready``, so that work can be written."""
        self._until(
            lambda: (
                (pod := self.find(slot)) is not None
                and _note(pod, keys.VM_ID) != ""
                and _note(pod, keys.LIFECYCLE_STATE) == "ready"
            ),
            f"{slot} is live",
        )

    def until_asleep(self, slot: int | str) -> None:
        """The completion gate (4.4): said of this generation, and the tag is there."""
        generation = self.seat.get()["metadata"]["generation"]
        self._until(
            lambda: (
                (pod := self.find(slot)) is not None
                and _note(pod, keys.LIFECYCLE_STATE) == "hibernated"
                and int(_note(pod, keys.LIFECYCLE_GENERATION) or 0) >= generation
                and self.seat.tag() is not None
            ),
            f"{slot} sleeps",
        )

    def until_failed(self, slot: int | str) -> None:
        self._until(
            lambda: (pod := self.find(slot)) is not None and _note(pod, keys.LIFECYCLE_STATE) == "failed", "it failed"
        )

    def until_no_pod(self, slot: int | str) -> None:
        """The VM goes before its pod does."""
        self._until(lambda: self.find(slot) is None, f"{slot} is gone")

    def _until(self, holds: Any, what: str) -> None:
        end = time.monotonic() + 2 * SECONDS
        while not holds():
            assert time.monotonic() < end, f"{self.seat.name}: {what}\n{self.seat.describe()}"
            time.sleep(_POLL)


def required(node: str) -> Obj:
    """The affinity of a pinned main agent (3.3)."""
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_on(node)]}}


def preferred(node: str) -> Obj:
    """The affinity of a released one that wakes (3.3)."""
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": _on(node)}]}


def _on(node: str) -> Obj:
    return {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}


def _entry(pod: Obj) -> Obj:
    found = {
        "podName": pod["metadata"]["name"],
        "vmName": _note(pod, keys.VM_NAME),
        "vmID": _note(pod, keys.VM_ID),
        "ip": _note(pod, keys.VM_IP),
        "phase": pod["status"].get("phase", ""),
    }
    return {key: value for key, value in found.items() if value}


def _foreign(target: Obj) -> list[Obj]:
    """Conditions of types that it does not write stay as they are (1.7)."""
    conditions: list[Obj] = target.get("status", {}).get("conditions", [])
    return [each for each in conditions if each["type"] not in ("Ready", "Progressing")]


def _condition(kind: str, holds: bool, reason: str, message: str, generation: int) -> Obj:
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _note(pod: Obj, key: str) -> str:
    return str(pod["metadata"].get("annotations", {}).get(key, ""))


def _role(pod: Obj) -> str:
    return str(pod["metadata"]["labels"][keys.LABEL_ROLE])


def _slot(pod: Obj) -> str:
    return str(pod["metadata"]["labels"][keys.LABEL_SLOT])


def _ready(pod: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
