"""Handshake, tokens and credentials in the requests that carry them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cocoon_operator.api.answers import Absent, Done, Present, Refused, Unknown
from cocoon_operator.clients.registry import RegistryClient
from cocoon_operator.clients.registry.challenge import Challenge
from cocoon_operator.clients.registry.credentials import DockerKeychain
from cocoon_operator.clients.registry.failures import RegistryError
from cocoon_operator.clients.registry.tokens import parse_service
from tests.unit.registry.fake_registry import PASSWORD, USER, FakeRegistry, Seen, answer, manifest

Connect = Callable[..., RegistryClient]
VM = "vk-ns-demo-0"
SCOPE = f"repository:base/{VM}:pull,push,delete"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def log_in(folder: Path, registry: FakeRegistry, **entry: str) -> DockerKeychain:
    """Write a docker config for the registry; without ``entry`` with user and password."""
    config = folder / ".docker" / "config.json"
    config.parent.mkdir(exist_ok=True)
    auth = entry or {"auth": BASIC.removeprefix("Basic ")}
    config.write_text(json.dumps({"auths": {f"127.0.0.1:{registry.port}": auth}}))
    return DockerKeychain({"HOME": str(folder)})


def shown(seen: list[Seen]) -> list[str]:
    return [request.authorization for request in seen]


@pytest.mark.asyncio
async def test_basic(registry: FakeRegistry, connect: Connect, tmp_path: Path) -> None:
    registry.auth = "basic"
    registry.put(VM, "hibernate", manifest())
    client = connect(keychain=log_in(tmp_path, registry))
    assert isinstance(await client.probe(VM, "hibernate"), Present)
    assert await client.drop(VM, "hibernate") == Done()
    assert registry.count() == {"ping": 1, "HEAD": 1, "DELETE": 1}
    assert shown(registry.seen("HEAD")) == [BASIC]


@pytest.mark.asyncio
async def test_basic_refused_is_not_tried_again_with_the_same_password(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "basic"
    client = connect(keychain=log_in(tmp_path, registry, username=USER, password="wrong"))
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    assert isinstance(await client.drop(VM, "hibernate"), Refused)
    assert registry.count() == {"ping": 1, "HEAD": 1, "DELETE": 1}


@pytest.mark.asyncio
async def test_new_credentials_are_used_without_a_restart(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "basic"
    client = connect(keychain=log_in(tmp_path, registry, username=USER, password="wrong"))
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    log_in(tmp_path, registry)
    assert await client.probe(VM, "hibernate") == Absent()


@pytest.mark.asyncio
async def test_a_broken_config_is_unknown_and_nothing_is_asked_anonymously(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    keychain = log_in(tmp_path, registry)
    (tmp_path / ".docker" / "config.json").write_text("{")
    client = connect(keychain=keychain)
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    assert isinstance(await client.drop(VM, "hibernate"), Unknown)
    assert not registry.requests


@pytest.mark.asyncio
async def test_w40_one_token_serves_probe_inspect_copy_and_drop(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest())
    client = connect(keychain=log_in(tmp_path, registry))
    assert isinstance(await client.probe(VM, "hibernate"), Present)
    assert isinstance(await client.inspect(VM, "hibernate"), Present)
    assert await client.copy(VM, "hibernate", "orphan-0") == Done()
    assert await client.drop(VM, "hibernate") == Done()
    assert registry.count() == {"ping": 1, "token": 1, "HEAD": 2, "GET": 2, "PUT": 1, "DELETE": 1}
    (token,) = registry.seen("token")
    assert token.authorization == BASIC
    assert token.query == [("service", "registry.test"), ("scope", SCOPE)]
    assert set(shown(registry.seen("DELETE"))) == {"Bearer issued-token-1"}
    assert shown(registry.seen("ping")) == [""]


@pytest.mark.asyncio
async def test_w40_the_tokens_kept_are_bounded_and_the_least_used_goes_first(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    client = connect(keychain=log_in(tmp_path, registry), tokens_kept=3)
    for number in (0, 1, 2, 0, 3):
        await client.probe(f"vm-{number}", "hibernate")
    assert len(client._tokens) == 3
    assert registry.count() == {"ping": 1, "token": 4, "HEAD": 5}
    for number, tokens in ((0, 4), (2, 4), (1, 5)):
        await client.probe(f"vm-{number}", "hibernate")
        assert registry.count()["token"] == tokens
    assert len(client._tokens) == 3


@pytest.mark.asyncio
async def test_w40_a_hundred_first_questions_shake_hands_once(registry: FakeRegistry, connect: Connect) -> None:
    client = connect()
    answers = await asyncio.gather(*(client.probe(f"vm-{number}", "hibernate") for number in range(100)))
    assert answers == [Absent()] * 100
    assert registry.count() == {"ping": 1, "HEAD": 100}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("lifetime", "still_good", "too_old"),
    [
        (300, 239.0, 241.0),
        (3600, 3539.0, 3541.0),
        (None, 47.0, 49.0),
        ("x", 47.0, 49.0),
        (True, 47.0, 49.0),
        (-5, 47.0, 49.0),
    ],
)
async def test_a_token_is_renewed_before_it_expires(
    registry: FakeRegistry, connect: Connect, lifetime: object, still_good: float, too_old: float
) -> None:
    registry.auth, registry.open_token_service, registry.lifetime = "bearer", True, lifetime
    now = 0.0
    client = connect(clock=lambda: now)
    for moment, tokens in ((0.0, 1), (still_good, 1), (too_old, 2)):
        now = moment
        assert await client.probe(VM, "hibernate") == Absent()
        assert registry.count()["token"] == tokens


@pytest.mark.asyncio
async def test_a_token_that_the_registry_no_longer_takes_is_replaced_once(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest())
    client = connect(keychain=log_in(tmp_path, registry))
    await client.probe(VM, "hibernate")
    registry.valid_tokens.clear()
    assert await client.drop(VM, "hibernate") == Done()
    assert registry.count() == {"ping": 1, "token": 2, "HEAD": 1, "DELETE": 2}
    assert shown(registry.seen("DELETE")) == ["Bearer issued-token-1", "Bearer issued-token-2"]


@pytest.mark.asyncio
async def test_a_registry_that_takes_no_token_at_all_is_asked_twice(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    challenge = {"WWW-Authenticate": f'Bearer realm="{registry.base}/token",error="insufficient_scope"'}
    registry.always["DELETE"] = answer(401, challenge)
    client = connect(keychain=log_in(tmp_path, registry))
    result = await client.drop(VM, "hibernate")
    assert isinstance(result, Refused)
    assert "(401)" in result.reason
    assert registry.count() == {"ping": 1, "token": 2, "DELETE": 2}


@pytest.mark.asyncio
async def test_a_scope_that_the_registry_names_is_asked_for_too(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    named = f'Bearer realm="{registry.base}/token",service="registry.test",scope="repository:base/{VM}:*"'
    registry.script["DELETE"].append(answer(401, {"WWW-Authenticate": named}))
    registry.put(VM, "hibernate", manifest())
    assert await connect(keychain=log_in(tmp_path, registry)).drop(VM, "hibernate") == Done()
    assert registry.seen("token")[1].query[1:] == [("scope", SCOPE), ("scope", f"repository:base/{VM}:*")]


@pytest.mark.asyncio
async def test_reads_go_on_with_credentials_that_may_only_read(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest())

    async def reads_only(request: web.Request) -> web.StreamResponse:
        if request.query["scope"].endswith(":pull"):
            registry.valid_tokens.add("reader")
            return web.json_response({"access_token": "reader"})
        return web.Response(status=403)

    registry.always["token"] = reads_only
    client = connect(keychain=log_in(tmp_path, registry))
    assert isinstance(await client.probe(VM, "hibernate"), Present)
    assert isinstance(await client.probe(VM, "hibernate"), Present)
    assert await client.probe("vk-ns-other-0", "hibernate") == Absent()
    assert registry.count()["token"] == 3
    assert isinstance(await client.drop(VM, "hibernate"), Refused)
    assert registry.count()["DELETE"] == 0


@pytest.mark.asyncio
async def test_an_identity_token_is_exchanged_by_a_form(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    registry.auth = "bearer"
    client = connect(keychain=log_in(tmp_path, registry, identitytoken=PASSWORD))
    assert await client.probe(VM, "hibernate") == Absent()
    (token,) = registry.seen("token")
    assert (token.method, token.authorization, token.query) == ("POST", "", [])
    assert token.form == {
        "grant_type": "refresh_token",
        "refresh_token": PASSWORD,
        "client_id": "cocoon-operator",
        "service": "registry.test",
        "scope": SCOPE,
    }


@pytest.mark.asyncio
async def test_a_registry_token_is_shown_as_it_is(registry: FakeRegistry, connect: Connect, tmp_path: Path) -> None:
    registry.auth = "bearer"
    registry.valid_tokens.add("static")
    client = connect(keychain=log_in(tmp_path, registry, registrytoken="static"))
    assert await client.probe(VM, "hibernate") == Absent()
    assert registry.count() == {"ping": 1, "HEAD": 1}


@pytest.mark.asyncio
async def test_a_registry_that_lets_strangers_in_is_shown_the_credentials_all_the_same(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    await connect(keychain=log_in(tmp_path, registry)).probe(VM, "hibernate")
    assert shown(registry.seen("HEAD")) == [BASIC]


@pytest.mark.asyncio
async def test_a_registry_that_asks_for_a_token_only_to_delete(
    registry: FakeRegistry, connect: Connect, tmp_path: Path
) -> None:
    named = f'Bearer realm="{registry.base}/token",service="registry.test"'
    registry.put(VM, "hibernate", manifest())
    registry.script["DELETE"].append(answer(401, {"WWW-Authenticate": named}))
    client = connect(keychain=log_in(tmp_path, registry))
    assert isinstance(await client.probe(VM, "hibernate"), Present)
    assert await client.drop(VM, "hibernate") == Done()
    assert shown(registry.seen("DELETE")) == [BASIC, "Bearer issued-token-1"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (401, {}, "other than Bearer and Basic"),
        (401, {"WWW-Authenticate": "Negotiate"}, "other than Bearer and Basic"),
        (401, {"WWW-Authenticate": 'Bearer realm="ftp://x/y"'}, "no http address"),
        (401, {"WWW-Authenticate": 'Bearer realm="/token"'}, "no http address"),
        (401, {"WWW-Authenticate": 'Bearer realm="http://[::zz/token"'}, "no address"),
        (403, {}, "refuses everybody"),
        (302, {"Location": "/login"}, "answered 302 to /v2/"),
    ],
)
async def test_a_handshake_that_leads_nowhere_is_unknown(
    registry: FakeRegistry, connect: Connect, status: int, headers: dict[str, str], reason: str
) -> None:
    registry.always["ping"] = answer(status, headers)
    found = await connect().probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert reason in found.reason
    assert registry.count() == {"ping": 1}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"token": ""}', b'{"token": 7}', b'{"token": "a\\nb"}', b'{"token": "\\u00e9"}', b"\xff"],
)
async def test_a_token_service_without_a_token_is_unknown(
    registry: FakeRegistry, connect: Connect, body: bytes
) -> None:
    registry.auth = "bearer"
    registry.always["token"] = answer(200, {"Content-Type": "application/json"}, body)
    found = await connect().probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "without a token" in found.reason


@pytest.mark.asyncio
@pytest.mark.parametrize(("status", "asked"), [(302, 1), (400, 1), (429, 3), (500, 3), (503, 3)])
async def test_a_failing_token_service_is_unknown(
    registry: FakeRegistry, connect: Connect, status: int, asked: int
) -> None:
    registry.auth = "bearer"
    registry.always["token"] = answer(status, {"Location": "/v2/"})
    found = await connect().probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert f"answered {status}" in found.reason
    assert registry.count() == {"ping": 1, "token": asked}


@pytest.mark.parametrize(
    ("realm", "secure", "allowed"),
    [
        ("https://auth.example.com/token?x=1", True, True),
        ("http://auth.example.com/token", True, False),
        ("http://auth.example.com/token", False, True),
        ("http://127.0.0.1:5001/token", True, True),
    ],
)
def test_a_tls_registry_cannot_send_credentials_to_a_plain_service(realm: str, secure: bool, allowed: bool) -> None:
    challenge = Challenge("bearer", {"realm": realm, "service": "s"})
    if allowed:
        assert str(parse_service(challenge, secure=secure).realm) == realm
    else:
        with pytest.raises(RegistryError, match="without TLS"):
            parse_service(challenge, secure=secure)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["ping", "token", "HEAD", "GET", "DELETE", "PUT"])
@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 429, 500])
async def test_no_answer_tells_a_secret(
    registry: FakeRegistry, connect: Connect, tmp_path: Path, kind: str, status: int
) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest())
    leak = json.dumps({"errors": [{"code": f"CODE {PASSWORD}", "message": PASSWORD}]}).encode()
    leaks = {"Content-Type": "application/json", "Location": f"/{PASSWORD}", "X": PASSWORD, "Retry-After": "0"}
    registry.always[kind] = answer(status, leaks, leak)
    client = connect(keychain=log_in(tmp_path, registry))
    results: list[Any] = [
        await client.probe(VM, "hibernate"),
        await client.inspect(VM, "hibernate"),
        await client.copy(VM, "hibernate", "orphan-0"),
        await client.drop(VM, "hibernate"),
    ]
    told = repr(results) + repr(client._tokens._entries)
    for secret in (PASSWORD, BASIC.removeprefix("Basic "), "issued-token"):
        assert secret not in told
    assert "\n" not in told
