"""The registry client against a real registry: what it answers is what distribution really means."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from cocoon_devkit.httpprobe import answers
from cocoon_devkit.ports import free_ports
from cocoon_devkit.process import Command, ManagedProcess, clean_environment
from cocoon_devkit.registry import Login, Registry, RegistryOptions
from cocoon_devkit.scratch import RECORDS, Scratch
from cocoon_operator.api.answers import Absent, Done, Present, Refused, Unknown
from cocoon_operator.clients.registry import Patience, RegistryAddress, RegistryClient, parse_registry
from cocoon_operator.clients.registry.credentials import DockerKeychain
from cocoon_operator.clients.registry.tls import default_tls

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.cocoonstack.snapshot.config.v1+json"
BASE_IMAGE = "registry.example.com/ubuntu:24.04"
LOGIN = Login("operator", "s3cret-pass:word")


@dataclass
class Pusher:
    """Puts snapshots into a registry as the node agent does: config blob first, then the manifest under its tag."""

    url: str
    session: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=dict)

    async def push(self, vm: str, tag: str, note: str = "", base_image: str = BASE_IMAGE) -> str:
        config = await self._blob(vm, json.dumps({"schemaVersion": "v2", "snapshotId": note}).encode())
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": OCI_CONFIG, **config},
            "layers": [],
            "annotations": {"cocoonstack.snapshot.baseimage": base_image} if base_image else {},
        }
        body = json.dumps(document).encode()
        headers = {**self.headers, "Content-Type": OCI_MANIFEST}
        address = f"{self.url}/v2/cocoon/{vm}/manifests/{tag}"
        async with self.session.put(address, data=body, headers=headers) as reply:
            assert reply.status == 201, await reply.text()
        return "sha256:" + hashlib.sha256(body).hexdigest()

    async def get(self, vm: str, reference: str, accept: str = OCI_MANIFEST) -> tuple[int, str, bytes]:
        headers = {**self.headers, "Accept": accept}
        async with self.session.get(f"{self.url}/v2/cocoon/{vm}/manifests/{reference}", headers=headers) as reply:
            return reply.status, reply.headers.get("Content-Type", ""), await reply.read()

    async def _blob(self, vm: str, content: bytes) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        async with self.session.post(f"{self.url}/v2/cocoon/{vm}/blobs/uploads/", headers=self.headers) as reply:
            assert reply.status == 202, await reply.text()
            location = f"{reply.headers['Location']}&digest={digest}"
        headers = {**self.headers, "Content-Type": "application/octet-stream"}
        async with self.session.put(location, data=content, headers=headers) as reply:
            assert reply.status == 201, await reply.text()
        return {"digest": digest, "size": len(content)}


@asynccontextmanager
async def meeting(registry: Registry, home: Path, **settings: Any) -> AsyncIterator[tuple[RegistryClient, Pusher]]:
    """A client and a pusher for the registry; the client has the credentials of the docker config in ``home``."""
    tls = default_tls()
    if registry.authority is not None:
        tls.load_verify_locations(registry.authority)
    headers = {"Authorization": registry.login.header} if registry.login else {}
    address = parse_registry(f"{registry.address}/cocoon")
    settings = {"keychain": DockerKeychain({"HOME": str(home)}), "env": {}, "tls": tls, **settings}
    connector = aiohttp.TCPConnector(ssl=tls)
    async with RegistryClient(address, **settings) as client, aiohttp.ClientSession(connector=connector) as session:
        yield client, Pusher(registry.url, session, headers)


def log_in(home: Path, document: dict[str, Any]) -> None:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps(document))


def own_registry(tools: Path, options: RegistryOptions) -> Iterator[Registry]:
    with Scratch("registry-client") as scratch, Registry(tools, scratch.path, options) as registry:
        yield registry


@pytest.fixture(scope="module")
def guarded(tools: Path) -> Iterator[Registry]:
    """A registry with a login, over TLS."""
    yield from own_registry(tools, RegistryOptions(login=LOGIN, tls=True))


@pytest.fixture(scope="module")
def keeping(tools: Path) -> Iterator[Registry]:
    """A registry that refuses deletes, as distribution does out of the box."""
    yield from own_registry(tools, RegistryOptions(deletes=False))


@pytest.fixture(scope="module")
def fragile(tools: Path) -> Iterator[Registry]:
    """A registry that tests may take down."""
    yield from own_registry(tools, RegistryOptions())


@pytest.mark.asyncio
@pytest.mark.scenario("S321", "N202")
async def test_a_tag_appears_is_told_and_goes(registry: Registry, tmp_path: Path) -> None:
    async with meeting(registry, tmp_path) as (client, pusher):
        assert await client.probe("vk-rt-demo-0", "hibernate") == Absent()
        assert await client.inspect("vk-rt-demo-0", "hibernate") == Absent()
        digest = await pusher.push("vk-rt-demo-0", "hibernate")
        assert await client.probe("vk-rt-demo-0", "hibernate") == Present(digest)
        assert await client.inspect("vk-rt-demo-0", "hibernate") == Present(digest, BASE_IMAGE)
        assert await client.probe("vk-rt-demo-0", "latest") == Absent()
        assert await client.drop("vk-rt-demo-0", "hibernate") == Done()
        assert await client.probe("vk-rt-demo-0", "hibernate") == Absent()
        assert await client.drop("vk-rt-demo-0", "hibernate") == Done()
        assert await client.drop("vk-rt-never-0", "hibernate") == Done()


@pytest.mark.asyncio
@pytest.mark.scenario("S321")
async def test_every_question_is_one_request_after_the_first(registry: Registry, tmp_path: Path) -> None:
    async with meeting(registry, tmp_path) as (client, pusher):
        await pusher.push("vk-count-demo-0", "hibernate")
        since = registry.mark()
        await client.probe("vk-count-demo-0", "hibernate")
        await client.inspect("vk-count-demo-0", "hibernate")
        await client.probe("vk-count-none-0", "hibernate")
        await client.drop("vk-count-demo-0", "hibernate")
        await client.drop("vk-count-demo-0", "hibernate")
        asked = [(request.method, request.status) for request in registry.requests(since)]
        assert asked == [("GET", 200), ("HEAD", 200), ("GET", 200), ("HEAD", 404), ("DELETE", 202), ("DELETE", 404)]
        assert registry.requests(since)[0].path == "/v2/"


@pytest.mark.asyncio
@pytest.mark.scenario("N201")
async def test_a_client_that_accepts_nothing_would_see_no_snapshot(registry: Registry, tmp_path: Path) -> None:
    async with meeting(registry, tmp_path) as (client, pusher):
        digest = await pusher.push("vk-accept-demo-0", "hibernate")
        careless = "application/vnd.docker.distribution.manifest.v2+json"
        assert (await pusher.get("vk-accept-demo-0", "hibernate", careless))[0] == 404
        assert await client.probe("vk-accept-demo-0", "hibernate") == Present(digest)
        assert await client.inspect("vk-accept-demo-0", "hibernate") == Present(digest, BASE_IMAGE)


@pytest.mark.asyncio
@pytest.mark.scenario("N203")
async def test_a_drop_leaves_every_other_tag(registry: Registry, tmp_path: Path) -> None:
    async with meeting(registry, tmp_path) as (client, pusher):
        shared = await pusher.push("vk-sib-demo-0", "hibernate", note="same")
        assert await pusher.push("vk-sib-demo-0", "latest", note="same") == shared
        other = await pusher.push("vk-sib-demo-0", "kept", note="other")
        assert other != shared
        assert await client.drop("vk-sib-demo-0", "hibernate") == Done()
        assert await client.probe("vk-sib-demo-0", "hibernate") == Absent()
        assert await client.probe("vk-sib-demo-0", "latest") == Present(shared)
        assert await client.probe("vk-sib-demo-0", "kept") == Present(other)


@pytest.mark.asyncio
@pytest.mark.scenario("S323")
async def test_a_snapshot_is_moved_aside_and_put_back_by_its_digest(registry: Registry, tmp_path: Path) -> None:
    async with meeting(registry, tmp_path) as (client, pusher):
        digest = await pusher.push("vk-move-demo-0", "hibernate")
        saved = await pusher.get("vk-move-demo-0", "hibernate")
        orphan = f"orphan-{digest.removeprefix('sha256:')[:12]}"
        assert await client.copy("vk-move-demo-0", "hibernate", orphan) == Done()
        assert await client.drop("vk-move-demo-0", "hibernate") == Done()
        assert await client.probe("vk-move-demo-0", orphan) == Present(digest)
        assert await client.probe("vk-move-demo-0", digest) == Present(digest)
        assert await client.copy("vk-move-demo-0", digest, "hibernate") == Done()
        assert await pusher.get("vk-move-demo-0", "hibernate") == saved
        assert await client.inspect("vk-move-demo-0", digest) == Present(digest, BASE_IMAGE)


@pytest.mark.asyncio
async def test_what_is_not_there_cannot_be_copied(registry: Registry, tmp_path: Path) -> None:
    async with meeting(registry, tmp_path) as (client, _):
        missing = "sha256:" + "0" * 64
        assert await client.copy("vk-none-demo-0", missing, "hibernate") == Refused(
            f"cocoon/vk-none-demo-0@{missing} does not exist"
        )


@pytest.mark.asyncio
@pytest.mark.scenario("N204", "S325")
async def test_a_registry_that_refuses_deletes_says_so(keeping: Registry, tmp_path: Path) -> None:
    async with meeting(keeping, tmp_path) as (client, pusher):
        digest = await pusher.push("vk-keep-demo-0", "hibernate")
        result = await client.drop("vk-keep-demo-0", "hibernate")
        assert isinstance(result, Refused)
        assert "405, UNSUPPORTED" in result.reason
        assert "deletes are disabled in the registry" in result.reason
        assert await client.probe("vk-keep-demo-0", "hibernate") == Present(digest)


@pytest.mark.asyncio
@pytest.mark.scenario("S322", "S324")
async def test_a_login_over_tls(guarded: Registry, tmp_path: Path) -> None:
    async with meeting(guarded, tmp_path) as (client, pusher):
        digest = await pusher.push("vk-login-demo-0", "hibernate")
        stranger = await client.probe("vk-login-demo-0", "hibernate")
        assert isinstance(stranger, Unknown)
        assert "refuses the operator's credentials (401)" in stranger.reason
        assert isinstance(await client.drop("vk-login-demo-0", "hibernate"), Refused)
        log_in(tmp_path, guarded.docker_config())
        assert await client.probe("vk-login-demo-0", "hibernate") == Present(digest)
        assert await client.probe("vk-login-none-0", "hibernate") == Absent()
        assert await client.copy("vk-login-demo-0", "hibernate", "orphan-0") == Done()
        assert await client.drop("vk-login-demo-0", "hibernate") == Done()


@pytest.mark.asyncio
@pytest.mark.scenario("S322")
async def test_a_certificate_of_nobody_is_unknown(guarded: Registry, tmp_path: Path) -> None:
    log_in(tmp_path, guarded.docker_config())
    async with meeting(guarded, tmp_path, tls=default_tls()) as (client, _):
        since = guarded.mark()
        found = await client.probe("vk-login-demo-0", "hibernate")
        assert isinstance(found, Unknown)
        assert "is not trusted" in found.reason
        assert guarded.requests(since) == []


@pytest.mark.asyncio
@pytest.mark.scenario("S324")
async def test_w08_w39_a_registry_that_is_down_or_hangs_is_unknown_until_it_is_back(
    fragile: Registry, tmp_path: Path
) -> None:
    patience = Patience(total=3, attempt=1, tries=2, first_wait=0.1)
    async with meeting(fragile, tmp_path, patience=patience) as (client, pusher):
        digest = await pusher.push("vk-down-demo-0", "hibernate")
        fragile.stop()
        try:
            assert isinstance(await client.probe("vk-down-demo-0", "hibernate"), Unknown)
            assert isinstance(await client.drop("vk-down-demo-0", "hibernate"), Unknown)
            assert isinstance(await client.copy("vk-down-demo-0", "hibernate", "orphan-0"), Unknown)
        finally:
            fragile.start()
        assert await client.probe("vk-down-demo-0", "hibernate") == Present(digest)
        fragile.process.pause()
        try:
            assert isinstance(await client.probe("vk-down-demo-0", "hibernate"), Unknown)
        finally:
            fragile.process.resume()
        assert await client.probe("vk-down-demo-0", "hibernate") == Present(digest)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenService:
    """A token service that a real registry trusts: it signs what it is asked for, for one user, and notes the scopes."""

    def __init__(self, login: Login) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._login = login
        self.scopes: list[str] = []

    def key_set(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        point = {"x": _b64(numbers.x.to_bytes(32)), "y": _b64(numbers.y.to_bytes(32))}
        return {"keys": [{"kty": "EC", "crv": "P-256", "kid": "test", "use": "sig", "alg": "ES256", **point}]}

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != self._login.header:
            return web.Response(status=401)
        self.scopes += request.query.getall("scope", [])
        return web.json_response({"token": self._token(request.query.getall("scope", [])), "expires_in": 300})

    def sign_for(self, repository: str) -> str:
        return self._token([f"repository:{repository}:pull,push"])

    def _token(self, scopes: list[str]) -> str:
        access = []
        for scope in scopes:
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",")})
        now = int(time.time())
        who = {"iss": "test", "aud": "cocoon-registry", "sub": self._login.username, "jti": "one"}
        return self._sign({**who, "nbf": now - 10, "iat": now, "exp": now + 300, "access": access})

    def _sign(self, claims: dict[str, Any]) -> str:
        parts = [{"alg": "ES256", "typ": "JWT", "kid": "test"}, claims]
        text = ".".join(_b64(json.dumps(part).encode()) for part in parts)
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_b64(r.to_bytes(32) + s.to_bytes(32))}"


@asynccontextmanager
async def token_registry(tools: Path, service: TokenService) -> AsyncIterator[RegistryAddress]:
    """A registry that takes the service's tokens only, with the service beside it."""
    app = web.Application()
    app.router.add_get("/token", service.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with Scratch("registry-token") as scratch:
        (scratch.path / "keys.json").write_text(json.dumps(service.key_set()))
        settings = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(scratch.path / "data")}, "delete": {"enabled": True}},
            "http": {"addr": address, "secret": "of a test"},
            "auth": {
                "token": {
                    "realm": f"http://127.0.0.1:{runner.addresses[0][1]}/token",
                    "service": "cocoon-registry",
                    "issuer": "test",
                    "jwks": str(scratch.path / "keys.json"),
                    "signingalgorithms": ["ES256"],
                }
            },
        }
        config = scratch.path / "config.json"
        config.write_text(json.dumps(settings))
        env = clean_environment(scratch.path, OTEL_TRACES_EXPORTER="none")
        argv = (str(tools / "registry"), "serve", str(config))
        process = ManagedProcess(Command("registry", argv, scratch.path / "log", env), scratch.path / RECORDS)
        try:
            process.wait_ready(lambda: answers(f"http://{address}/v2/") == 401, 30)
            yield parse_registry(f"{address}/cocoon")
        finally:
            process.stop()
            await runner.cleanup()


