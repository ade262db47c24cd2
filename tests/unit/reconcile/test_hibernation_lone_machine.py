"""The machine with pods of no set: several CocoonHibernations pull at them, and nobody but these wakes their VMs (contract 5)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from typing_extensions import override

from cocoon_operator.api import keys
from cocoon_operator.api.hibernation import Hibernation, hibernation_from_object
from cocoon_operator.reconcile.hibernation.holds import deciders
from tests.model.apiserver import Object
from tests.model.effort import effort
from tests.model.judge import Judge, Violation
from tests.model.machine import POD, WorldMachine

ASKS = ["Hibernate"] * 5 + ["Wake"] * 5 + ["delete"] * 3


class LoneJudge(Judge):
    """Knows no set, whose deletion would excuse the drop of a tag."""

    @override
    def judge_drop(self, vm_name: str, tag: str) -> None:
        """I2: the tag goes behind a VM that lives, or with the last one that asked for it, when there is no pod."""
        if tag != keys.TAG_HIBERNATE or (vm_name, tag) not in self.world.registry.tags:
            return
        name = vm_name.removeprefix("vk-ns-")
        pod = self.world.pod(name)
        if pod is None:
            asking = [obj for obj in self.world.api.list("hibernation") if obj["spec"]["podRef"]["name"] == name]
            if not all(obj["metadata"].get("deletionTimestamp") for obj in asking):
                raise Violation(f"{vm_name}:{tag} is dropped, though somebody asks for the VM")
            self.lose(vm_name)
        elif vm_name not in self.world.agent.vms or pod["metadata"]["annotations"].get(keys.HIBERNATE) == "true":
            raise Violation(f"I2: {vm_name}:{tag} is dropped, and no living VM stands before it")


class LoneMachine(WorldMachine):
    """Two pods of no set, and up to two CocoonHibernations on each."""

    pods = ("solo", "other")

    def __init__(self) -> None:
        super().__init__()
        self.world.judge = LoneJudge(self.world)

    @initialize()
    def create(self) -> None:
        for pod in self.pods:
            self.make(pod)
        self.world.agent.run()
        self.judge.look()

    def make(self, pod: str) -> None:
        annotations = {keys.VM_NAME: f"vk-ns-{pod}", keys.MANAGED: "true", keys.IMAGE: "base"}
        metadata = {"name": pod, "namespace": "ns", "annotations": annotations}
        self.world.api.create("pod", {"metadata": metadata, "spec": {}}, by="user")

    @rule(pod=POD)
    def user(self, pod: str) -> None:
        if self.world.pod(pod) is None:
            self.make(pod)
        else:
            self.take_away(pod)

    @rule(pod=POD, ask=st.sampled_from(ASKS), second=st.booleans())
    def ask(self, pod: str, ask: str, second: bool) -> None:
        self.ask_for(pod, ask, name=f"second-{pod}" if second else pod, later=1)

    @override
    def check_end(self, found: Object | None) -> None:
        living = [hibernation_from_object(obj) for obj in self.world.api.list("hibernation")]
        assert not [item.name for item in living if item.deleting], "a deleted CocoonHibernation stays for ever"
        decided = deciders(living)
        for pod in self.pods:
            stored = self.world.pod(pod)
            if stored is not None and "model/stuck" not in stored["metadata"]["annotations"]:
                self._check(pod, decided.get(pod))
        for item in living:
            assert decided[item.pod_name].uid == item.uid or item.phase in ("Pending", "Active"), item

    def _check(self, pod: str, decider: Hibernation | None) -> None:
        name = f"vk-ns-{pod}"
        runs, tag = name in self.world.agent.vms, self.world.tag(name)
        if decider is not None and decider.desire == "Hibernate":
            assert (decider.phase, runs) == ("Hibernated", False)
            assert tag is not None, "Hibernated without a tag"
            return
        assert decider is None or decider.phase == "Active", decider
        if not {"HibernationLetGo", "TagDropRefused"} & set(self.world.recorder.reasons()):
            assert runs, "a VM sleeps that nobody wakes"
            assert tag is None, "a tag lags behind"


def test_no_hibernation_of_a_pod_of_no_set_loses_a_vm() -> None:
    """The first promise, I2 and I8 without a set; convergence after the faults stop."""
    run_state_machine_as_test(LoneMachine, settings=effort(100, 30))
