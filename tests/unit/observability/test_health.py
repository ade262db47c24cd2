"""The servers of probes and metrics, and what a loop that is stuck looks like from outside."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest
import pytest_asyncio

from cocoon_devkit.ports import free_ports
from cocoon_operator.health import AddressInUseError, Health, Servers
from cocoon_operator.heartbeat import Heartbeat
from cocoon_operator.metrics import Metrics
from cocoon_operator.settingvalues import Address


class Desk:
    """Both servers on ports of their own."""

    def __init__(self) -> None:
        self.probes, self.metrics = free_ports(2)
        self.health = Health()
        self.servers = Servers()

    async def start(self) -> None:
        await self.servers.probes(Address("127.0.0.1", self.probes), self.health)
        await self.servers.metrics(Address("127.0.0.1", self.metrics), Metrics().text)

    async def probe(self, path: str) -> tuple[int, str]:
        return await fetch(self.probes, path)


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    await desk.start()
    yield desk
    await desk.servers.close()


@pytest.mark.asyncio
async def test_probes_and_metrics_are_served(desk: Desk) -> None:
    assert await desk.probe("/healthz") == (200, "ok")
    assert await desk.probe("/livez") == (200, "ok")
    assert await desk.probe("/readyz") == (503, "starting")
    desk.health.unready = lambda: ["pods not listed yet", "CocoonSets not listed yet"]
    assert await desk.probe("/readyz") == (503, "pods not listed yet\nCocoonSets not listed yet")
    desk.health.unready = list
    assert await desk.probe("/readyz") == (200, "ok")
    assert "leader_election_master_status" in (await fetch(desk.metrics, "/metrics"))[1]
    assert (await fetch(desk.metrics, "/readyz"))[0] == 404
    assert (await desk.probe("/metrics"))[0] == 404


@pytest.mark.asyncio
async def test_an_address_can_be_off_but_not_taken(desk: Desk) -> None:
    await desk.servers.metrics(None, Metrics().text)
    with pytest.raises(AddressInUseError, match=f"PROBE_ADDR=127.0.0.1:{desk.metrics}: cannot listen there"):
        await desk.servers.probes(Address("127.0.0.1", desk.metrics), desk.health)


@pytest.mark.asyncio
async def test_a_loop_that_stood_still_for_half_a_minute_is_not_alive(desk: Desk) -> None:
    still = 30.0
    desk.health.silence = lambda: still
    assert await desk.probe("/livez") == (200, "ok")
    still = 31.0
    assert await desk.probe("/livez") == (503, "the event loop stood still for 31 s")
    assert await desk.probe("/healthz") == (503, "the event loop stood still for 31 s")


def ask(port: int, seconds: float) -> str:
    """What a kubelet sees that waits so long."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=seconds) as answer:
            return str(answer.status)
    except (TimeoutError, urllib.error.URLError):
        return "no answer"


@pytest.mark.asyncio
async def test_a_loop_that_is_stuck_answers_no_probe_and_its_lag_is_seen_afterwards(desk: Desk) -> None:
    late = asyncio.Event()

    def lagged(seconds: float) -> None:
        if seconds > 0.1:
            late.set()

    heartbeat = Heartbeat(lagged, period=0.01)
    desk.health.silence = heartbeat.silence
    beating = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0)
    with ThreadPoolExecutor(1) as outside:
        assert outside.submit(ask, desk.probes, 0.2).result(10) == "no answer"
    await asyncio.wait_for(late.wait(), 10)
    assert await asyncio.to_thread(ask, desk.probes, 10) == "200"
    beating.cancel()


@pytest.mark.asyncio
async def test_a_beat_measures_how_late_it_is() -> None:
    now = 100.0
    lags: asyncio.Queue[float] = asyncio.Queue()
    heartbeat = Heartbeat(lags.put_nowait, period=0.001, timer=lambda: now)
    beating = asyncio.create_task(heartbeat.run())
    await asyncio.sleep(0)
    now = 107.001
    assert heartbeat.silence() == pytest.approx(7.0)
    assert await lags.get() == pytest.approx(7.0)
    beating.cancel()
    assert heartbeat.silence() == 0.0
