"""How the histories of test_gaps_*.py go on for long, and what has to be true of their ends."""

from __future__ import annotations

from typing import Any

from cocoon_operator.api import keys
from tests.model.judged import JudgedWorld
from tests.model.world import World
from tests.unit.reconcile.staging import rest, vm

SUB: str = vm(1)


async def long_rest(world: World) -> None:
    """A quarter of an hour, so that whatever is tried again or given up after some time has been."""
    for _ in range(8):
        await rest(world)
        world.clock.advance(130)
    await rest(world)


async def judged_rounds(world: JudgedWorld, rounds: int) -> None:
    """Operator and agent in turn, judged after each; the registry and the cluster may fail on the way."""
    assert world.judge is not None
    for _ in range(rounds):
        world.observe()
        await world.one_run()
        world.agent.run()
        world.judge.look()


async def quiet(world: World) -> None:
    """Nothing is written any more."""
    mark = world.mark
    await long_rest(world)
    assert world.writes(mark) == []


def current(world: World) -> tuple[str, str]:
    """Status and reason of ``SnapshotCurrent``."""
    found = world.condition("SnapshotCurrent")
    return found["status"], found["reason"]


def tags(world: World) -> list[str]:
    """Every tag of every repository, as ``<vm>:<tag>``."""
    return sorted(f"{name}:{tag}" for name, tag in world.registry.tags)


def sleeping(*vm_names: str) -> list[str]:
    """The tags that these VMs sleep by."""
    return [f"{name}:{keys.TAG_HIBERNATE}" for name in vm_names]


def digest_on_record(world: World, slot: int) -> Any:
    """What the set's status says of a slot's latest save."""
    return next(agent.get("snapshotDigest") for agent in world.set()["status"]["agents"] if agent["slot"] == slot)


async def rests_awake(world: World) -> None:
    """Everything runs, no tag is left, the status says so, and nothing is written any more."""
    await long_rest(world)
    assert world.phase == "Running"
    assert current(world) == ("True", "NoSnapshot")
    assert tags(world) == []
    await quiet(world)
