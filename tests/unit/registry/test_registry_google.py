"""Google's registries: who is shown a token, and what happens while none can be had (W-41)."""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cocoon_operator.api.answers import Present, Unknown
from cocoon_operator.clients.registry import RegistryClient
from cocoon_operator.clients.registry.credentials import ANONYMOUS, Credential, DockerKeychain, Keychains
from cocoon_operator.clients.registry.failures import CredentialsError
from cocoon_operator.clients.registry.google import (
    AccessToken,
    DefaultCredentials,
    GoogleKeychain,
    GoogleNotReadyError,
    NoGoogleCredentialsError,
    is_google,
)
from tests.unit.registry.fake_registry import USER, FakeRegistry, manifest

GCR, REPOSITORY = "europe-docker.pkg.dev", "project/snapshots/vk-ns-demo-0"


class Source:
    """What each call gives in turn; the last one again and again."""

    def __init__(self, *turns: AccessToken | Exception) -> None:
        self._turns = list(turns)
        self.calls = 0

    def __call__(self) -> AccessToken:
        self.calls += 1
        turn = self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
        if isinstance(turn, Exception):
            raise turn
        return turn


@pytest.mark.parametrize(
    ("host", "google"),
    [
        ("gcr.io", True),
        ("eu.gcr.io", True),
        ("EU.GCR.IO:443", True),
        ("europe-docker.pkg.dev", True),
        ("registry.google.com", True),
        ("evil-gcr.io", False),
        ("gcr.io.evil.test", False),
        ("pkg.dev.test", False),
        ("notgoogle.com", False),
        ("127.0.0.1:5000", False),
    ],
)
@pytest.mark.asyncio
async def test_only_googles_hosts_are_shown_a_google_token(host: str, google: bool) -> None:
    assert is_google(host) == google
    source = Source(AccessToken("t", 1000))
    chain = GoogleKeychain(source, clock=lambda: 0)
    assert await chain.resolve(host, REPOSITORY) == (Credential("_token", "t") if google else ANONYMOUS)
    assert source.calls == int(google)


@pytest.mark.asyncio
async def test_a_token_is_kept_until_a_minute_before_it_ends() -> None:
    now = 0.0
    source = Source(AccessToken("first", 1000), AccessToken("second", 3000))
    chain = GoogleKeychain(source, clock=lambda: now)
    for moment in (0.0, 900.0, 940.0):
        now = moment
        assert (await chain.resolve(GCR, REPOSITORY)).password == "first"
    now = 941.0
    assert (await chain.resolve(GCR, REPOSITORY)).password == "second"
    assert source.calls == 2


@pytest.mark.asyncio
async def test_w41_a_source_that_is_not_ready_is_an_error_and_asked_again_at_once() -> None:
    source = Source(GoogleNotReadyError("TransportError"), AccessToken("t", 1000))
    chain = GoogleKeychain(source, clock=lambda: 0)
    with pytest.raises(CredentialsError, match="TransportError") as caught:
        await chain.resolve(GCR, REPOSITORY)
    assert caught.value.transient
    assert (await chain.resolve(GCR, REPOSITORY)).password == "t"


@pytest.mark.asyncio
async def test_w41_none_found_lasts_ten_minutes_or_until_refused() -> None:
    now = 0.0
    source = Source(NoGoogleCredentialsError())
    chain = GoogleKeychain(source, clock=lambda: now)
    for moment in (0.0, 599.0):
        now = moment
        assert await chain.resolve(GCR, REPOSITORY) == ANONYMOUS
    assert source.calls == 1
    now = 600.0
    await chain.resolve(GCR, REPOSITORY)
    assert source.calls == 2
    chain.forget()
    await chain.resolve(GCR, REPOSITORY)
    assert source.calls == 3


@pytest.mark.asyncio
async def test_w41_a_slow_source_is_asked_once_and_its_late_answer_counts() -> None:
    release = threading.Event()
    calls: list[int] = []

    def slow() -> AccessToken:
        calls.append(1)
        release.wait(10)
        return AccessToken("late", 1000)

    chain = GoogleKeychain(slow, patience=0.05, clock=lambda: 0)
    results = await asyncio.gather(*(chain.resolve(GCR, REPOSITORY) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, CredentialsError) for result in results)
    release.set()
    patient = await asyncio.gather(*(chain.resolve(GCR, REPOSITORY) for _ in range(20)), return_exceptions=True)
    for _ in range(200):
        if not any(isinstance(result, CredentialsError) for result in patient):
            break
        patient = [await chain.resolve(GCR, REPOSITORY)]
    assert patient[-1] == Credential("_token", "late")
    assert len(calls) == 1


