"""What every machine does to a set, whatever is in it: nodes, registry and operator fail between any two calls.

A machine names its pods, says what its users do and what has to be true at the end. After every step the judge looks whether a
VM's state was lost; at the end, with every fault healed, the set has to come to what its last edit says, and then nothing may
be written any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.model.apiserver import Object
from tests.model.judge import Judge
from tests.model.judged import JudgedWorld

POD = st.runner().flatmap(lambda machine: st.sampled_from(machine.pods))
"""One of the machine's pods."""
PODS = st.runner().flatmap(lambda machine: st.lists(st.sampled_from(machine.pods), min_size=1, max_size=4))


class WorldMachine(RuleBasedStateMachine):
    """A set in a judged world."""

    pods: ClassVar[tuple[str, ...]]
    """The pods that the set can have."""

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

    def check_end(self, found: Object | None) -> None:
        """Assert what has to be true once everything is at rest; ``found`` is the set, None when it is gone."""
        raise NotImplementedError

    @property
    def judge(self) -> Judge:
        assert self.world.judge is not None
        return self.world.judge

    def do(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Let something happen, and let the judge look at it."""
        self.loop.run_until_complete(coroutine)
        self.judge.look()

    def found(self) -> Object | None:
        """The set as it is stored."""
        return self.world.api.get("set", "ns", "demo")

    def take_away(self, pod: str) -> None:
        """A user, or a node that is lost, takes a pod away, and its VM with it."""
        if f"vk-ns-{pod}" in self.world.agent.vms:
            self.judge.lose(f"vk-ns-{pod}")
        self.world.delete_pod(pod)

    def ask_for(self, pod: str, ask: str, *, name: str, later: float = 0) -> None:
        """Somebody creates, ``later`` seconds later, or edits a CocoonHibernation of a pod, or deletes it (``delete``)."""
        found = self.world.api.get("hibernation", "ns", name)
        if ask == "delete":
            if found is not None:
                self.world.api.delete("hibernation", "ns", name, by="user")
        elif found is None:
            self.world.clock.advance(later)
            self.world.apply_hibernation(name, pod, ask)
        elif not found["metadata"].get("deletionTimestamp"):
            self.world.api.patch("hibernation", "ns", name, {"spec": {"desire": ask}}, by="user")

    # -- worlds --------------------------------------------------------------------------------------------------------

    @rule(pod=POD, steps=st.integers(1, 4))
    def agent(self, pod: str, steps: int) -> None:
        for _ in range(steps):
            self.world.agent.step("ns", pod)
        self.judge.look()

    @rule(rounds=st.integers(1, 8), pods=PODS)
    def go_on(self, rounds: int, pods: list[str]) -> None:
        """Operator and agent in turn, a few steps each."""
        for _ in range(rounds):
            self.world.observe()
            self.do(self.world.one_run())
            for pod in pods:
                self.world.agent.step("ns", pod)
                self.world.agent.step("ns", pod)
            self.judge.look()

    @rule()
    def rest(self) -> None:
        """Everything comes to rest, as far as the faults that are on allow it."""
        for _ in range(12):
            mark = self.world.mark
            self.world.observe()
            self.do(self.world.one_run())
            self.world.agent.run()
            self.judge.look()
            if self.world.mark == mark:
                return

    @rule(
        fault=st.sampled_from(["boot", "push", "wake", "report", "registry", "refuse", "lose", "capacity"]),
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
            case _:
                (world.agent.fail.add if on else world.agent.fail.discard)(fault)

    @rule(seconds=st.sampled_from([1, 3, 6, 11, 31, 130]))
    def time(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    # -- operator ------------------------------------------------------------------------------------------------------

    @rule(changes=st.integers(0, 6))
    def operator(self, changes: int) -> None:
        """One run on a view that may be behind."""
        self.world.observe(changes)
        self.do(self.world.one_run())

    @rule(
        call=st.sampled_from([1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 9]),
        kind=st.sampled_from(["crash before", "crash after", "lost before", "lost after"]),
        fresh=st.booleans(),
    )
    def operator_breaks(self, call: int, kind: str, fresh: bool) -> None:
        if fresh:
            self.world.observe()
        self.world.calls = 0
        self.world.fault = (call, kind)
        self.do(self.world.one_run())
        self.world.fault = None

    @rule()
    def operator_restarts(self) -> None:
        self.world.start_operator()

    # -- end -----------------------------------------------------------------------------------------------------------

    def _converge(self) -> None:
        self._heal()
        for _ in range(4):
            self.world.observe()
            self.do(self.world.settle())
            self.world.clock.advance(130)
        self.do(self.world.settle())
        self.check_end(self.found())
        mark = self.world.mark
        self.do(self.world.settle())
        assert self.world.writes(mark) == [], "what is at rest is written to"

    def _heal(self) -> None:
        world = self.world
        world.fault = None
        world.agent.fail.clear()
        world.agent.capacity = True
        world.registry.down = world.registry.refuse_drops = ""
        world.lose_drop_answers = False
