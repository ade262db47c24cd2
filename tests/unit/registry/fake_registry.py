"""A registry on 127.0.0.1 that misbehaves when told to: every HTTP answer a client can meet, in any order."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from aiohttp import web

from cocoon_operator.clients.registry import RegistryAddress

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MARK = {"Docker-Distribution-Api-Version": "registry/2.0"}
USER, PASSWORD = "operator", "s3cret-pass:word"

Fault: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def digest_of(body: bytes) -> str:
    return "sha256:" + hashlib.sha256(body).hexdigest()


def manifest(base_image: str = "", note: str = "") -> bytes:
    annotations = {"note": note, **({"cocoonstack.snapshot.baseimage": base_image} if base_image else {})}
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "annotations": annotations}).encode()


def answer(status: int, headers: dict[str, str] | None = None, body: bytes = b"", *, mark: bool = True) -> Fault:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={**(MARK if mark else {}), **(headers or {})}, body=body)

    return respond


def errors(status: int, code: str, *, mark: bool = False) -> Fault:
    body = json.dumps({"errors": [{"code": code, "message": "free text"}]}).encode()
    return answer(status, {"Content-Type": "application/json"}, body, mark=mark)


async def break_off(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@dataclass
class Seen:
    """A request that arrived."""

    method: str
    path: str
    authorization: str
    accept: str
    query: list[tuple[str, str]] = field(default_factory=list)
    form: dict[str, str] = field(default_factory=dict)


class FakeRegistry:
    """``script[kind]`` holds faults for the next requests of a kind, ``always[kind]`` one for all.

    Kinds are ``ping`` (/v2/), ``token``, and the methods of manifest requests. ``auth`` is "", "basic" or "bearer".
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.script: dict[str, deque[Fault]] = defaultdict(deque)
        self.always: dict[str, Fault] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.requests: list[Seen] = []
        self.peers: set[object] = set()
        self.auth = ""
        self.mark = True
        self.valid_tokens: set[str] = set()
        self.open_token_service = False
        self.lifetime: object = 300
        self._issued = 0
        self._tls = tls
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def address(self) -> RegistryAddress:
        return RegistryAddress(f"127.0.0.1:{self.port}", "base")

    @property
    def base(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def put(self, vm: str, tag: str, body: bytes, content_type: str = OCI_MANIFEST) -> str:
        self.manifests[f"base/{vm}", tag] = self.manifests[f"base/{vm}", digest_of(body)] = (content_type, body)
        return digest_of(body)

    def count(self) -> Counter[str]:
        return Counter(self._kind(seen.method, seen.path) for seen in self.requests)

    def seen(self, kind: str) -> list[Seen]:
        return [seen for seen in self.requests if self._kind(seen.method, seen.path) == kind]

    async def hang(self, _: web.Request) -> web.StreamResponse:
        await self._released.wait()
        return web.Response(status=503)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        assert self._runner is not None
        await self._runner.cleanup()

    @staticmethod
    def _kind(method: str, path: str) -> str:
        return {"/v2/": "ping", "/token": "token"}.get(path, method)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()} if request.path == "/token" else {}
        seen = Seen(
            request.method,
            request.path,
            request.headers.get("Authorization", ""),
            request.headers.get("Accept", ""),
            list(request.query.items()),
            form,
        )
        self.requests.append(seen)
        self.peers.add(request.transport)
        kind = self._kind(request.method, request.path)
        if self.script[kind]:
            return await self.script[kind].popleft()(request)
        if kind in self.always:
            return await self.always[kind](request)
        if kind == "token":
            return self._token(seen)
        refusal = self._refusal(seen)
        if refusal is not None:
            return refusal
        response = await self._answer(kind, request)
        if self.mark:
            response.headers.update(MARK)
        return response

    def _refusal(self, seen: Seen) -> web.Response | None:
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.auth == "basic" and seen.authorization != basic:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="here"', **MARK})
        if self.auth == "bearer" and seen.authorization.removeprefix("Bearer ") not in self.valid_tokens:
            challenge = f'Bearer realm="{self.base}/token",service="registry.test"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge, **MARK})
        return None

    def _token(self, seen: Seen) -> web.Response:
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        by_refresh = seen.form.get("refresh_token") == PASSWORD
        if not (self.open_token_service or by_refresh or seen.authorization == basic):
            return web.Response(status=401)
        self._issued += 1
        token = f"issued-token-{self._issued}"
        self.valid_tokens.add(token)
        return web.json_response({"token": token, "expires_in": self.lifetime})

    async def _answer(self, kind: str, request: web.Request) -> web.Response:
        if kind == "ping":
            return web.Response(status=200)
        repository, _, reference = request.path.removeprefix("/v2/").partition("/manifests/")
        found = self.manifests.get((repository, reference))
        if kind == "PUT":
            body = await request.read()
            self.manifests[repository, reference] = (request.headers["Content-Type"], body)
            return web.Response(status=201, headers={"Docker-Content-Digest": digest_of(body)})
        if found is None:
            body = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN"}]}).encode()
            return web.Response(status=404, body=body, content_type="application/json")
        if kind == "DELETE":
            del self.manifests[repository, reference]
            return web.Response(status=202)
        content_type, body = found
        return web.Response(body=body, headers={"Content-Type": content_type, "Docker-Content-Digest": digest_of(body)})
