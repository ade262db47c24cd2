"""The operator's own token goes to the API server and nowhere else, and what answers there cannot stop it for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.api.errors import KubeError, UnavailableError
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection, TokenFile
from cocoon_operator.clients.kubernetes.failures import error_of_answer, retry_after
from cocoon_operator.clients.kubernetes.resources import LEASES, PODS
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer

TOKEN = "ey.service-account.token"
Object = dict[str, object]


@asynccontextmanager
async def api_server_and_thief(tmp_path: Path) -> AsyncIterator[tuple[KubeApiServer, KubeApiServer, Connection]]:
    """Two servers; the connection is to the first, with a token that is renewed from a file."""
    (tmp_path / "token").write_text(TOKEN)
    async with KubeApiServer().serve() as api, KubeApiServer().serve() as thief:
        yield api, thief, Connection(api.url, "a test", credentials=TokenFile(tmp_path / "token"))


def redirect(thief: KubeApiServer) -> Fault:
    return Fault("status", code=307, headers={"Location": f"{thief.url}/api/v1/namespaces/ns/pods/demo-0"})


@pytest.mark.asyncio
async def test_no_request_follows_a_redirect(tmp_path: Path) -> None:
    async with api_server_and_thief(tmp_path) as (api, thief, connection):
        client = KubeClient(connection, limits=Limits(attempt=1.0, budget=0.1, silence=1.0))
        requests: list[Callable[[], Awaitable[object]]] = [
            lambda: client.get(PODS, "ns", "demo-0", Object),
            lambda: client.merge_patch(PODS, "ns", "demo-0", {"metadata": {"uid": "u"}}, Object),
            lambda: client.create(LEASES, "ns", {"metadata": {"name": "l"}}, Object),
            lambda: client.delete(PODS, "ns", "demo-0", uid="u", resource_version="1"),
            lambda: anext(client.watch(PODS, resource_version="1", seconds=1)),
        ]
        for request in requests:
            api.faults = [redirect(thief)]
            with pytest.raises(UnavailableError, match="307"):
                await request()
        await client.close()
        assert len(api.requests) == len(requests)
        assert {seen["Authorization"] for seen in api.headers} == {f"Bearer {TOKEN}"}
        assert thief.requests == []


@pytest.mark.asyncio
async def test_a_session_that_follows_redirects_takes_no_token_to_another_server(tmp_path: Path) -> None:
    """Kopf asks with a session of ours, by its own rules."""
    async with api_server_and_thief(tmp_path) as (api, thief, connection), connection.open_session() as session:
        api.faults = [redirect(thief)]
        async with session.get(f"{api.url}/api/v1/namespaces/ns/pods/demo-0") as answer:
            await answer.read()
        assert [path for _, path in thief.requests] == ["/api/v1/namespaces/ns/pods/demo-0"]
        assert "Authorization" not in thief.headers[0]
        with pytest.raises(aiohttp.InvalidURL):
            await session.get("http://")


@given(st.text(max_size=40) | st.integers(min_value=0).map(str) | st.just("9" * 8000))
def test_no_retry_after_makes_the_operator_wait_for_ever(text: str) -> None:
    for code in (429, 503):
        error = error_of_answer(code, {"Retry-After": text}, b"")
        assert 0 <= retry_after(error) <= 86_400


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"message": ' + b"[" * 100_000, b"\xff", b"<html>" * 1000])
def test_no_body_of_an_error_is_an_error_of_ours(body: bytes) -> None:
    error = error_of_answer(500, {}, body)
    assert isinstance(error, KubeError)
    assert len(str(error)) < 300


@pytest.mark.asyncio
async def test_an_answer_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    async def deep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"[" * 100_000
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(deep, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = KubeClient(Connection(f"http://127.0.0.1:{port}", "a test"), limits=Limits(attempt=2.0, budget=0.1))
        with pytest.raises(UnavailableError, match="cannot be read"):
            await client.get(PODS, "ns", "demo-0", dict[str, object])
        await client.close()
