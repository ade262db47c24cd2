"""Whoever knows what every VM's memory holds can tell when it was lost: the invariants I1, I2 and the first promise, checked."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import dataclass, field

from cocoon_operator.api import keys
from tests.model.apiserver import Object
from tests.model.world import World


class Violation(AssertionError):
    """An invariant of the design does not hold."""


@dataclass
class Truth:
    """What a VM last held. ``lost`` means that a user gave it up: whatever comes back is fine."""

    memory: list[str] = field(default_factory=list)
    image: str = ""
    lost: bool = True


@dataclass
class Judge:
    """Watches the agent's history and the operator's calls."""

    world: World
    truth: dict[str, Truth] = field(default_factory=dict)
    read: int = 0

    def watch_calls(self, moment: str, call: str) -> None:
        """To be called by the operator's ports before and after each call."""
        verb, _, name = call.partition(" ")
        if moment == "before" and verb == "delete":
            self._judge_delete(name)

    def _judge_delete(self, pod_name: str) -> None:
        """I1: no pod is deleted whose VM holds state that is not saved, unless the user asked for that."""
        self.look()
        pod = self.world.pod(pod_name)
        found = self.world.api.get("set", "ns", "demo")
        if pod is None or found is None or found["metadata"].get("deletionTimestamp"):
            return
        vm_name = pod["metadata"]["annotations"][keys.VM_NAME]
        vm = self.world.agent.vms.get(vm_name)
        truth = self.truth.get(vm_name, Truth())
        if _surplus(pod, found):
            # The user gave this VM up: whatever comes under its name later has to be a new one.
            self.truth[vm_name] = Truth([], "", lost=False)
            return
        if self._given_up(found, vm_name):
            self.truth[vm_name] = Truth()
            return
        if vm is not None:
            if _drifted_ready(pod, found):
                self.truth[vm_name] = Truth()
                return
            if pod["metadata"]["annotations"].get(keys.LIFECYCLE_STATE) == "failed":
                return
            if not vm.memory or self._saved(vm_name, Truth(vm.memory)):
                # It was never worked in since it booted, or since it was saved: a boot that is begun again.
                return
            raise Violation(f"I1: {pod_name} is deleted while its VM runs with {vm.memory}")
        if not truth.lost and truth.memory and not self._saved(vm_name, truth):
            raise Violation(f"I1: {pod_name} is deleted, and nothing holds {truth.memory}")

    def judge_drop(self, vm_name: str, tag: str) -> None:
        """I2: the tag goes only behind a VM that lives, with its set, or when it was just moved aside."""
        if tag != keys.TAG_HIBERNATE or (vm_name, tag) not in self.world.registry.tags:
            return
        found = self.world.api.get("set", "ns", "demo")
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        digest = self.world.registry.tags[(vm_name, tag)]
        others = [
            t for (repo, t), d in self.world.registry.tags.items() if repo == vm_name and d == digest and t != tag
        ]
        if others:
            return
        pod = self._pod_of(vm_name)
        if pod is None and vm_name not in self._wanted(found):
            return
        flagged = pod is not None and pod["metadata"]["annotations"].get(keys.HIBERNATE) == "true"
        if vm_name not in self.world.agent.vms or flagged:
            raise Violation(f"I2: {vm_name}:{tag} is dropped, and no living VM stands before it")

    def look(self) -> None:
        """Read what the agent did since the last look, and compare every boot with what the VM last held."""
        for line in self.world.agent.history[self.read :]:
            verb, vm_name = line.split(" ")[:2]
            truth = self.truth.setdefault(vm_name, Truth())
            if verb == "slept" and not truth.lost:
                # Between two looks a VM may wake, be worked in and sleep again.
                memory = literal_eval(line.split(" ", 2)[2])
                truth.memory = max(truth.memory, memory, key=len)
            if verb == "booted" and not truth.lost and truth.memory:
                self._judge_fresh_boot(vm_name, truth)
            if verb == "restored" and not truth.lost:
                memory = literal_eval(line.split(" ", 2)[2])
                if memory != truth.memory:
                    raise Violation(f"{vm_name} held {truth.memory} and came back with {memory}")
        self.read = len(self.world.agent.history)
        for vm_name, vm in self.world.agent.vms.items():
            if not self._going(vm_name):
                self.truth[vm_name] = Truth(list(vm.memory), vm.image, lost=False)

    def lose(self, vm_name: str) -> None:
        """A user, or a node, took the VM away."""
        self.truth[vm_name] = Truth()

    def _judge_fresh_boot(self, vm_name: str, truth: Truth) -> None:
        kept = any(
            repo == vm_name and self.world.registry.manifests[(repo, digest)]["memory"] == truth.memory
            for (repo, _), digest in self.world.registry.tags.items()
        )
        pod = self._pod_of(vm_name)
        asked = pod is not None and truth.image != pod["metadata"]["annotations"][keys.IMAGE]
        if not (asked and kept):
            raise Violation(f"{vm_name} held {truth.memory} and boots fresh (other image: {asked}, kept aside: {kept})")

    def _pod_of(self, vm_name: str) -> Object | None:
        pods = self.world.api.list("pod")
        return next((pod for pod in pods if pod["metadata"]["annotations"].get(keys.VM_NAME) == vm_name), None)

    def _wanted(self, found: Object) -> set[str]:
        slots = [str(slot) for slot in range(found["spec"]["agent"].get("replicas", 0) + 1)]
        boxes = [box["name"] for box in found["spec"].get("toolboxes") or []]
        return {f"vk-ns-demo-{slot}" for slot in slots + boxes}

    def _going(self, vm_name: str) -> bool:
        """Whether the VM's pod is being deleted, which was judged when the delete was asked for."""
        return any(
            pod["metadata"]["annotations"].get(keys.VM_NAME) == vm_name and pod["metadata"].get("deletionTimestamp")
            for pod in self.world.api.list("pod")
        )

    def _saved(self, vm_name: str, truth: Truth) -> bool:
        content = self.world.registry.content(vm_name, "hibernate")
        if content is not None and content["memory"] == truth.memory:
            return True
        return any(
            m["memory"] == truth.memory for (repo, _), m in self.world.registry.manifests.items() if repo == vm_name
        )

    def _given_up(self, found: Object, vm_name: str) -> bool:
        asked = (found["metadata"].get("annotations") or {}).get(keys.START_FRESH, "")
        conditions = found["status"].get("conditions") or []
        moving = [c["message"] for c in conditions if c["reason"] == "MovingAside"]
        return vm_name in asked or any(vm_name in message for message in moving)


def _surplus(pod: Object, found: Object) -> bool:
    slot = pod["metadata"]["labels"][keys.LABEL_SLOT]
    if pod["metadata"]["labels"][keys.LABEL_ROLE] == "sub-agent":
        return int(slot) > found["spec"]["agent"].get("replicas", 0)
    boxes = {box["name"] for box in found["spec"].get("toolboxes") or []}
    return pod["metadata"]["labels"][keys.LABEL_ROLE] == "toolbox" and slot not in boxes


def _drifted_ready(pod: Object, found: Object) -> bool:
    annotations = pod["metadata"]["annotations"]
    agent = found["spec"]["agent"]
    if pod["metadata"]["labels"][keys.LABEL_ROLE] == "toolbox":
        agent = next(
            box for box in found["spec"]["toolboxes"] if box["name"] == pod["metadata"]["labels"][keys.LABEL_SLOT]
        )
    drifted = annotations[keys.IMAGE] != agent["image"] or annotations.get(keys.NETWORK, "") != agent.get("network", "")
    return annotations.get(keys.LIFECYCLE_STATE) == "ready" and drifted
