"""Plain HTTP for the kubelet and for Prometheus.

``/healthz`` and ``/livez`` answer as long as the event loop turns: a loop that is blocked answers nobody, and one that was for
half a minute says so once. ``/readyz`` answers 200 when this replica sees the cluster as it is, whether it leads or not
(W-42, S312).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from cocoon_operator.settingvalues import Address

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STILL: Final = 30.0
"""Seconds. Three probes of a kubelet that fail end the process; this is not a hair trigger."""


class AddressInUseError(Exception):
    """A port cannot be listened on; the message says which setting names it."""


@dataclass(slots=True)
class Health:
    """What the probes are answered with: nothing is wrong, or the reasons why something is.

    ``silence`` tells for how many seconds the event loop stood still; ``unready`` is replaced when the engine is there.
    """

    silence: Callable[[], float] = lambda: 0.0
    unready: Callable[[], list[str]] = lambda: ["starting"]

    async def alive(self, _: web.Request) -> web.Response:
        """Answer whether the event loop turns."""
        still = self.silence()
        return _answer([f"the event loop stood still for {still:.0f} s"] if still > _STILL else [])

    async def ready(self, _: web.Request) -> web.Response:
        """Answer whether the caches are filled and fresh."""
        return _answer(self.unready())


class Servers:
    """The probe server and the metrics server; both may be switched off (address ``0``)."""

    def __init__(self) -> None:
        self._runners: list[web.AppRunner] = []

    async def probes(self, address: Address | None, health: Health) -> None:
        """Serve the probes."""
        routes: dict[str, Handler] = {"/healthz": health.alive, "/livez": health.alive, "/readyz": health.ready}
        await self._serve(address, routes, "PROBE_ADDR")

    async def metrics(self, address: Address | None, text: Callable[[], bytes]) -> None:
        """Serve ``/metrics``."""

        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

        await self._serve(address, {"/metrics": answer}, "METRICS_ADDR")

    async def close(self) -> None:
        """Stop serving."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _serve(self, address: Address | None, routes: dict[str, Handler], setting: str) -> None:
        if address is None:
            return
        app = web.Application()
        for path, handler in routes.items():
            app.router.add_get(path, handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, address.host or None, address.port).start()
        except OSError as error:
            raise AddressInUseError(f"{setting}={address}: cannot listen there ({error.strerror or error})") from error


def _answer(reasons: list[str]) -> web.Response:
    return web.Response(text="\n".join(reasons) or "ok", status=503 if reasons else 200)
