"""Live snapshots and the operator (W-22, N137): it leaves them alone, whatever its set is just doing.

Two worlds live the same life, pass by pass. In one of them somebody asks for a snapshot on every pod before every pass, and
the agent answers the last request. The operator must do the same in both, and its queue must not notice the difference.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.pod import pod_from_object
from cocoon_operator.api.snapshot import PUSHED, SnapshotStatus
from cocoon_operator.engine.triggers import pod_fingerprint
from tests.model.world import OPERATOR, World
from tests.unit.reconcile.staging import RUN_BOX, STATIC_BOX, hibernation, pod_fails

pytestmark = pytest.mark.asyncio

_OWN: Final = (keys.SNAPSHOT_REQUEST, keys.SNAPSHOT_STATUS)
_UID: Final = re.compile(r"uid-\d+")
_SPEC: Final[dict[str, Any]] = {"agent": {"replicas": 1}, "toolboxes": [RUN_BOX, STATIC_BOX]}


class Life:
    """A set's life in one world; every pass of its operator is on record in ``passes``."""

    def __init__(self, *, asked: bool) -> None:
        self.world = World()
        self.asked = asked
        self.passes: list[Any] = []
        self.seen: set[tuple[str, str]] = set()
        self._requests = 0
        self._written: dict[str, dict[str, str]] = {}

    async def settle(self) -> None:
        """Let operator and agent act in turn, the agent by single steps, until both are at rest."""
        for _ in range(400):
            await self._pass()
            if not any(self.world.agent.step("ns", pod["metadata"]["name"]) for pod in self.world.api.list("pod")):
                wait = self.world.outcome.requeue_after
                if wait is None or wait > 15:
                    return
                self.world.clock.advance(wait)
        raise AssertionError("the model does not come to rest")

    async def _pass(self) -> None:
        self.world.observe()
        for pod in self.world.api.list("pod"):
            self.seen.add(
                (pod["metadata"]["name"], pod["metadata"].get("annotations", {}).get(keys.LIFECYCLE_STATE, ""))
            )
        if self.asked:
            self._ask()
        mark, told = self.world.mark, len(self.world.recorder.events)
        outcome = await self.world.run()
        writes = [write for write in self.world.api.writes[mark:] if write.by == OPERATOR]
        self.passes.append(
            (
                [(str(write), _UID.sub("uid", repr(write.body))) for write in writes],
                outcome.requeue_after,
                repr(outcome.error),
                self.world.recorder.events[told:],
                len(self.world.registry.requests),
            )
        )

    def _ask(self) -> None:
        """Ask anew on every pod, with the answer to the request before, and compare what the queue looks at."""
        for pod in self.world.api.list("pod"):
            self._requests += 1
            answer = SnapshotStatus(f"team/img:s{self._requests - 1}", PUSHED).to_patch()
            notes = {keys.SNAPSHOT_REQUEST: f"team/img:s{self._requests}", **answer}
            before = pod_fingerprint(pod_from_object(pod))
            after = self.world.api.patch(
                "pod", "ns", pod["metadata"]["name"], {"metadata": {"annotations": notes}}, by="user"
            )
            assert pod_fingerprint(pod_from_object(after)) == before, "the set would run for it"
            self._written[pod["metadata"]["uid"]] = {key: value for key, value in notes.items() if value is not None}

    def check_pods(self) -> None:
        """What was written last is still on each pod that lives, and on no other one."""
        for pod in self.world.api.list("pod"):
            notes = pod["metadata"]["annotations"]
            assert {key: notes[key] for key in _OWN if key in notes} == self._written[pod["metadata"]["uid"]]


# -- what sets do ------------------------------------------------------------------------------------------------------


async def run(life: Life) -> None:
    life.world.apply(**_SPEC)
    await life.settle()


async def retain(life: Life) -> None:
    await run(life)
    await suspend_and_wake(life)


async def release(life: Life) -> None:
    life.world.apply(hibernatePolicy="release")
    await life.settle()
    await suspend_and_wake(life)


async def suspend_and_wake(life: Life) -> None:
    life.world.edit(suspend=True)
    await life.settle()
    assert life.world.phase == "Suspended"
    life.world.edit(suspend=False)
    await life.settle()
    assert life.world.phase == "Running"


async def turn_around(life: Life) -> None:
    """A suspend that is taken back in its middle."""
    await run(life)
    life.world.edit(suspend=True)
    for _ in range(2):
        await life._pass()
        life.world.agent.step("ns", "demo-0")
    life.world.edit(suspend=False)
    await life.settle()


async def migrate(life: Life) -> None:
    await run(life)
    life.world.edit(nodeName="node-b")
    await life.settle()


async def rebuild(life: Life) -> None:
    await run(life)
    for name in ("demo-1", "demo-db"):
        pod_fails(life.world, name)
    await life.settle()


async def edit(life: Life) -> None:
    """Edits that are patched in place, one that makes the VM again, and one of a sleeping VM."""
    await run(life)
    life.world.edit(snapshotPolicy="never", agent={"connType": "vnc"})
    await life.settle()
    life.world.edit(agent={"image": "other"})
    await life.settle()
    life.world.edit(suspend=True)
    await life.settle()
    life.world.edit(suspend=False, agent={"storage": "20Gi"})
    await life.settle()


async def fail(life: Life) -> None:
    """A save, then a wake that do not work at first."""
    await run(life)
    life.world.agent.fail.add("push")
    life.world.edit(suspend=True)
    await life.settle()
    life.world.agent.fail = {"wake"}
    await life.settle()
    life.world.edit(suspend=False)
    await life.settle()
    life.world.agent.fail = set()
    await life.settle()


async def scale_down(life: Life) -> None:
    await run(life)
    life.world.edit(agent={"replicas": 0}, toolboxes=[])
    await life.settle()


async def hibernate(life: Life) -> None:
    """One pod is put to sleep by a CocoonHibernation, and woken."""
    await run(life)
    hibernation(life.world)
    await life.settle()
    life.world.api.delete("hibernation", "ns", "demo-0", by="user")
    await life.settle()


MAIN: Final = "demo-0"
_SLEPT: Final = {(MAIN, "hibernating"), (MAIN, "hibernated")}
JOURNEYS: Final[dict[Callable[[Life], Awaitable[None]], set[tuple[str, str]]]] = {
    run: {(MAIN, "creating"), (MAIN, "ready"), ("demo-1", "ready"), ("demo-vnc", "ready")},
    retain: _SLEPT,
    release: _SLEPT,
    turn_around: {(MAIN, "hibernating")},
    migrate: _SLEPT,
    rebuild: {("demo-1", "creating"), ("demo-db", "creating")},
    edit: _SLEPT,
    fail: {(MAIN, "failed"), *_SLEPT},
    scale_down: {("demo-1", "ready")},
    hibernate: _SLEPT,
}
"""What sets do, and the lifecycles that a pod must have been seen in on the way, or the journey proves nothing."""


@pytest.mark.scenario("N137")
@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.__name__)
async def test_w22_requests_and_answers_change_nothing(journey: Callable[[Life], Awaitable[None]]) -> None:
    plain, asked = Life(asked=False), Life(asked=True)
    await journey(plain)
    await journey(asked)
    assert JOURNEYS[journey] <= asked.seen
    assert asked.passes == plain.passes
    asked.check_pods()
    written = [write for write in asked.world.api.writes if write.by == OPERATOR]
    assert not [write for write in written if any(key in repr(write.body) for key in _OWN)]
