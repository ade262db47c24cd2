"""A CocoonHibernation on one pod of a set that runs: asleep, awake again, and what is written for it (contract 5)."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from tests.model.world import World
from tests.unit.reconcile.staging import annotations_of, asked, hibernation, rest, roles_up, up, vm

pytestmark = pytest.mark.asyncio


def stored(world: World, name: str = "demo-0") -> dict[str, Any]:
    found = world.api.get("hibernation", "ns", name)
    assert found is not None
    return found


def phase(world: World, name: str = "demo-0") -> str:
    return str(stored(world, name)["status"].get("phase", ""))


def wants(world: World, desire: str, name: str = "demo-0") -> None:
    world.api.patch("hibernation", "ns", name, {"spec": {"desire": desire}}, by="user")


@pytest.mark.scenario("S262", "S273", "S276", "S286")
async def test_it_puts_its_vm_to_sleep(world: World) -> None:
    await up(world)
    hibernation(world)
    mark = world.mark
    requests = len(world.registry.requests)
    await rest(world)
    assert phase(world) == "Hibernated"
    assert world.tag() is not None
    assert world.memory() is None
    assert annotations_of(world)[keys.HIBERNATE] == "true"
    assert world.condition("SnapshotCurrent")["reason"] == "KeptAsleep"
    assert world.condition("Ready")["reason"] == "HeldByHibernation"
    assert world.condition("Progressing")["status"] == "False"
    assert world.writes(mark) == [
        "patch hibernation/demo-0",
        "patch pod/demo-0",
        "patch/status set/demo",
        "patch/status hibernation/demo-0",
        "patch/status set/demo",
        "patch/status hibernation/demo-0",
    ]
    assert asked(world, requests) == ["HEAD vk-ns-demo-0:hibernate"]


@pytest.mark.scenario("S293")
async def test_it_wakes_its_vm(world: World) -> None:
    await up(world)
    world.agent.work("vk-ns-demo-0", "later")
    hibernation(world)
    await rest(world)
    wants(world, "Wake")
    mark = world.mark
    await rest(world)
    assert phase(world) == "Active"
    assert "later" in (world.memory() or [])
    assert world.tag() is None
    assert world.phase == "Running"
    assert world.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    assert world.writes(mark) == [
        "patch pod/demo-0",
        "patch/status set/demo",
        "patch/status hibernation/demo-0",
        "patch/status set/demo",
        "patch/status hibernation/demo-0",
    ]


async def test_deleting_it_wakes_the_vm(world: World) -> None:
    await up(world)
    hibernation(world)
    await rest(world)
    world.api.delete("hibernation", "ns", "demo-0", by="user")
    await rest(world)
    assert world.api.get("hibernation", "ns", "demo-0") is None
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


async def test_one_sub_agent_sleeps_and_the_others_go_on(world: World) -> None:
    await roles_up(world, 2)
    hibernation(world, "demo-1")
    await rest(world)
    assert phase(world, "demo-1") == "Hibernated"
    assert sorted(world.agent.vms) == [vm(0), vm(2)]
    requests = len(world.registry.requests)
    wants(world, "Wake", "demo-1")
    await rest(world)
    assert phase(world, "demo-1") == "Active"
    assert world.phase == "Running"
    assert asked(world, requests) == ["HEAD vk-ns-demo-1:hibernate", "DELETE vk-ns-demo-1:hibernate"]


@pytest.mark.parametrize("policy", ["retain", "release"])
async def test_a_suspended_set_that_is_resumed_leaves_it_asleep(world: World, policy: str) -> None:
    await up(world, hibernatePolicy=policy)
    hibernation(world)
    await rest(world)
    world.edit(suspend=True)
    await rest(world)
    assert (world.phase, phase(world)) == ("Suspended", "Hibernated")
    world.edit(suspend=False)
    await rest(world)
    assert phase(world) == "Hibernated"
    assert world.memory() is None
    assert world.condition("Ready")["reason"] == "HeldByHibernation"
    wants(world, "Wake")
    await rest(world)
    assert (world.phase, world.memory(), world.tag(), phase(world)) == ("Running", ["work"], None, "Active")
    assert world.annotation(keys.HINT_NODE) is None
    assert world.annotation(keys.SNAPSHOT_DIGESTS) is None
