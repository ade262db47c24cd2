"""The registry is written to only by the leader, and only while it leads (I9)."""

from __future__ import annotations

import asyncio
import math

import pytest

from cocoon_operator.api.answers import Absent, Answer, Done, Unknown, WriteAnswer
from cocoon_operator.engine.fence import FencedRegistry


class Registry:
    """Does everything, ``slow`` writes after some time."""

    def __init__(self, slow: float = 0.0) -> None:
        self.done: list[str] = []
        self._slow = slow

    async def probe(self, vm_name: str, reference: str) -> Answer:
        self.done.append(f"probe {vm_name}:{reference}")
        return Absent()

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        self.done.append(f"inspect {vm_name}:{reference}")
        return Absent()

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        await asyncio.sleep(self._slow)
        self.done.append(f"drop {vm_name}:{tag}")
        return Done()

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        await asyncio.sleep(self._slow)
        self.done.append(f"copy {vm_name}:{source} {tag}")
        return Done()


@pytest.mark.asyncio
async def test_a_leader_asks_and_writes() -> None:
    registry = Registry()
    fenced = FencedRegistry(registry, lambda: 5.0)
    assert await fenced.probe("vm", "hibernate") == Absent()
    assert await fenced.inspect("vm", "hibernate") == Absent()
    assert await fenced.drop("vm", "hibernate") == Done()
    assert await fenced.copy("vm", "hibernate", "orphan") == Done()
    assert registry.done == [
        "probe vm:hibernate",
        "inspect vm:hibernate",
        "drop vm:hibernate",
        "copy vm:hibernate orphan",
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("left", [0.0, -1.0, -math.inf])
async def test_i9_who_does_not_lead_asks_and_does_not_write(left: float) -> None:
    registry = Registry()
    fenced = FencedRegistry(registry, lambda: left)
    assert await fenced.probe("vm", "hibernate") == Absent()
    assert await fenced.drop("vm", "hibernate") == Unknown("not the leader: the drop of vm:hibernate was not sent")
    assert isinstance(await fenced.copy("vm", "hibernate", "orphan"), Unknown)
    assert registry.done == ["probe vm:hibernate"]


@pytest.mark.asyncio
async def test_i9_a_write_ends_with_the_lease_at_the_latest() -> None:
    registry = Registry(slow=5.0)
    fenced = FencedRegistry(registry, lambda: 0.02)
    assert await fenced.drop("vm", "hibernate") == Unknown("the Lease ended in the middle of the drop of vm:hibernate")
    assert isinstance(await fenced.copy("vm", "hibernate", "orphan"), Unknown)
    assert registry.done == []
