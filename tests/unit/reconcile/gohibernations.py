"""What the Go operator does about CocoonHibernations, on the model: its passes, write by write (contract 4.3, 4.8, 4.9, 5).

Written from the contract's text and with nothing of the operator under test but the shape of a pod. Each pass is a generator
that stops after every write, so that the process can end there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from cocoon_operator.api import keys
from cocoon_operator.reconcile.objects import set_from_object
from tests.model.apiserver import Object
from tests.model.world import World
from tests.unit.reconcile.staging import built_main

GO = "go"
Steps = Iterator[str]
SLEEP = ("Hibernate", False)
"""Desire, and whether a wake is in flight, which a reversed desire waits for (5.3)."""
_LIMITS = {"Hibernating": timedelta(minutes=3), "Waking": timedelta(minutes=5)}
_TIMED_OUT = {
    "Hibernating": "hibernate not confirmed within 3m0s",
    "Waking": "wake timed out after 5m0s; vk-cocoon never reported the container running",
}


class GoOperator:
    """Its two controllers, on the set ``demo`` of the namespace ``ns`` and on every CocoonHibernation there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = world.api

    def runs(self, rounds: int = 60) -> Steps:
        """Passes and small steps of the agent in turn, until nobody has anything to do; a fight ends with the rounds."""
        for _ in range(rounds):
            quiet = True
            for step in self._round():
                quiet = False
                yield step
            if quiet:
                return

    def _round(self) -> Steps:
        for each in self.api.list("hibernation"):
            yield from self.hibernation_pass(each["metadata"]["name"])
        if self.api.get("set", "ns", "demo"):
            yield from self.set_pass()
        for pod in self.api.list("pod"):
            if self.world.agent.step("ns", pod["metadata"]["name"]):
                yield f"agent, {pod['metadata']['name']}"

    # -- a CocoonHibernation (5.2 to 5.6) ----------------------------------------------------------------------------------

    def hibernation_pass(self, name: str) -> Steps:
        target = self.api.get("hibernation", "ns", name)
        if target is None:
            return
        finalizers = target["metadata"].get("finalizers") or []
        if target["metadata"].get("deletionTimestamp"):
            yield from self._let_go(target, finalizers)
        elif keys.HIBERNATION_FINALIZER not in finalizers:
            body = {"metadata": {"finalizers": [*finalizers, keys.HIBERNATION_FINALIZER]}}
            self.api.patch("hibernation", "ns", name, body, by=GO)
            yield "finalizer"
        else:
            pod = self.api.get("pod", "ns", target["spec"]["podRef"]["name"])
            if pod is None:
                yield from self._pending(target)
            elif _phase(target) == "Hibernating" or (target["spec"]["desire"], _phase(target) == "Waking") == SLEEP:
                yield from self._put_to_sleep(target, pod)
            else:
                yield from self._wake(target, pod)

    def _put_to_sleep(self, target: Object, pod: Object) -> Steps:
        if note(pod, keys.HIBERNATE) != "true":
            self.annotate(pod, keys.HIBERNATE, "true")
            yield "flag"
        vm_name = note(pod, keys.VM_NAME)
        echoed = int(note(pod, keys.LIFECYCLE_GENERATION) or 0) >= int(note(pod, keys.GENERATION) or 0)
        asleep = note(pod, keys.LIFECYCLE_STATE) == "hibernated" and echoed
        if asleep and self.world.tag(vm_name):
            yield from self._say(target, "Hibernated", vm_name)
        else:
            yield from self._goes_on(target, "Hibernating", vm_name)

    def _wake(self, target: Object, pod: Object) -> Steps:
        if note(pod, keys.HIBERNATE) == "true":
            self.annotate(pod, keys.HIBERNATE, None)
            yield "flag cleared"
        vm_name = note(pod, keys.VM_NAME)
        if not live(pod):
            yield from self._goes_on(target, "Waking", vm_name)
            return
        if self.world.registry.tags.pop((vm_name, "hibernate"), None):
            yield "tag dropped"
        yield from self._say(target, "Active", vm_name)

    def _goes_on(self, target: Object, phase: str, vm_name: str) -> Steps:
        since = [entry["lastTransitionTime"] for entry in target["status"].get("conditions") or []]
        if _phase(target) == phase and since:
            begun = datetime.fromisoformat(since[0])
            if self.world.clock.now() - begun > _LIMITS[phase]:
                yield from self._say(target, "Failed", "", _TIMED_OUT[phase])
                return
        yield from self._say(target, phase, vm_name)

    def _pending(self, target: Object) -> Steps:
        if _phase(target) not in ("Hibernated", "Waking"):
            yield from self._say(target, "Pending", "", f"pod ns/{target['spec']['podRef']['name']} not yet present")

    def _say(self, target: Object, phase: str, vm_name: str, message: str = "") -> Steps:
        """1.7: the clock begins anew with a transition, else only when the condition's status changes."""
        old = (target["status"].get("conditions") or [{}])[0]
        status = "True" if phase in ("Hibernated", "Active") else "False"
        begins = _phase(target) != phase and phase in _LIMITS
        ready = {
            "type": "Ready",
            "status": status,
            "reason": {"Hibernated": "Done", "Active": "Done", "Failed": "Failed"}.get(phase, "Pending"),
            "message": message or phase,
            "observedGeneration": target["metadata"]["generation"],
            "lastTransitionTime": old["lastTransitionTime"]
            if old.get("status") == status and not begins
            else self.world.clock.text(),
        }
        wanted: Object = {
            "observedGeneration": target["metadata"]["generation"],
            "phase": phase,
            "conditions": [ready],
            **({"vmName": vm_name} if vm_name else {}),
        }
        stored = target["status"]
        same = all(stored.get(key) == value for key, value in wanted.items() if key != "conditions")
        if not same or (phase == "Pending" and old.get("message") != message):
            name = target["metadata"]["name"]
            self.api.patch("hibernation", "ns", name, {"status": wanted}, by=GO, subresource="status")
            yield f"{name} {phase}"

    def _let_go(self, target: Object, finalizers: list[str]) -> Steps:
        if keys.HIBERNATION_FINALIZER not in finalizers:
            return
        vm_name, uid = target["status"].get("vmName", ""), target["metadata"]["uid"]
        holders = [
            each
            for each in self.api.list("hibernation")
            if each["metadata"]["uid"] != uid
            and not each["metadata"].get("deletionTimestamp")
            and (each["status"].get("vmName") == vm_name or each["spec"]["podRef"] == target["spec"]["podRef"])
        ]
        if vm_name and not holders and self.world.registry.tags.pop((vm_name, "hibernate"), None):
            yield "tag dropped"
        rest = [each for each in finalizers if each != keys.HIBERNATION_FINALIZER]
        self.api.patch("hibernation", "ns", target["metadata"]["name"], {"metadata": {"finalizers": rest}}, by=GO)
        yield "finalizer removed"

    # -- the set (4.1, as far as a set of one agent that is not moved gets) --------------------------------------------------

    def set_pass(self) -> Steps:
        target = self.world.set()
        generation = str(target["metadata"]["generation"])
        if keys.SET_FINALIZER not in (target["metadata"].get("finalizers") or []):
            self.api.patch("set", "ns", "demo", {"metadata": {"finalizers": [keys.SET_FINALIZER]}}, by=GO)
            yield "finalizer of the set"
        pod = self._main()
        if pod is not None and note(pod, keys.GENERATION) != generation:
            self.annotate(pod, keys.GENERATION, generation)
            yield "stamp"
        if target["spec"].get("suspend"):
            yield from self._suspend(int(generation))
        elif target["status"].get("phase") in ("Suspended", "Waking") and (pod is None or note(pod, keys.RESTORE)):
            yield from self._wake_released()
        else:
            yield from self._awake(target)

    def _suspend(self, generation: int) -> Steps:
        pod = self._main()
        if pod is None:
            yield from self.status("Suspended")
            return
        if note(pod, keys.HIBERNATE) != "true":
            self.annotate(pod, keys.HIBERNATE, "true")
            yield "flag of the set"
        said = note(pod, keys.LIFECYCLE_STATE) == "hibernated"
        done = said and int(note(pod, keys.LIFECYCLE_GENERATION) or 0) >= generation
        yield from self.status("Suspended" if done and self.world.tag() else "Suspending")

    def _wake_released(self) -> Steps:
        """4.7."""
        pod = self._main()
        if pod is None and self.world.tag():
            yield from self.status("Waking")
            yield from self.create_main(restore=True)
        elif pod is not None and live(pod):
            if self.world.registry.tags.pop((note(pod, keys.VM_NAME), "hibernate"), None):
                yield "tag dropped by the set"
            yield from self.status("Running")

    def _awake(self, target: Object) -> Steps:
        """4.8, the drift rule (one field of it), 4.9.2, 4.13."""
        pod = self._main()
        if pod is not None and note(pod, keys.HIBERNATE) == "true" and not self._asked():
            self.annotate(pod, keys.HIBERNATE, None)
            yield "flag cleared by the set"
        if pod is not None and note(pod, keys.NETWORK) != target["spec"]["agent"].get("network", ""):
            self.api.delete("pod", "ns", "demo-0", by=GO)
            yield "pod deleted"
        elif pod is not None:
            yield from self.status("Running" if ready(pod) else "Pending")
        elif self.api.get("pod", "ns", "demo-0") is None:
            intent = any(_phase(each) in ("Hibernated", "Waking") for each in self._on_main())
            yield from self.create_main(restore=intent and self.world.tag() is not None)

    def create_main(self, *, restore: bool = False) -> Steps:
        target = self.world.set()
        body = built_main(set_from_object(target), restore=restore)
        body["metadata"]["annotations"].pop(keys.APPLIED_RESOURCES, None)
        self.api.create("pod", body, by=GO)
        yield "pod"

    def status(self, phase: str) -> Steps:
        """Without the conditions, which it does not read (1.7): what matters is that ``SnapshotCurrent`` is none of them."""
        target, pod = self.world.set(), self._main()
        agent = {"slot": 0, "role": "main", "podName": "demo-0", "vmName": "vk-ns-demo-0"}
        wanted = {
            "phase": phase,
            "observedGeneration": target["metadata"]["generation"],
            "agents": [agent] if pod else None,
        }
        if any(target["status"].get(key) != value for key, value in wanted.items()):
            self.api.patch("set", "ns", "demo", {"status": wanted}, by=GO, subresource="status")
            yield f"status {phase}"

    def annotate(self, pod: Object, key: str, value: str | None) -> None:
        name = pod["metadata"]["name"]
        self.api.patch("pod", "ns", name, {"metadata": {"annotations": {key: value}}}, by=GO)

    def _main(self) -> Object | None:
        pod = self.api.get("pod", "ns", "demo-0")
        return None if pod is None or pod["metadata"].get("deletionTimestamp") else pod

    def _on_main(self) -> list[Object]:
        return [each for each in self.api.list("hibernation") if each["spec"]["podRef"]["name"] == "demo-0"]

    def _asked(self) -> bool:
        return any(each["spec"]["desire"] == "Hibernate" or _phase(each) == "Hibernating" for each in self._on_main())


def _phase(target: Object) -> str:
    return str(target["status"].get("phase", ""))


def note(pod: Object, key: str) -> str:
    """An annotation, "" when there is none."""
    value: Any = (pod["metadata"].get("annotations") or {}).get(key)
    return value or ""


def live(pod: Object) -> bool:
    """``vmLive`` of the contract's vocabulary."""
    containers = pod["status"].get("containerStatuses") or []
    return note(pod, keys.VM_ID) != "" and any("running" in each.get("state", {}) for each in containers)


def ready(pod: Object) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or [])
