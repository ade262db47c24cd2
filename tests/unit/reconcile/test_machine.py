"""One main agent through everything at once: users flip, edit, delete, start fresh; tags vanish; all else is in the base."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from cocoon_operator.api import keys
from tests.model.apiserver import Object
from tests.model.effort import effort
from tests.model.machine import WorldMachine

POD = "demo-0"
VM = "vk-ns-demo-0"
EDITS: dict[str, dict[str, Any]] = {
    "retain": {"hibernatePolicy": "retain"},
    "release": {"hibernatePolicy": "release"},
    "image base": {"agent": {"image": "base"}},
    "image other": {"agent": {"image": "other"}},
    "network blue": {"agent": {"network": "blue"}},
    "network green": {"agent": {"network": "green"}},
}
USER_ACTIONS = ["flip"] * 8 + [*EDITS] + ["delete pod", "start fresh", "delete set"]


class SetMachine(WorldMachine):
    """One set with one main agent."""

    pods = (POD,)

    @initialize(policy=st.sampled_from(["retain", "release"]), suspend=st.booleans(), up=st.booleans())
    def create(self, policy: str, suspend: bool, up: bool) -> None:
        self.world.apply(hibernatePolicy=policy, suspend=suspend)
        if up:
            self.do(self.world.settle())

    @rule(what=st.sampled_from(USER_ACTIONS))
    def user(self, what: str) -> None:
        """One rule with weights, so that what matters comes up often."""
        found = self.found()
        if what == "delete pod":
            self.take_away(POD)
        elif found is None:
            if what == "flip" and self.world.pod() is None:
                self.world.apply()
                self.judge.lose(VM)
        elif what == "flip":
            self.world.edit(suspend=not found["spec"].get("suspend"))
        elif what == "start fresh":
            self.world.annotate({keys.START_FRESH: VM})
            self.judge.lose(VM)
        elif what == "delete set":
            self.world.delete_set()
            self.judge.lose(VM)
        else:
            self.world.edit(**EDITS[what])

    @rule()
    def lose_tag(self) -> None:
        """Somebody removes the tag of a sleeping VM whose digest is on record: the manifest is still there."""
        found = self.found()
        digest = self.world.tag()
        if found is None or digest is None or VM in self.world.agent.vms:
            return
        recorded = str(found["metadata"].get("annotations", {})) + str(found["status"].get("agents"))
        if digest in recorded and found["status"].get("phase") == "Suspended":
            del self.world.registry.tags[(VM, "hibernate")]

    def check_end(self, found: Object | None) -> None:
        if found is None:
            assert self.world.tag() is None, "a tag is left behind"
            return
        assert not found["metadata"].get("deletionTimestamp"), "a deleted set stays for ever"
        phase = found["status"]["phase"]
        if found["spec"].get("suspend"):
            assert phase == "Suspended", found["status"]
            assert VM not in self.world.agent.vms
            if found["spec"]["hibernatePolicy"] == "release":
                assert self.world.pod() is None
        else:
            assert phase == "Running", found["status"]
            assert VM in self.world.agent.vms
            assert self.world.tag() is None, "the tag lags behind a living VM"
            assert self.world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
            assert self.world.annotation(keys.HINT_NODE) is None


def test_no_history_loses_a_vm() -> None:
    """I1 to I6 after every step, convergence after the faults stop."""
    run_state_machine_as_test(SetMachine, settings=effort(300, 40))
