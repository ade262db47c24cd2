"""The machine again, with sub-agents, a toolbox and a second node: every VM of the set is judged on its own."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cocoon_operator.api import keys
from tests.model.effort import effort
from tests.model.judge import Judge
from tests.model.judged import JudgedWorld

BOX = {"name": "db", "image": "base", "mode": "run"}
PODS = ["demo-0", "demo-1", "demo-2", "demo-db"]
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
ACTIONS = ["flip"] * 6 + [*EDITS] + ["delete pod"] * 2


class RolesMachine(RuleBasedStateMachine):
    """One set with up to two sub-agents and a toolbox."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.world = JudgedWorld()
        self.world.agent.works = True

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

    @initialize(replicas=st.integers(0, 2), box=st.booleans(), up=st.sampled_from([True, True, False]))
    def create(self, replicas: int, box: bool, up: bool) -> None:
        self.world.apply(agent={"replicas": replicas}, toolboxes=[BOX] if box else [])
        if up:
            self._do(self.world.settle())

    @rule(what=st.sampled_from(ACTIONS), pod=st.sampled_from(PODS))
    def user(self, what: str, pod: str) -> None:
        if what == "delete pod":
            if f"vk-ns-{pod}" in self.world.agent.vms:
                self.judge.lose(f"vk-ns-{pod}")
            self.world.delete_pod(pod)
        elif what == "flip":
            self.world.edit(suspend=not self.world.set()["spec"].get("suspend"))
        else:
            self.world.edit(**EDITS[what])

    @rule(pod=st.sampled_from(PODS), steps=st.integers(1, 4))
    def agent(self, pod: str, steps: int) -> None:
        for _ in range(steps):
            self.world.agent.step("ns", pod)
        self.judge.look()

    @rule(rounds=st.integers(1, 6), pods=st.lists(st.sampled_from(PODS), min_size=1, max_size=4))
    def go_on(self, rounds: int, pods: list[str]) -> None:
        """Operator and agent in turn, a few steps each."""
        for _ in range(rounds):
            self.world.observe()
            self._do(self.world.one_run())
            for pod in pods:
                self.world.agent.step("ns", pod)
                self.world.agent.step("ns", pod)
            self.judge.look()

    @rule()
    def rest(self) -> None:
        for _ in range(8):
            self.world.observe()
            self._do(self.world.one_run())
            self.world.agent.run()
            self.judge.look()

    @rule(fault=st.sampled_from(["boot", "push", "wake", "registry", "refuse", "lose"]), on=st.booleans())
    def fault(self, fault: str, on: bool) -> None:
        match fault:
            case "registry":
                self.world.registry.down = "connection refused" if on else ""
            case "refuse":
                self.world.registry.refuse_drops = "405 UNSUPPORTED" if on else ""
            case "lose":
                self.world.lose_drop_answers = on
            case _:
                (self.world.agent.fail.add if on else self.world.agent.fail.discard)(fault)

    @rule(seconds=st.sampled_from([1, 6, 31, 130]))
    def time(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    @rule(changes=st.integers(0, 6))
    def operator(self, changes: int) -> None:
        self.world.observe(changes)
        self._do(self.world.one_run())

    @rule(
        call=st.sampled_from([1, 1, 2, 2, 3, 4, 5, 7, 9]),
        kind=st.sampled_from(["crash before", "crash after", "lost before", "lost after"]),
    )
    def operator_breaks(self, call: int, kind: str) -> None:
        self.world.observe()
        self.world.calls = 0
        self.world.fault = (call, kind)
        self._do(self.world.one_run())
        self.world.fault = None

    @rule()
    def operator_restarts(self) -> None:
        self.world.start_operator()

    def _converge(self) -> None:
        world = self.world
        world.fault = None
        world.agent.fail.clear()
        world.registry.down = world.registry.refuse_drops = ""
        world.lose_drop_answers = False
        for _ in range(5):
            world.observe()
            self._do(world.settle())
            world.clock.advance(130)
        self._do(world.settle())
        self._check_end(world.set())
        mark = world.mark
        self._do(world.settle())
        assert world.writes(mark) == [], "a set at rest is written to"

    def _check_end(self, found: dict[str, Any]) -> None:
        world, status = self.world, found["status"]
        wanted = {f"vk-ns-demo-{slot}" for slot in range(found["spec"]["agent"]["replicas"] + 1)}
        wanted |= {f"vk-ns-demo-{box['name']}" for box in found["spec"].get("toolboxes") or []}
        if found["spec"].get("suspend"):
            assert status["phase"] == "Suspended", status
            assert world.agent.vms == {}
            return
        dead = [pod for pod in world.api.list("pod") if keys.DEAD_LETTER in pod["metadata"]["annotations"]]
        if dead:
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