class AsGoogle:
    """Answers for any host what the Google keychain answers for one of Google's."""

    def __init__(self, inner: GoogleKeychain) -> None:
        self._inner = inner

    async def resolve(self, _: str, repository: str) -> Credential:
        return await self._inner.resolve(GCR, repository)

    def forget(self) -> None:
        self._inner.forget()


@pytest.mark.asyncio
@pytest.mark.parametrize("late", [NoGoogleCredentialsError(), GoogleNotReadyError("TransportError")])
async def test_w41_credentials_that_come_late_are_used_without_a_restart(
    registry: FakeRegistry, connect: Callable[..., RegistryClient], late: Exception
) -> None:
    registry.auth = "bearer"
    registry.put("vk-ns-demo-0", "hibernate", manifest())

    async def service(request: web.Request) -> web.StreamResponse:
        expected = Credential("_token", "google-access").basic
        if request.headers.get("Authorization") != expected:
            return web.Response(status=403)
        registry.valid_tokens.add("bearer-1")
        return web.json_response({"token": "bearer-1", "expires_in": 3600})

    registry.always["token"] = service
    source = Source(late, late, late, AccessToken("google-access", 1e12))
    client = connect(keychain=Keychains(AsGoogle(GoogleKeychain(source)), DockerKeychain({})))
    found = await client.probe("vk-ns-demo-0", "hibernate")
    while isinstance(found, Unknown) and source.calls < 5:
        assert "google-access" not in found.reason
        found = await client.probe("vk-ns-demo-0", "hibernate")
    assert isinstance(found, Present)
    assert source.calls == 4


def test_without_the_extra_and_without_gcloud_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in [name for name in sys.modules if name.startswith("google.auth")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    monkeypatch.setitem(sys.modules, "google.auth.exceptions", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoGoogleCredentialsError):
        DefaultCredentials()()


def isolate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()


def test_gcloud_is_asked_where_no_default_credentials_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)
    with pytest.raises(NoGoogleCredentialsError):
        DefaultCredentials()()
    tool = tmp_path / "bin" / "gcloud"
    document = {"credential": {"access_token": "from-gcloud", "token_expiry": "2030-01-01T12:00:00Z"}}
    tool.write_text(f"#!/bin/sh\n[ \"$1 $2\" = 'config config-helper' ] && echo '{json.dumps(document)}'\n")
    tool.chmod(0o755)
    expires = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC).timestamp()
    assert DefaultCredentials()() == AccessToken("from-gcloud", expires)
    tool.write_text("#!/bin/sh\necho '{}'\n")
    with pytest.raises(NoGoogleCredentialsError):
        DefaultCredentials()()


def test_a_key_file_that_cannot_be_used_is_an_error_and_not_anonymous(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(GoogleNotReadyError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        DefaultCredentials()()


@pytest.mark.asyncio
async def test_a_key_file_is_exchanged_for_an_access_token(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    isolate(monkeypatch, tmp_path)
    key = {
        "type": "service_account",
        "client_email": USER,
        "private_key": rsa.generate_private_key(65537, 2048)
        .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        .decode(),
        "token_uri": f"{registry.base}/token",
    }
    file = tmp_path / "key.json"
    file.write_text(json.dumps(key))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))

    async def exchange(_: web.Request) -> web.StreamResponse:
        return web.json_response({"access_token": "from-adc", "expires_in": 3600})

    async def unavailable(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": "invalid_grant"}, status=400)

    chain = GoogleKeychain(patience=30)
    registry.script["token"].extend([unavailable, exchange])
    with pytest.raises(CredentialsError, match="no Google access token: RefreshError"):
        await chain.resolve(GCR, REPOSITORY)
    assert await chain.resolve(GCR, REPOSITORY) == Credential("_token", "from-adc")
    assert await chain.resolve(GCR, REPOSITORY) == Credential("_token", "from-adc")
    assert registry.count() == {"token": 2}
