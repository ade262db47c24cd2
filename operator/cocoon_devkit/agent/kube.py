"""Thin access to the Kubernetes API: raw JSON over one session, an explicit status check, a watch (research D).

kubernetes-asyncio reads the kubeconfig and its credentials; the requests go out through aiohttp directly.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_kube_config

from cocoon_devkit.agent.wire import Obj

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_LINE_LIMIT: Final = 8 << 20


class KubeStatusError(Exception):
    """The API server answered with an error; ``status`` 0 means that there was no answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def replaced(self) -> bool:
        """Invalid, Conflict or NotFound: the pod that the write was for is another one now (R0.10)."""
        return self.status in {404, 409, 422}


class Kube:
    """One session to one API server."""

    def __init__(self, base: str, tls: ssl.SSLContext | None, token: str) -> None:
        self._base = base.rstrip("/")
        headers = {"Authorization": token} if token else {}
        connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=128)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=1 << 18)

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> Kube:
        """Read a kubeconfig (None: where kubectl looks) and open a session."""
        config = Configuration()
        await load_kube_config(config_file=str(kubeconfig) if kubeconfig else None, client_configuration=config)
        token = await config.get_api_key_with_prefix("BearerToken") or ""
        if token and not token.startswith("Bearer "):
            token = f"Bearer {token}"
        return cls(str(config.host), _tls(config), token)

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Obj:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Obj) -> Obj:
        return await self.request("POST", path, body=body)

    async def put(self, path: str, body: Obj) -> Obj:
        return await self.request("PUT", path, body=body)

    async def patch(self, path: str, body: Obj, kind: str) -> Obj:
        """Patch within 5 s (R0.9)."""
        return await self.request("PATCH", path, body=body, content_type=kind, timeout=5.0)

    async def delete(self, path: str, body: Obj) -> Obj:
        return await self.request("DELETE", path, body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Obj | None = None,
        content_type: str = "application/json",
        timeout: float = 10.0,  # noqa: ASYNC109  (handed to aiohttp)
    ) -> Obj:
        """Send one request; returns the decoded answer. Raises :class:`KubeStatusError`. ``timeout`` is in seconds."""
        try:
            async with self._session.request(
                method,
                self._base + path,
                params=params,
                data=orjson.dumps(body) if body is not None else None,
                headers={"Content-Type": content_type, "Accept": "application/json"},
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                data = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError) as error:
            raise KubeStatusError(0, type(error).__name__, str(error)) from error
        answer = _decode(data)
        if status >= 400:
            raise KubeStatusError(status, str(answer.get("reason", "")), str(answer.get("message", "")))
        return answer

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[tuple[str, Obj]]:
        """Yield ``(type, object)`` until the server ends the stream. Raises :class:`KubeStatusError`."""
        try:
            async with self._session.get(
                self._base + path,
                params={**params, "watch": "true", "allowWatchBookmarks": "true"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=360),
            ) as response:
                if response.status >= 400:
                    answer = _decode(await response.read())
                    raise KubeStatusError(
                        response.status, str(answer.get("reason", "")), str(answer.get("message", ""))
                    )
                async for line in _lines(response.content):
                    event: Obj = orjson.loads(line)
                    if event["type"] == "ERROR":
                        status: Obj = event["object"]
                        raise KubeStatusError(int(status.get("code", 0)), str(status.get("reason", "")), str(status))
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError) as error:
            raise KubeStatusError(0, type(error).__name__, str(error)) from error


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split a watch stream into lines of any length up to a limit; a pod can be longer than the reader's own limit."""
    rest = b""
    async for chunk in stream.iter_any():
        rest += chunk
        *lines, rest = rest.split(b"\n")
        if len(rest) > _LINE_LIMIT:
            raise KubeStatusError(0, "TooLong", "a watch event has no end")
        for line in lines:
            if line:
                yield line


def _decode(data: bytes) -> Obj:
    try:
        answer: Any = json.loads(data or b"{}")
    except ValueError:
        return {"message": data[:200].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {}


def _tls(config: Any) -> ssl.SSLContext | None:
    if not config.host.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=config.ssl_ca_cert)
    if config.cert_file:
        context.load_cert_chain(config.cert_file, keyfile=config.key_file)
    if not config.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
