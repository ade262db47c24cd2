"""A registry that lets in only who shows a certificate that it knows (mTLS)."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from cocoon_devkit.pki import ClientIdentity, ServerIdentity, issue_client_identity, issue_server_identity
from cocoon_operator.api.answers import Absent, Present, Unknown
from cocoon_operator.clients.registry import RegistryClient
from cocoon_operator.clients.registry.tls import ClientCertificate
from tests.unit.registry.fake_registry import FakeRegistry, errors, manifest

Connect = Callable[..., RegistryClient]
VM = "vk-ns-demo-0"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerIdentity:
    """The registry's identity, which the operator trusts."""
    identity = issue_server_identity(tmp_path / "server")
    monkeypatch.setenv("SSL_CERT_FILE", str(identity.authority))
    return identity


@pytest.fixture
def first(tmp_path: Path) -> ClientIdentity:
    return issue_client_identity(tmp_path / "first", "first")


@pytest.fixture
def second(tmp_path: Path) -> ClientIdentity:
    return issue_client_identity(tmp_path / "second", "second")


@pytest_asyncio.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def demanding(
    request: pytest.FixtureRequest, server: ServerIdentity, first: ClientIdentity, second: ClientIdentity
) -> AsyncIterator[FakeRegistry]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = context.maximum_version = request.param
    context.load_cert_chain(server.certificate, server.key)
    context.verify_mode = ssl.CERT_REQUIRED
    for known in (first, second):
        context.load_verify_locations(known.certificate)
    async with FakeRegistry(context) as fake:
        fake.put(VM, "hibernate", manifest())
        yield fake


def shown(identity: ClientIdentity) -> ClientCertificate:
    return ClientCertificate(str(identity.certificate), str(identity.key))


@pytest.mark.asyncio
async def test_a_registry_that_asks_for_a_certificate_is_shown_ours(
    demanding: FakeRegistry, connect: Connect, first: ClientIdentity, tmp_path: Path
) -> None:
    assert isinstance(await connect(address=demanding.address, tls=None).probe(VM, "hibernate"), Unknown)
    stranger = shown(issue_client_identity(tmp_path / "stranger", "stranger"))
    client = connect(address=demanding.address, tls=None, client_certificate=stranger)
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    assert not demanding.requests
    client = connect(address=demanding.address, tls=None, client_certificate=shown(first))
    assert isinstance(await client.probe(VM, "hibernate"), Present)


@pytest.mark.asyncio
async def test_a_changed_certificate_is_shown_from_the_next_request_on(
    demanding: FakeRegistry, connect: Connect, first: ClientIdentity, second: ClientIdentity
) -> None:
    names: list[str] = []

    async def note(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        certificate: dict[str, Any] = request.transport.get_extra_info("peercert")
        names.append(certificate["subject"][0][0][1])
        return await errors(404, "MANIFEST_UNKNOWN", mark=True)(request)

    demanding.always["HEAD"] = note
    client = connect(address=demanding.address, tls=None, client_certificate=shown(first))
    for _ in range(2):
        assert await client.probe(VM, "hibernate") == Absent()
    assert len(demanding.peers) == 1
    replace(first, second)
    for _ in range(2):
        assert await client.probe(VM, "hibernate") == Absent()
    assert names == ["first", "first", "second", "second"]
    assert len(demanding.peers) == 2


@pytest.mark.asyncio
async def test_a_client_certificate_that_became_unusable_is_unknown(
    demanding: FakeRegistry, connect: Connect, first: ClientIdentity, second: ClientIdentity
) -> None:
    client = connect(address=demanding.address, tls=None, client_certificate=shown(first))
    assert isinstance(await client.probe(VM, "hibernate"), Present)
    asked = len(demanding.requests)
    shutil.copy(second.certificate, first.certificate)
    pair = f"{first.certificate} and {first.key}"
    half = Unknown(f"{pair} are not a certificate and its key in PEM, without a password")
    assert await client.probe(VM, "hibernate") == half
    assert await client.probe(VM, "hibernate") == half
    first.key.unlink()
    assert await client.probe(VM, "hibernate") == Unknown(f"cannot read {first.key}: No such file or directory")
    assert len(demanding.requests) == asked
    replace(first, second)
    assert isinstance(await client.probe(VM, "hibernate"), Present)


@pytest.mark.asyncio
async def test_with_a_client_certificate_nothing_is_asked_without_tls(
    registry: FakeRegistry, connect: Connect, first: ClientIdentity
) -> None:
    registry.put(VM, "hibernate", manifest())
    assert isinstance(await connect(tls=None).probe(VM, "hibernate"), Present)
    registry.requests.clear()
    assert isinstance(await connect(tls=None, client_certificate=shown(first)).probe(VM, "hibernate"), Unknown)
    assert not registry.requests


@pytest.mark.asyncio
async def test_a_key_with_a_password_is_refused(
    registry: FakeRegistry, connect: Connect, first: ClientIdentity
) -> None:
    key = serialization.load_pem_private_key(first.key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    first.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    answer = await connect(tls=None, client_certificate=shown(first)).probe(VM, "hibernate")
    assert isinstance(answer, Unknown)
    assert answer.reason.endswith("are not a certificate and its key in PEM, without a password")


def replace(old: ClientIdentity, new: ClientIdentity) -> None:
    shutil.copy(new.certificate, old.certificate)
    shutil.copy(new.key, old.key)
