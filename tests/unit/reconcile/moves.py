"""Starting positions in the middle of a migration, shared by its scenario tests."""

from __future__ import annotations

from typing import Any

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import (
    annotations_of,
    up,
)


def node(world: World, pod: str = "demo-0") -> str:
    """The node that a pod is bound to."""
    found = world.pod(pod)
    assert found is not None, f"pod {pod} does not exist"
    return str(found["spec"].get("nodeName", ""))


def step(world: World, times: int, pod: str = "demo-0") -> None:
    """The node agent goes some small steps."""
    for _ in range(times):
        world.agent.step("ns", pod)


async def until(world: World, done: Any, *, limit: int = 60) -> None:
    """Operator and agent in turn, the agent one small step of main at a time, until something is so."""
    for _ in range(limit):
        if done():
            return
        await world.run()
        if done():
            return
        step(world, 1)
    raise AssertionError("it never happens")


def lifecycle(world: World) -> str:
    """What the node agent says of main."""
    return annotations_of(world).get(keys.LIFECYCLE_STATE, "") if world.pod() else ""


async def moving(world: World, target: str = "node-b", **spec: Any) -> None:
    """A set whose main agent was just asked to go to another node, and got its flag."""
    await up(world, **spec)
    world.edit(nodeName=target)
    await world.run()
    assert world.phase == "Migrating"
    assert annotations_of(world)[keys.HIBERNATE] == "true"


async def restoring(world: World, **spec: Any) -> str:
    """The same, saved; its new pod is bound to node-b, and the restore has begun. Returns the digest."""
    await moving(world, **spec)
    await until(world, lambda: lifecycle(world) == "creating" and node(world) == "node-b")
    assert annotations_of(world)[keys.RESTORE] == "true"
    return str(world.tag())
