"""Sub-agents and toolboxes on the model, with every write counted."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World

pytestmark = pytest.mark.asyncio

BOXES = [
    {"name": "db", "image": "box", "mode": "run"},
    {"name": "vnc", "mode": "static", "staticIP": "10.1.1.1", "staticVMID": "x"},
]


async def up(world: World, replicas: int = 3, **spec: object) -> None:
    world.apply(agent={"replicas": replicas}, toolboxes=BOXES, **spec)
    await world.settle()
    assert world.phase == "Running", world.set()["status"]


async def test_writes_of_three_sub_agents_and_two_toolboxes(world: World) -> None:
    await up(world)
    made = [
        "create pod/demo-0",
        *(f"create pod/demo-{slot}" for slot in (1, 2, 3)),
        "create pod/demo-db",
        "create pod/demo-vnc",
    ]
    assert sorted(w for w in world.writes() if w.startswith("create")) == sorted(made)
    assert [w for w in world.writes() if not w.startswith("create")] == ["patch set/demo"] + [
        "patch/status set/demo"
    ] * 3
    assert world.memory("vk-ns-demo-1") == ["fork of vk-ns-demo-0"]


async def test_suspend_and_unsuspend(world: World) -> None:
    await up(world)
    world.agent.work("vk-ns-demo-2", "two")
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(suspend=True)
    await world.settle()
    assert world.phase == "Suspended", world.set()["status"]
    assert sorted(world.writes(mark)) == sorted(
        [*(f"patch pod/demo-{name}" for name in ("0", "1", "2", "3", "db", "vnc"))] + ["patch/status set/demo"] * 2
    )
    assert len(world.registry.requests) - requests == 5
    mark, requests = world.mark, len(world.registry.requests)
    world.edit(suspend=False)
    await world.settle()
    assert world.phase == "Running", world.set()["status"]
    assert world.memory("vk-ns-demo-2") == ["fork of vk-ns-demo-0", "two"]
    assert world.registry.tags == {}
    assert len(world.registry.requests) - requests == 10


async def test_scale_down_takes_tags_and_names_along(world: World) -> None:
    await up(world)
    assert world.annotation(keys.DELETE_VM_NAMES) == "vk-ns-demo-0,vk-ns-demo-1,vk-ns-demo-2,vk-ns-demo-3,vk-ns-demo-db"
    world.edit(agent={"replicas": 1}, toolboxes=[])
    await world.settle()
    assert world.phase == "Running"
    assert world.annotation(keys.DELETE_VM_NAMES) == "vk-ns-demo-0,vk-ns-demo-1"
    assert world.annotation(keys.REMOVING_VM_NAMES) is None
    assert [pod["metadata"]["name"] for pod in world.api.list("pod")] == ["demo-0", "demo-1"]


async def test_a_fork_whose_source_fell_asleep_first_does_not_hold_the_suspend(world: World) -> None:
    await up(world, replicas=0)
    world.edit(agent={"replicas": 1})
    await world.run()
    world.edit(suspend=True)
    await world.settle()
    assert world.phase == "Suspended", world.set()["status"]
    world.edit(suspend=False)
    await world.settle()
    assert world.phase == "Running", world.set()["status"]
    assert world.memory("vk-ns-demo-1") == ["fork of vk-ns-demo-0"]


async def test_migration(world: World) -> None:
    await up(world, replicas=1)
    world.agent.work("vk-ns-demo-0", "a")
    world.edit(nodeName="node-b")
    await world.settle()
    assert world.phase == "Running", world.set()["status"]
    pod = world.pod()
    assert pod is not None
    assert pod["spec"]["nodeName"] == "node-b"
    assert world.memory() == ["a"]
    assert world.tag() is None