@pytest.mark.asyncio
@pytest.mark.scenario("S321")
async def test_w40_one_token_of_a_real_token_service_reads_copies_and_drops(tools: Path, tmp_path: Path) -> None:
    service = TokenService(LOGIN)
    async with token_registry(tools, service) as address:
        log_in(tmp_path, {"auths": {address.host: {"auth": LOGIN.header.removeprefix("Basic ")}}})
        keychain = DockerKeychain({"HOME": str(tmp_path)})
        async with RegistryClient(address, keychain=keychain, env={}) as client, aiohttp.ClientSession() as session:
            assert await client.probe("vk-token-demo-0", "hibernate") == Absent()
            token = service.sign_for("cocoon/vk-token-demo-0")
            pusher = Pusher(f"http://{address.host}", session, {"Authorization": f"Bearer {token}"})
            digest = await pusher.push("vk-token-demo-0", "hibernate")
            assert await client.probe("vk-token-demo-0", "hibernate") == Present(digest)
            assert await client.copy("vk-token-demo-0", "hibernate", "orphan-0") == Done()
            assert await client.drop("vk-token-demo-0", "hibernate") == Done()
            assert await client.probe("vk-token-demo-0", "hibernate") == Absent()
            assert await client.probe("vk-token-demo-0", "orphan-0") == Present(digest)
    assert service.scopes == ["repository:cocoon/vk-token-demo-0:pull,push,delete"]
