"""The main job on the model: create, suspend, wake, release, delete, with every write counted."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from tests.model.world import World

pytestmark = pytest.mark.asyncio


async def up(world: World, **spec: object) -> None:
    world.apply(**spec)
    await world.settle()
    assert world.phase == "Running"


async def test_create_takes_four_writes(world: World) -> None:
    await up(world)
    assert world.writes() == ["patch set/demo", "create pod/demo-0", "patch/status set/demo", "patch/status set/demo"]
    assert world.annotation(keys.DELETE_VM_NAMES) == "vk-ns-demo-0"
    assert world.registry.requests == ["GET vk-ns-demo-0:hibernate"]
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.condition("Ready")["status"] == "True"


async def test_retain_suspend_and_unsuspend_take_three_writes_each(world: World) -> None:
    await up(world)
    world.agent.work("vk-ns-demo-0", "a")
    mark = world.mark
    world.edit(suspend=True)
    await world.settle()
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo", "patch/status set/demo"]
    assert world.phase == "Suspended"
    assert world.set()["status"]["agents"][0]["snapshotDigest"] == world.tag()
    assert world.memory() is None
    mark = world.mark
    world.edit(suspend=False)
    await world.settle()
    assert world.phase == "Running"
    assert world.writes(mark) == ["patch pod/demo-0", "patch/status set/demo", "patch/status set/demo"]
    assert world.memory() == ["a"]
    assert world.tag() is None
    assert "snapshotDigest" not in world.set()["status"]["agents"][0]


async def test_w35_release_takes_six_writes_and_wake_four(world: World) -> None:
    await up(world, hibernatePolicy="release")
    world.agent.work("vk-ns-demo-0", "a")
    mark = world.mark
    world.edit(suspend=True)
    await world.settle()
    assert world.phase == "Suspended"
    assert world.writes(mark) == [
        "patch pod/demo-0",
        "patch/status set/demo",
        "patch set/demo",
        "patch pod/demo-0",
        "delete pod/demo-0",
        "patch/status set/demo",
    ]
    assert world.pod() is None
    assert world.annotation(keys.HINT_NODE) == "node-a"
    mark = world.mark
    world.edit(suspend=False)
    await world.settle()
    assert world.phase == "Running"
    assert world.writes(mark) == [
        "patch/status set/demo",
        "create pod/demo-0",
        "patch set/demo",
        "patch/status set/demo",
    ]
    assert world.memory() == ["a"]
    assert world.tag() is None
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None


async def test_delete_takes_two_writes_and_collects_the_tags(world: World) -> None:
    await up(world, snapshotPolicy="never")
    world.edit(suspend=True)
    await world.settle()
    world.registry.tags[("vk-ns-demo-0", "latest")] = str(world.tag())
    mark = world.mark
    world.delete_set()
    await world.settle()
    assert world.writes(mark) == ["delete pod/demo-0", "patch set/demo"]
    assert world.registry.tags == {}
    assert world.api.list("set") == []
