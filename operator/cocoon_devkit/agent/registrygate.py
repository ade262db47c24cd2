"""A gate in front of the registry, with a door for each client, to spoil what passes through it (F-8).

The clients speak plain HTTP to their door; what they get is the real registry's answer, unless a rule says otherwise. So
the branches of a client are met by real answers, apart for the node agent and the operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

CLIENTS: Final = ("agent", "operator")
SPOILT: Final = ("cut", "hang", "truncate", "digest")
"""What a rule can do besides answering with a status.

``cut`` ends the connection without an answer, ``hang`` never answers, ``truncate`` ends it in the middle of the body,
``digest`` changes one byte of the body.
"""
_PER_CONNECTION: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})


@dataclass(slots=True)
class Rule:
    """One rule. "" means any; ``path`` is a part of the path, such as ``/manifests/hibernate``; ``times`` None means always.

    ``answer`` is an HTTP status or one of :data:`SPOILT`. Raises :class:`ValueError` for what makes no sense.
    """

    answer: int | str
    client: str = ""
    method: str = ""
    path: str = ""
    times: int | None = None
    hits: int = 0
    id: int = 0

    def __post_init__(self) -> None:
        if self.client not in ("", *CLIENTS):
            raise ValueError(f"a client is one of {', '.join(CLIENTS)}, not {self.client!r}")
        if not (self.answer in SPOILT or (isinstance(self.answer, int) and 400 <= self.answer < 600)):
            raise ValueError(f"an answer is a status from 400 on or one of {', '.join(SPOILT)}, not {self.answer!r}")

    def meets(self, client: str, request: web.BaseRequest) -> bool:
        """Whether the rule is for this request."""
        if self.times is not None and self.hits >= self.times:
            return False
        return self.client in ("", client) and self.method in ("", request.method) and self.path in request.path


class RegistryGate:
    """After :meth:`start` the addresses in ``doors`` stand for ``registry``, which is ``host:port``; :meth:`close` ends it."""

    def __init__(self, registry: str) -> None:
        self._registry = registry
        self._rules: dict[int, Rule] = {}
        self._next = 1
        self._runners: dict[str, web.ServerRunner] = {}
        self._cleared = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self.doors: dict[str, str] = {}

    async def start(self) -> None:
        """Open a door for every client."""
        # What is compressed has another digest than what is not: bytes pass as they are.
        self._session = aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=60))
        for client in CLIENTS:
            await self.open(client)

    async def close(self) -> None:
        """Shut every door and let everybody go."""
        self.clear()
        for client in list(self._runners):
            await self.shut(client)
        if self._session is not None:
            await self._session.close()

    async def open(self, client: str) -> None:
        """Let a client's door listen, on the port that it had before. Nothing happens when it does already."""
        if client in self._runners:
            return
        known = self.doors.get(client, "")
        runner = web.ServerRunner(web.Server(partial(self._pass, client), access_log=None), shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(known.rpartition(":")[2] or 0)).start()
        self._runners[client] = runner
        host, port = runner.addresses[0][:2]
        self.doors[client] = f"{host}:{port}"

    async def shut(self, client: str) -> None:
        """Refuse a client's connections. Raises :class:`ValueError` for a client without a door."""
        if client not in self.doors:
            raise ValueError(f"a client is one of {', '.join(CLIENTS)}, not {client!r}")
        runner = self._runners.pop(client, None)
        if runner is not None:
            await runner.cleanup()

    # -- rules --------------------------------------------------------------------------------------------------------

    def add(self, rule: Rule) -> Rule:
        """Take a rule into force; of several that meet a request the oldest counts."""
        rule.id, self._next = self._next, self._next + 1
        self._rules[rule.id] = rule
        return rule

    def view(self) -> list[dict[str, object]]:
        """Return the rules with how often each was met."""
        return [asdict(rule) for rule in self._rules.values()]

    def clear(self, number: int | None = None) -> None:
        """Take one rule or all out of force; whoever was left hanging is let go without an answer."""
        for each in [number] if number is not None else list(self._rules):
            self._rules.pop(each, None)
        self._cleared.set()
        self._cleared = asyncio.Event()

    # -- passing ------------------------------------------------------------------------------------------------------

    async def _pass(self, client: str, request: web.BaseRequest) -> web.StreamResponse:
        rule = next((rule for rule in self._rules.values() if rule.meets(client, request)), None)
        try:
            return await (self._forward(request) if rule is None else self._obey(rule, request))
        except aiohttp.ClientError:
            # The registry is down, and so it is for the client.
            return _cut(request)

    async def _obey(self, rule: Rule, request: web.BaseRequest) -> web.StreamResponse:
        rule.hits += 1
        if isinstance(rule.answer, int):
            body = {"errors": [{"code": "UNKNOWN", "message": "the gate says so"}]}
            return web.json_response(body, status=rule.answer)
        if rule.answer == "hang":
            await self._cleared.wait()
        if rule.answer in ("cut", "hang"):
            return _cut(request)
        return await _spoil(request, await self._forward(request), rule.answer)

    async def _forward(self, request: web.BaseRequest) -> web.Response:
        assert self._session is not None
        async with self._session.request(
            request.method,
            URL(f"http://{self._registry}{request.raw_path}", encoded=True),
            # With the host that the client asked for, the registry sends it back to its door for an upload.
            headers={**_passing(request.headers), "Host": request.host},
            data=await request.read() or None,
            allow_redirects=False,
        ) as answer:
            body = b"" if request.method == "HEAD" else await answer.read()
            headers = _passing(answer.headers)
            if request.method == "HEAD" and "Content-Length" in answer.headers:
                headers["Content-Length"] = answer.headers["Content-Length"]
            return web.Response(status=answer.status, headers=headers, body=body)


def _passing(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are not about one connection alone."""
    return {name: value for name, value in headers.items() if name.lower() not in _PER_CONNECTION}


def _cut(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _spoil(request: web.BaseRequest, answer: web.Response, how: str) -> web.StreamResponse:
    body = bytes(answer.body) if isinstance(answer.body, bytes) else b""
    if how == "digest":
        changed = bytes([body[0] ^ 1]) + body[1:] if body else body
        return web.Response(status=answer.status, headers=_passing(answer.headers), body=changed)
    half = web.StreamResponse(status=answer.status, headers=_passing(answer.headers))
    half.content_length = len(body)
    await half.prepare(request)
    await half.write(body[: len(body) // 2])
    return _cut(request)
