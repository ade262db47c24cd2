"""A migration under two edits, and under a fault, at every step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.model.judged import JudgedWorld
from tests.unit.reconcile.moves import node
from tests.unit.reconcile.staging import (
    judged_rest,
    look,
    restless,
    up,
)

pytestmark = pytest.mark.asyncio


FLIPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"nodeName": "node-a"}, {"nodeName": "node-b"}),
    ({"nodeName": "node-a"}, {"nodeName": None}),
    ({"nodeName": None}, {"nodeName": "node-a"}),
    ({"nodeName": "node-c"}, {"nodeName": "node-a"}),
    ({"nodeName": "node-b"}, {"nodeName": "node-c"}),
    ({"suspend": True}, {"suspend": False}),
    ({"suspend": False}, {"suspend": True}),
    ({"nodeName": "node-a"}, {"suspend": True}),
    ({"suspend": True}, {"suspend": False, "nodeName": "node-a"}),
    ({"suspend": True, "hibernatePolicy": "release"}, {"suspend": True, "nodeName": "node-c"}),
    ({"agent": {"network": "blue"}}, {"nodeName": "node-a"}),
]


@pytest.mark.scenario("S205", "S206", "S208", "S211", "S213")
@pytest.mark.parametrize(("first", "last"), FLIPS)
async def test_two_edits_at_every_step_of_a_migration_end_where_the_last_one_says(
    first: dict[str, Any], last: dict[str, Any]
) -> None:
    """After 0, 1, 2, ... small steps of operator and agent, until the migration is over; then a wake, if it sleeps."""
    for steps in range(60):
        world = JudgedWorld()
        world.agent.works = True
        world.agent.nodes.append("node-c")
        await up(world)
        world.edit(nodeName="node-b")
        over = await restless(world, steps) if steps else False
        world.edit(**first)
        world.edit(**last)
        await judged_rest(world)
        where = f"after {steps} steps"
        spec = world.set()["spec"]
        if spec.get("suspend"):
            assert (world.phase, world.agent.vms) == ("Suspended", {}), where
            world.edit(suspend=False)
            await judged_rest(world)
        assert world.phase == "Running", where
        assert not spec.get("nodeName") or node(world) == spec["nodeName"], where
        memory = world.memory() or []
        assert spec["agent"].get("network") or "work" in memory, where
        assert world.registry.tags == {}, where
        if over:
            return
    raise AssertionError("the migration does not end")


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost before", "lost after"])
async def test_a_migration_survives_a_fault_at_every_call(kind: str) -> None:
    """The operator dies, or an answer is lost, at the first, second, ... call of a migration."""
    for call in range(1, 60):
        world = JudgedWorld()
        world.agent.works = True
        await up(world)
        world.edit(nodeName="node-b")
        world.calls = 0
        world.fault = (call, kind)
        for _ in range(12):
            world.observe()
            await world.one_run()
            world.agent.run()
            look(world)
        broke, world.fault = world.fault is None, None
        await judged_rest(world)
        where = f"{kind} call {call}"
        assert (world.phase, node(world), world.tag()) == ("Running", "node-b", None), where
        assert "work" in (world.memory() or []), where
        if not broke and world.calls < call:
            return
    raise AssertionError("a migration has no end of calls")
