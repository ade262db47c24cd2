"""Faults: how often they strike, whom they meet, and what a barrier does (contract, section 6)."""

from __future__ import annotations

import asyncio

import pytest

from cocoon_devkit.agent.faults import FaultError, Faults


@pytest.mark.asyncio
@pytest.mark.scenario("N027")
async def test_a_counted_fault_heals() -> None:
    faults = Faults()
    faults.arm("vm.boot", times=2, message="out of memory")
    for _ in range(2):
        with pytest.raises(FaultError, match="out of memory"):
            await faults.hit("vm.boot.clone", "a")
    await faults.hit("vm.boot.clone", "a")
    assert faults.view()[0]["hits"] == 2


@pytest.mark.asyncio
@pytest.mark.scenario("N027")
async def test_a_fault_meets_its_point_and_what_is_below_it_for_its_vm() -> None:
    faults = Faults()
    faults.arm("registry.get", vm="a")
    with pytest.raises(FaultError):
        await faults.hit("registry.get.manifest", "a")
    await faults.hit("registry.get.manifest", "b")
    await faults.hit("registry.getter", "a")
    await faults.hit("registry", "a")


@pytest.mark.asyncio
@pytest.mark.scenario("N177")
async def test_a_barrier_holds_until_it_is_released_and_is_open_then() -> None:
    faults = Faults()
    barrier = faults.arm("delete", fail=False, hold=True)
    waiter = asyncio.ensure_future(faults.hit("delete"))
    await asyncio.sleep(0)
    assert barrier.view()["waiting"] == 1
    assert faults.release(barrier.id)
    await waiter
    await faults.hit("delete")
    assert not faults.release(99)


@pytest.mark.asyncio
@pytest.mark.scenario("N177")
async def test_whoever_waits_at_a_cleared_barrier_goes_on() -> None:
    faults = Faults()
    faults.arm("delete", fail=False, hold=True)
    waiter = asyncio.ensure_future(faults.hit("delete"))
    await asyncio.sleep(0)
    faults.clear()
    await waiter
    assert faults.view() == []


@pytest.mark.asyncio
@pytest.mark.scenario("N023", "N018")
async def test_a_condition_is_active_until_it_is_cleared_and_counts_no_hits() -> None:
    faults = Faults()
    fault = faults.arm("ip", vm="a")
    assert faults.active("ip", "a")
    assert not faults.active("ip", "b")
    assert fault.hits == 0
    faults.clear(fault.id)
    assert not faults.active("ip", "a")


@pytest.mark.asyncio
@pytest.mark.scenario("N024")
async def test_a_fault_heals_after_its_time() -> None:
    faults = Faults()
    faults.arm("ip", seconds=-1.0)
    faults.arm("probe", seconds=60.0)
    assert not faults.active("ip")
    assert faults.active("probe")


@pytest.mark.asyncio
@pytest.mark.scenario("N018")
async def test_a_counted_condition_holds_for_that_many_looks() -> None:
    faults = Faults()
    faults.arm("probe", times=2)
    assert [faults.strikes("probe", "a") for _ in range(3)] == [True, True, False]


@pytest.mark.asyncio
@pytest.mark.scenario("N055")
async def test_a_fault_can_play_an_answer_of_the_api_server() -> None:
    faults = Faults()
    faults.arm("patch.annotations", status=409)
    with pytest.raises(FaultError) as struck:
        await faults.hit("patch.annotations.lifecycle")
    assert struck.value.status == 409


@pytest.mark.asyncio
@pytest.mark.scenario("N192")
async def test_whoever_comes_to_a_point_that_kills_never_goes_on() -> None:
    faults, deaths = Faults(), []
    faults.on_kill = lambda: deaths.append(1)
    faults.arm("lifecycle.ready", kill=True, times=1)
    victim = asyncio.ensure_future(faults.hit("lifecycle.ready"))
    await asyncio.sleep(0)
    assert (deaths, victim.done()) == ([1], False)
    victim.cancel()
    await faults.hit("lifecycle.ready")
