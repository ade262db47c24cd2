"""What goes over the wire, and with whom (S322)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from cocoon_devkit.pki import ServerIdentity, issue_server_identity
from cocoon_operator.api.answers import Absent, Present, Unknown
from cocoon_operator.clients.registry import RegistryAddress, RegistryClient
from cocoon_operator.clients.registry.failures import NoAnswerError
from cocoon_operator.clients.registry.tls import default_tls
from cocoon_operator.clients.registry.transport import Transport
from tests.unit.registry.fake_registry import FakeRegistry, answer, errors, manifest

Connect = Callable[..., RegistryClient]
VM = "vk-ns-demo-0"


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> ServerIdentity:
    return issue_server_identity(tmp_path_factory.mktemp("tls"))


def server_tls(identity: ServerIdentity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


@pytest_asyncio.fixture
async def secure(identity: ServerIdentity) -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry(server_tls(identity)) as fake:
        fake.put(VM, "hibernate", manifest())
        yield fake


@pytest.mark.asyncio
@pytest.mark.scenario("S322")
async def test_tls_is_verified_against_the_authorities_that_the_environment_names(
    secure: FakeRegistry, connect: Connect, identity: ServerIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = await connect(address=secure.address, tls=None).probe(VM, "hibernate")
    assert isinstance(stranger, Unknown)
    assert stranger.reason.startswith(f"the certificate of 127.0.0.1:{secure.port} is not trusted: ")
    assert not secure.requests  # in particular it did not fall back to plain http
    monkeypatch.setenv("SSL_CERT_FILE", str(identity.authority))
    assert isinstance(await connect(address=secure.address, tls=None).probe(VM, "hibernate"), Present)


@pytest.mark.asyncio
@pytest.mark.scenario("S322")
async def test_tls_before_1_2_is_not_spoken(identity: ServerIdentity, connect: Connect) -> None:
    old = server_tls(identity)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    assert default_tls().minimum_version == ssl.TLSVersion.TLSv1_2
    trusting = default_tls()
    trusting.load_verify_locations(identity.authority)
    async with FakeRegistry(old) as registry:
        assert isinstance(await connect(address=registry.address, tls=trusting).probe(VM, "hibernate"), Unknown)
        assert not registry.requests


@pytest.mark.asyncio
@pytest.mark.scenario("S322")
async def test_http_1_1_over_32_connections_at_most_that_are_used_again(
    registry: FakeRegistry, connect: Connect
) -> None:
    registry.put(VM, "hibernate", manifest())
    busy = most = 0
    versions: set[tuple[int, int]] = set()

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        versions.add((request.version.major, request.version.minor))
        for _ in range(20):
            await asyncio.sleep(0)
        busy -= 1
        return await errors(404, "MANIFEST_UNKNOWN", mark=True)(request)

    registry.always["HEAD"] = slow
    client = connect()
    answers = await asyncio.gather(*(client.probe(VM, "hibernate") for _ in range(200)))
    assert answers == [Absent()] * 200
    assert most <= 32
    assert len(registry.peers) <= 32
    assert versions == {(1, 1)}


@pytest.mark.asyncio
async def test_plain_http_is_remembered(registry: FakeRegistry, connect: Connect) -> None:
    told: list[tuple[str, int | str]] = []
    client = connect(on_request=lambda kind, code, _: told.append((kind, code)))
    for _ in range(3):
        await client.probe(VM, "hibernate")
    assert told == [("handshake", "tls"), ("handshake", 200), *[("probe", 404)] * 3]


@pytest.mark.asyncio
async def test_a_registry_that_moves_to_tls_is_found_again(
    registry: FakeRegistry, connect: Connect, identity: ServerIdentity
) -> None:
    trusting = default_tls()
    trusting.load_verify_locations(identity.authority)
    client = connect(tls=trusting)
    assert await client.probe(VM, "hibernate") == Absent()
    registry.always["HEAD"] = answer(400, {}, b"Client sent an HTTP request to an HTTPS server.", mark=False)
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    del registry.always["HEAD"]
    assert await client.probe(VM, "hibernate") == Absent()
    assert registry.count()["ping"] == 2


@pytest.mark.asyncio
async def test_a_redirect_is_not_followed_and_takes_no_credentials_along(
    registry: FakeRegistry, connect: Connect
) -> None:
    async with FakeRegistry() as other:
        for kind in ("HEAD", "GET", "DELETE", "PUT"):
            registry.always[kind] = answer(307, {"Location": f"{other.base}/v2/base/{VM}/manifests/hibernate"})
        client = connect()
        assert isinstance(await client.probe(VM, "hibernate"), Unknown)
        assert isinstance(await client.inspect(VM, "hibernate"), Unknown)
        assert isinstance(await client.drop(VM, "hibernate"), Unknown)
        assert not other.requests


@pytest.mark.asyncio
async def test_a_proxy_of_the_environment_is_used_and_netrc_is_not(tmp_path: Path, connect: Connect) -> None:
    targets: list[str] = []
    shown: list[str | None] = []

    async def proxy(request: web.BaseRequest) -> web.StreamResponse:
        targets.append(f"{request.method} {request.raw_path}")
        shown.append(request.headers.get("Authorization"))
        return web.Response(status=404, headers={"Docker-Distribution-Api-Version": "registry/2.0"})

    (tmp_path / ".netrc").write_text("default login someone password s3cret\n")
    (tmp_path / ".netrc").chmod(0o600)
    server = web.ServerRunner(web.Server(proxy))
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    env = {"HOME": str(tmp_path), "NETRC": str(tmp_path / ".netrc")}
    env["http_proxy"] = f"http://127.0.0.1:{server.addresses[0][1]}"
    transport = Transport(attempt=5, env=env, tls=default_tls())
    reply = await transport.send("probe", "HEAD", URL("http://10.1.2.3:5000/v2/x/manifests/y", encoded=True))
    await transport.close()
    await server.cleanup()
    assert reply.status == 404
    assert targets == ["HEAD http://10.1.2.3:5000/v2/x/manifests/y"]
    assert shown == [None]


@pytest.mark.asyncio
@pytest.mark.parametrize("garbage", [b"SSH-2.0-nothing\r\n", b"HTTP/1.1 abc\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nA"])
async def test_a_server_that_speaks_something_else_is_unknown(connect: Connect, garbage: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(garbage)
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        found = await connect(address=RegistryAddress(f"127.0.0.1:{port}")).probe(VM, "hibernate")
    assert isinstance(found, Unknown)


@pytest.mark.asyncio
async def test_headers_without_end_are_no_answer(registry: FakeRegistry) -> None:
    registry.always["GET"] = answer(200, {"X": "y" * 100_000})
    transport = Transport(attempt=5, env={}, tls=default_tls())
    with pytest.raises(NoAnswerError, match="did not answer in HTTP"):
        await transport.send("inspect", "GET", URL(f"{registry.base}/v2/x/manifests/y"))
    await transport.close()
