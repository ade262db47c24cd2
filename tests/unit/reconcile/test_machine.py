"""A machine that does everything to a set at once: users, nodes, agents, registry and the operator fail between any two calls.

After every step the judge looks whether a VM's state was lost; at the end, with every fault healed, the set has to come to
what its last edit says, and then nothing may be written any more.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cocoon_operator.api import keys
from tests.model.effort import effort
from tests.model.judge import Judge
from tests.model.judged import JudgedWorld

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


class SetMachine(RuleBasedStateMachine):
    """One set with one main agent."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = JudgedWorld()
        self.world.agent.works = True
        self.counter = 0

    def teardown(self) -> None:
        try:
            self._converge()
        finally:
            self.loop.close()

    @property
    def judge(self) -> Judge:
        assert self.world.judge is not None
        return self.world.judge

    def _do(self, coroutine: Any) -> None:
        self.loop.run_until_complete(coroutine)
        self.judge.look()

    def _set(self) -> dict[str, Any] | None:
        return self.world.api.get("set", "ns", "demo")

    # -- start ---------------------------------------------------------------------------------------------------------

    @initialize(policy=st.sampled_from(["retain", "release"]), suspend=st.booleans(), up=st.booleans())
    def create(self, policy: str, suspend: bool, up: bool) -> None:
        self.world.apply(hibernatePolicy=policy, suspend=suspend)
        if up:
            self._do(self.world.settle())

    # -- users: one rule with weights, so that what matters comes up often ---------------------------------------------

    @rule(what=st.sampled_from(USER_ACTIONS))
    def user(self, what: str) -> None:
        found = self._set()
        if what == "delete pod":
            if VM in self.world.agent.vms:
                self.judge.lose(VM)
            self.world.delete_pod()
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

    # -- worlds --------------------------------------------------------------------------------------------------------

    @rule(steps=st.integers(1, 4))
    def agent(self, steps: int) -> None:
        for _ in range(steps):
            self.world.agent.step("ns", "demo-0")
        self.judge.look()

    @rule(rounds=st.integers(1, 8))
    def go_on(self, rounds: int) -> None:
        """Operator and agent in turn, a few steps each."""
        for _ in range(rounds):
            self.world.observe()
            self._do(self.world.one_run())
            for _ in range(2):
                self.world.agent.step("ns", "demo-0")
            self.judge.look()

    @rule()
    def rest(self) -> None:
        """Everything comes to rest, as far as the faults that are on allow it."""
        for _ in range(12):
            self.world.observe()
            self._do(self.world.one_run())
            self.world.agent.run()
            self.judge.look()

    @rule(
        fault=st.sampled_from(
            ["boot", "push", "wake", "report", "registry", "refuse", "lose", "capacity", "tag", "tag"]
        ),
        on=st.booleans(),
    )
    def fault(self, fault: str, on: bool) -> None:
        world = self.world
        match fault:
            case "registry":
                world.registry.down = "connection refused" if on else ""
            case "refuse":
                world.registry.refuse_drops = "405 UNSUPPORTED" if on else ""
            case "lose":
                world.lose_drop_answers = on
            case "capacity":
                world.agent.capacity = not on
            case "tag":
                self._lose_tag()
            case _:
                (world.agent.fail.add if on else world.agent.fail.discard)(fault)

    def _lose_tag(self) -> None:
        """Somebody removes the tag of a sleeping VM whose digest is on record: the manifest is still there."""
        found = self._set()
        digest = self.world.tag()
        if found is None or digest is None or VM in self.world.agent.vms:
            return
        recorded = str(found["metadata"].get("annotations", {})) + str(found["status"].get("agents"))
        if digest in recorded and found["status"].get("phase") == "Suspended":
            del self.world.registry.tags[(VM, "hibernate")]

    @rule(seconds=st.sampled_from([1, 3, 11, 130]))
    def time(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    # -- operator ------------------------------------------------------------------------------------------------------

    @rule(changes=st.integers(0, 5))
    def operator(self, changes: int) -> None:
        """One run on a view that may be behind."""
        self.world.observe(changes)
        self._do(self.world.one_run())

    @rule(
        call=st.sampled_from([1, 1, 2, 2, 3, 3, 4, 5, 6]),
        kind=st.sampled_from(["crash before", "crash after", "lost before", "lost after"]),
        fresh=st.booleans(),
    )
    def operator_breaks(self, call: int, kind: str, fresh: bool) -> None:
        if fresh:
            self.world.observe()
        self.world.calls = 0
        self.world.fault = (call, kind)
        self._do(self.world.one_run())
        self.world.fault = None

    @rule()
    def operator_restarts(self) -> None:
        self.world.start_operator()

    # -- end -----------------------------------------------------------------------------------------------------------

    def _converge(self) -> None:
        world = self.world
        world.fault = None
        world.agent.fail.clear()
        world.agent.capacity = True
        world.registry.down = world.registry.refuse_drops = ""
        world.lose_drop_answers = False
        world.observe()
        for _ in range(4):
            self._do(world.settle())
            world.clock.advance(70)
        found = self._set()
        if found is None or found["metadata"].get("deletionTimestamp"):
            assert found is None, "a deleted set stays for ever"
            assert world.tag() is None, "a tag is left behind"
            return
        self._check_end(found)
        mark = world.mark
        self._do(world.settle())
        assert world.writes(mark) == [], "a set at rest is written to"

    def _check_end(self, found: dict[str, Any]) -> None:
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
