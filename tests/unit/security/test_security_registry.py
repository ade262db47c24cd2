"""What a registry, its token service or somebody in their place may answer, and what must not come of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from cocoon_operator.api.answers import Absent, Answer, Done, Present, Refused, Unknown, WriteAnswer
from cocoon_operator.clients.registry import RegistryClient
from cocoon_operator.clients.registry.challenge import Challenge
from cocoon_operator.clients.registry.credentials import DockerKeychain
from cocoon_operator.clients.registry.failures import RegistryError
from cocoon_operator.clients.registry.manifests import Target, error_codes, read_length, read_manifest
from cocoon_operator.clients.registry.patience import parse_retry_after
from cocoon_operator.clients.registry.tokens import parse_service, parse_token
from cocoon_operator.clients.registry.transport import Reply
from tests.unit.registry.fake_registry import (
    OCI_MANIFEST,
    PASSWORD,
    USER,
    FakeRegistry,
    answer,
    digest_of,
    manifest,
)

Connect = Callable[..., RegistryClient]
VM = "vk-ns-demo-0"
DEEP = b"[" * 100_000
HUGE_NUMBER = b"1" + b"0" * 400
HOSTILE_BODIES = [DEEP, b'{"errors":' + DEEP, b'{"a":' * 50_000, b"\xff\xfe", b"null", b"\xef\xbb\xbf{}", b'"\\ud800"']
KINDS = ["ping", "token", "HEAD", "GET", "DELETE", "PUT"]


def login(folder: Path, registry: FakeRegistry) -> DockerKeychain:
    """Username and password for the registry, as docker writes them."""
    auths = {registry.address.host: {"username": USER, "password": PASSWORD}}
    (folder / "config.json").write_text(json.dumps({"auths": auths}))
    return DockerKeychain({"DOCKER_CONFIG": str(folder)})


async def ask_everything(client: RegistryClient) -> list[Answer | WriteAnswer]:
    return [
        await client.probe(VM, "hibernate"),
        await client.inspect(VM, "hibernate"),
        await client.copy(VM, "hibernate", "orphan-0"),
        await client.drop(VM, "hibernate"),
    ]


def reply(status: int = 200, headers: dict[str, str] | None = None, body: bytes = b"") -> Reply:
    return Reply(status, CIMultiDictProxy(CIMultiDict(headers or {})), body)


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [200, 401, 404])
async def test_no_body_makes_a_question_end_in_anything_but_an_answer(
    registry: FakeRegistry, connect: Connect, tmp_path: Path, kind: str, status: int
) -> None:
    registry.auth = "bearer"
    client = connect(keychain=login(tmp_path, registry))
    for body in HOSTILE_BODIES:
        registry.put(VM, "hibernate", manifest())
        headers = {"Content-Type": "application/json", "Retry-After": "99"}
        registry.always[kind] = answer(status, headers, body, mark=False)
        for told in await ask_everything(client):
            assert isinstance(told, (Present, Absent, Unknown, Done, Refused))
            assert len(getattr(told, "reason", "")) < 400


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_what_cannot_be_read_holds_nothing(body: bytes) -> None:
    assert isinstance(error_codes(reply(body=body)), list)
    headers = {"Docker-Content-Digest": digest_of(body), "Content-Type": OCI_MANIFEST}
    assert read_manifest(reply(headers=headers, body=body), Target("base/vm", "hibernate")).base_image == ""
    with pytest.raises(RegistryError, match="without a token"):
        parse_token(body, "auth.example.com")


@pytest.mark.parametrize(
    ("lifetime", "seconds"),
    [
        (b"300", 300.0),
        (HUGE_NUMBER, 86_400.0),
        (b"-" + HUGE_NUMBER, 60.0),
        (b"-1", 60.0),
        (b"true", 60.0),
        (b'"300"', 60.0),
        (b"null", 60.0),
        (b"[300]", 60.0),
    ],
)
def test_a_tokens_lifetime_is_bounded(lifetime: bytes, seconds: float) -> None:
    assert parse_token(b'{"token": "t", "expires_in": ' + lifetime + b"}", "auth.example.com") == ("t", seconds)


@pytest.mark.asyncio
async def test_a_compressed_answer_that_nobody_asked_for_is_not_unpacked(
    registry: FakeRegistry, connect: Connect
) -> None:
    body = manifest()
    headers = {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": digest_of(body), "Content-Encoding": "gzip"}
    bomb = gzip.compress(b" " * 64 * 1024 * 1024)
    for packed in (gzip.compress(body), bomb):
        registry.always["GET"] = answer(200, headers, packed)
        found = await connect().inspect(VM, "hibernate")
        assert isinstance(found, Unknown)
        assert "encoding" in found.reason


@pytest.mark.asyncio
async def test_only_a_manifest_may_be_large(registry: FakeRegistry, connect: Connect, tmp_path: Path) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest(note="x" * 1024 * 1024))
    client = connect(keychain=login(tmp_path, registry))
    assert isinstance(await client.inspect(VM, "hibernate"), Present)
    registry.always["token"] = answer(200, {}, b'{"token": "t", "note": "' + b"x" * 1024 * 1024 + b'"}')
    found = await connect(keychain=login(tmp_path, registry)).probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "more than 256 KiB" in found.reason


# -- what it says about a VM -------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("image", ["x" * 4097, "a\nb", "a\x1b[31mb", "\x00", "a b", "\u202egnp.exe"])
async def test_an_image_that_is_none_is_another_than_any_and_is_not_repeated(
    registry: FakeRegistry, connect: Connect, image: str
) -> None:
    digest = registry.put(VM, "hibernate", manifest(image))
    assert await connect().inspect(VM, "hibernate") == Present(digest, "(unreadable)")


@pytest.mark.asyncio
async def test_a_digest_is_believed_only_with_its_bytes(registry: FakeRegistry, connect: Connect) -> None:
    told = {"Docker-Content-Digest": digest_of(b"something else"), "Content-Type": OCI_MANIFEST}
    registry.always["GET"] = answer(200, told, manifest())
    client = connect()
    assert isinstance(await client.inspect(VM, "hibernate"), Unknown)
    assert isinstance(await client.copy(VM, "hibernate", "orphan-0"), Unknown)
    assert registry.count()["PUT"] == 0


# -- headers -----------------------------------------------------------------------------------------------------------


@given(st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, [0-9]{1,30} Jan [0-9]{1,30} [0-9:]{1,20} [+-][0-9]{1,30}"))
def test_no_retry_after_is_an_error(text: str) -> None:
    seconds = parse_retry_after(text, datetime(2030, 1, 1, tzinfo=UTC))
    assert seconds is None or 0 <= seconds < 1e12


@pytest.mark.parametrize("length", ["9" * 5000, "-1", "1e3", "٣", ""])
def test_no_length_is_an_error_of_ours(length: str) -> None:
    with pytest.raises(RegistryError, match="Content-Length"):
        read_length(reply(headers={"Content-Length": length}), Target("base/vm", "hibernate"))


@pytest.mark.asyncio
async def test_headers_without_number_are_no_answer(registry: FakeRegistry, connect: Connect) -> None:
    async def many(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        lines = b"".join(b"X-%d: y\r\n" % number for number in range(100_000))
        request.transport.write(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n")
        return web.Response()

    registry.always["HEAD"] = many
    assert isinstance(await connect().probe(VM, "hibernate"), Unknown)


# -- where it sends credentials ----------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_credentials_follow_no_redirect(
    registry: FakeRegistry, connect: Connect, tmp_path: Path, kind: str
) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest())
    async with FakeRegistry() as thief:
        registry.always[kind] = answer(307, {"Location": f"{thief.base}/v2/"})
        await ask_everything(connect(keychain=login(tmp_path, registry)))
        assert not thief.requests


@pytest.mark.parametrize(
    "realm",
    [
        "https://user:secret@auth.example.com/token",
        f"https://{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 60}.{'e' * 60}/token",
        "https://auth.example.com:99999/token",
        "https://auth example.com/token",
        "file:///etc/passwd",
        "//auth.example.com/token",
        "https:///token",
        "https://",
        "",
    ],
)
def test_a_token_service_has_a_plain_address(realm: str) -> None:
    with pytest.raises(RegistryError) as caught:
        parse_service(Challenge("bearer", {"realm": realm}), secure=True)
    assert "secret" not in caught.value.reason
    assert len(caught.value.reason) < 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("named", "asked_too"),
    [
        (f"repository:base/{VM}:*", [f"repository:base/{VM}:*"]),
        (f"repository:base/{VM}:metadata_read,pull", [f"repository:base/{VM}:metadata_read,pull"]),
        ("repository:base/vk-ns-other-0:pull", []),
        (f"repository:base/{VM}-more:pull", []),
        ("registry:catalog:*", []),
        (f"repository:base/{VM}:pull repository:somebody/else:pull,push", [f"repository:base/{VM}:pull"]),
        ("", []),
    ],
)
async def test_tokens_are_for_one_repository_whatever_the_registry_names(
    registry: FakeRegistry, connect: Connect, tmp_path: Path, named: str, asked_too: list[str]
) -> None:
    registry.auth = "bearer"
    registry.put(VM, "hibernate", manifest())
    challenge = f'Bearer realm="{registry.base}/token",service="registry.test",scope="{named}"'
    registry.script["DELETE"].append(answer(401, {"WWW-Authenticate": challenge}))
    assert await connect(keychain=login(tmp_path, registry)).drop(VM, "hibernate") == Done()
    first, second = ([value for key, value in seen.query if key == "scope"] for seen in registry.seen("token"))
    assert first == [f"repository:base/{VM}:pull,push,delete"]
    assert second == [*first, *asked_too]
