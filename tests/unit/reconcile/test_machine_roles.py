"""The machine with sub-agents, a toolbox and a second node: every VM of the set is judged on its own."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from cocoon_operator.api import keys
from tests.model.apiserver import Object
from tests.model.effort import effort
from tests.model.machine import POD, WorldMachine

BOX = {"name": "db", "image": "base", "mode": "run"}
EDITS: dict[str, dict[str, Any]] = {
    "no sub-agent": {"agent": {"replicas": 0}},
    "one sub-agent": {"agent": {"replicas": 1}},
    "two sub-agents": {"agent": {"replicas": 2}},
    "no toolbox": {"toolboxes": []},
    "a toolbox": {"toolboxes": [BOX]},
    "an edited toolbox": {"toolboxes": [{**BOX, "network": "blue"}]},
    "to a": {"nodeName": "node-a"},
    "to b": {"nodeName": "node-b"},
    "anywhere": {"nodeName": None},
    "network": {"agent": {"network": "blue"}},
    "other network": {"agent": {"network": "green"}},
    "image": {"agent": {"image": "other"}},
    "first image": {"agent": {"image": "base"}},
}
SEATS = {"keep dead letters' seats": None, "free dead letters' seats": "release"}
ACTIONS = ["flip"] * 6 + [*EDITS, *SEATS] + ["delete pod"] * 2


class RolesMachine(WorldMachine):
    """One set with up to two sub-agents and a toolbox."""

    pods = ("demo-0", "demo-1", "demo-2", "demo-db")

    @initialize(replicas=st.integers(0, 2), box=st.booleans(), up=st.sampled_from([True, True, False]))
    def create(self, replicas: int, box: bool, up: bool) -> None:
        self.world.apply(agent={"replicas": replicas}, toolboxes=[BOX] if box else [])
        if up:
            self.do(self.world.settle())

    @rule(what=st.sampled_from(ACTIONS), pod=POD)
    def user(self, what: str, pod: str) -> None:
        if what == "delete pod":
            self.take_away(pod)
        elif what == "flip":
            self.world.edit(suspend=not self.world.set()["spec"].get("suspend"))
        elif what in SEATS:
            self.world.annotate({keys.DEAD_LETTER_POLICY: SEATS[what]})
        else:
            self.world.edit(**EDITS[what])

    def check_end(self, found: Object | None) -> None:
        assert found is not None
        world, status = self.world, found["status"]
        wanted = {f"vk-ns-demo-{slot}" for slot in range(found["spec"]["agent"]["replicas"] + 1)}
        wanted |= {f"vk-ns-demo-{box['name']}" for box in found["spec"].get("toolboxes") or []}
        if found["spec"].get("suspend"):
            assert status["phase"] == "Suspended", status
            assert world.agent.vms == {}
            return
        dead = [pod for pod in world.api.list("pod") if keys.DEAD_LETTER in pod["metadata"]["annotations"]]
        released = "deadLetter" in str(found["metadata"].get("annotations"))
        if dead or released:
            assert status["phase"] == "Scaling", status
            return
        assert status["phase"] == "Running", status
        assert set(world.agent.vms) == wanted
        assert not [tag for repo, tag in world.registry.tags if tag == "hibernate"], "a tag lags behind a living VM"
        pinned, main = found["spec"].get("nodeName"), world.pod()
        assert main is not None
        assert not pinned or main["spec"]["nodeName"] == pinned
        assert world.annotation(keys.REMOVING_VM_NAMES) is None
        assert set(str(world.annotation(keys.DELETE_VM_NAMES)).split(",")) == wanted


def test_no_history_loses_a_vm_of_any_role() -> None:
    """I1 to I6 for every role, convergence after the faults stop."""
    run_state_machine_as_test(RolesMachine, settings=effort(150, 40))
