"""The machine with CocoonHibernations: both kinds pull at the same pods, and nothing may be lost by that (design 4.1, 4.2)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test
from typing_extensions import override

from cocoon_operator.api import keys
from cocoon_operator.api.hibernation import Hibernation, hibernation_from_object
from cocoon_operator.reconcile.hibernation.holds import deciders
from tests.model.apiserver import Object
from tests.model.effort import effort
from tests.model.machine import POD, WorldMachine

BOX = {"name": "db", "image": "base", "mode": "run"}
EDITS: dict[str, dict[str, Any]] = {
    "no sub-agent": {"agent": {"replicas": 0}},
    "one sub-agent": {"agent": {"replicas": 1}},
    "to b": {"nodeName": "node-b"},
    "anywhere": {"nodeName": None},
    "network": {"agent": {"network": "blue"}},
    "image": {"agent": {"image": "other"}},
}
ACTIONS = ["flip"] * 3 + [*EDITS] + ["delete pod"]
ASKS = ["Hibernate"] * 4 + ["Wake"] * 4 + ["delete"] * 2


class HibernationMachine(WorldMachine):
    """One set with a sub-agent and a toolbox, or one that releases its seat, and up to two CocoonHibernations a pod."""

    pods = ("demo-0", "demo-1", "demo-db")

    @initialize(release=st.booleans(), up=st.sampled_from([True, True, False]))
    def create(self, release: bool, up: bool) -> None:
        self.release = release
        if release:
            self.world.apply(hibernatePolicy="release")
        else:
            self.world.apply(agent={"replicas": 1}, toolboxes=[BOX])
        if up:
            self.do(self.world.settle())

    @rule(what=st.sampled_from(ACTIONS), pod=POD)
    def user(self, what: str, pod: str) -> None:
        if what == "delete pod":
            self.take_away(pod)
        elif what == "flip":
            self.world.edit(suspend=not self.world.set()["spec"].get("suspend"))
        elif not (self.release and what == "one sub-agent"):
            self.world.edit(**EDITS[what])

    @rule(pod=POD, ask=st.sampled_from(ASKS), second=st.sampled_from([False, False, False, True]))
    def ask(self, pod: str, ask: str, second: bool) -> None:
        self.ask_for(pod, ask, name=f"second-{pod}" if second else pod)

    @override
    def check_end(self, found: Object | None) -> None:
        assert found is not None
        living = [hibernation_from_object(obj) for obj in self.world.api.list("hibernation")]
        assert not [item.name for item in living if item.deleting], "a deleted CocoonHibernation stays for ever"
        decided = deciders(living)
        held = {pod for pod, item in decided.items() if item.desire == "Hibernate"}
        suspended = bool(found["spec"].get("suspend"))
        for item in living:
            self._check(item, decides=decided[item.pod_name].uid == item.uid, suspended=suspended)
        if suspended:
            assert (found["status"]["phase"], self.world.agent.vms) == ("Suspended", {})
            return
        assert not {f"vk-ns-{pod}" for pod in held} & self.world.agent.vms.keys(), "a held VM runs"
        if any(keys.DEAD_LETTER in pod["metadata"]["annotations"] for pod in self.world.api.list("pod")):
            return
        if "demo-0" in held:
            return
        wanted = {f"vk-ns-demo-{slot}" for slot in range(found["spec"]["agent"].get("replicas", 0) + 1)}
        wanted |= {f"vk-ns-demo-{box['name']}" for box in found["spec"].get("toolboxes") or []}
        kept = {f"vk-ns-{pod}" for pod in held}
        assert set(self.world.agent.vms) == wanted - kept, found["status"]
        assert {repo for repo, tag in self.world.registry.tags if tag == "hibernate"} <= kept, "a tag lags behind"
        if not wanted & kept:
            assert found["status"]["phase"] == "Running", found["status"]
            assert self.world.annotation(keys.HINT_NODE) is None

    def _check(self, item: Hibernation, *, decides: bool, suspended: bool) -> None:
        tag = self.world.tag(f"vk-ns-{item.pod_name}")
        if not decides:
            assert item.phase in ("Pending", "Active"), item
        elif item.desire == "Hibernate":
            assert item.phase in ("Hibernated", "Pending"), item
            assert item.phase == "Pending" or tag is not None, "Hibernated without a tag"
            assert item.phase == "Hibernated" or tag is None or self.world.pod(item.pod_name) is None, item
        elif suspended:
            assert item.phase in ("Pending", "Active"), item
        else:
            gone = self.world.pod(item.pod_name) is None
            assert item.phase == "Active" or (gone and item.phase in ("Pending", "Hibernated", "Waking")), item


def test_no_hibernation_loses_a_vm() -> None:
    """I1 to I7 with both kinds on the same pods, convergence after the faults stop."""
    run_state_machine_as_test(HibernationMachine, settings=effort(150, 40))
