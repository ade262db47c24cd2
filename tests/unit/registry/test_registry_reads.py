"""probe and inspect: present, absent, unknown, and nothing in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiohttp import web

from cocoon_operator.api.answers import Absent, Present, Unknown
from cocoon_operator.clients.registry import Patience, RegistryAddress, RegistryClient
from tests.unit.registry.fake_registry import (
    OCI_MANIFEST,
    FakeRegistry,
    Fault,
    answer,
    break_off,
    digest_of,
    errors,
    manifest,
)

Connect = Callable[..., RegistryClient]
VM = "vk-ns-demo-0"
BODY = manifest("registry.example.com/ubuntu:24.04")
DIGEST = digest_of(BODY)
GOOD = {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": DIGEST}
SHORT_DIGEST = {"Docker-Content-Digest": "sha256:abc"}


def good_head(**changed: str) -> Fault:
    return answer(200, {**GOOD, **changed}, BODY)


@pytest.mark.asyncio
@pytest.mark.scenario("S321")
async def test_absent_then_present_then_absent(registry: FakeRegistry, connect: Connect) -> None:
    client = connect()
    assert await client.probe(VM, "hibernate") == Absent()
    registry.put(VM, "hibernate", BODY)
    assert await client.probe(VM, "hibernate") == Present(DIGEST)
    assert await client.inspect(VM, "hibernate") == Present(DIGEST, "registry.example.com/ubuntu:24.04")
    assert await client.probe(VM, DIGEST) == Present(DIGEST)
    assert await client.inspect(VM, "latest") == Absent()
    assert registry.requests[1].path == f"/v2/base/{VM}/manifests/hibernate"


@pytest.mark.asyncio
@pytest.mark.scenario("S323")
async def test_a_digest_is_asked_by_its_own_address(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    assert await connect().inspect(VM, DIGEST) == Present(DIGEST, "registry.example.com/ubuntu:24.04")
    assert registry.requests[-1].path == f"/v2/base/{VM}/manifests/{DIGEST}"


@pytest.mark.asyncio
@pytest.mark.scenario("S324")
@pytest.mark.parametrize(
    ("status", "reason", "asked"),
    [
        (400, "answered 400", 1),
        (401, "refuses the operator's credentials", 1),
        (403, "refuses the operator's credentials", 1),
        (405, "answered 405", 1),
        (410, "answered 410", 1),
        (204, "answered 204", 1),
        (301, "redirects", 1),
        (307, "redirects", 1),
        (501, "answered 501", 1),
        (408, "answered 408", 3),
        (429, "answered 429", 3),
        (500, "answered 500", 3),
        (502, "answered 502", 3),
        (503, "answered 503", 3),
        (504, "answered 504", 3),
    ],
)
@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_every_other_status_is_unknown(
    registry: FakeRegistry, connect: Connect, *, method: str, status: int, reason: str, asked: int
) -> None:
    registry.always[method] = answer(status, {"Location": f"{registry.base}/elsewhere"})
    client = connect()
    found = await (client.probe if method == "HEAD" else client.inspect)(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert reason in found.reason
    assert registry.count() == {"ping": 1, method: asked}


@pytest.mark.asyncio
@pytest.mark.scenario("S324")
@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Content-Type": OCI_MANIFEST}, "Docker-Content-Digest"),
        ({"Content-Type": OCI_MANIFEST, **SHORT_DIGEST}, "Docker-Content-Digest"),
        ({"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": DIGEST.upper()}, "Docker-Content-Digest"),
        ({"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": "sha512:" + "0" * 128}, "Docker-Content-Digest"),
        ({"Content-Type": "", "Docker-Content-Digest": DIGEST}, "Content-Type"),
    ],
)
@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_a_200_that_is_no_manifest_is_unknown(
    registry: FakeRegistry, connect: Connect, method: str, headers: dict[str, str], reason: str
) -> None:
    registry.always[method] = answer(200, headers, BODY)
    client = connect()
    found = await (client.probe if method == "HEAD" else client.inspect)(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert reason in found.reason


@pytest.mark.asyncio
@pytest.mark.scenario("S324")
async def test_a_head_without_length_is_unknown(registry: FakeRegistry, connect: Connect) -> None:
    async def chunked(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=GOOD)
        response.enable_chunked_encoding()
        await response.prepare(request)
        return response

    registry.always["HEAD"] = chunked
    found = await connect().probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "Content-Length" in found.reason


@pytest.mark.asyncio
async def test_bytes_that_are_not_those_of_the_digest_are_unknown(registry: FakeRegistry, connect: Connect) -> None:
    registry.always["GET"] = answer(200, GOOD, BODY + b" ")
    found = await connect().inspect(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "does not have the digest" in found.reason


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_another_digest_than_the_one_asked_for_is_unknown(
    registry: FakeRegistry, connect: Connect, method: str
) -> None:
    registry.always[method] = answer(200, GOOD, BODY)
    client = connect()
    found = await (client.probe if method == "HEAD" else client.inspect)(VM, digest_of(b"another"))
    assert isinstance(found, Unknown)
    assert "another manifest" in found.reason


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "base_image"),
    [
        (b"{}", ""),
        (b"[]", ""),
        (b"not json", ""),
        (b'{"annotations": null}', ""),
        (b'{"annotations": {"cocoonstack.snapshot.baseimage": 7}}', ""),
        (b'{"annotations": {"cocoonstack.snapshot.baseimage": "img:1"}}', "img:1"),
    ],
)
async def test_a_manifest_without_a_base_image_is_present_all_the_same(
    registry: FakeRegistry, connect: Connect, body: bytes, base_image: str
) -> None:
    digest = registry.put(VM, "hibernate", body)
    assert await connect().inspect(VM, "hibernate") == Present(digest, base_image)


@pytest.mark.asyncio
async def test_a_body_beyond_4_mib_is_not_read_to_its_end(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", b" " * (4 * 1024 * 1024 + 1))
    registry.put(VM, "latest", b" " * (4 * 1024 * 1024))
    client = connect()
    found = await client.inspect(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "4 MiB" in found.reason
    assert isinstance(await client.inspect(VM, "latest"), Present)


@pytest.mark.asyncio
@pytest.mark.scenario("N201")
async def test_every_manifest_type_is_accepted(registry: FakeRegistry, connect: Connect) -> None:
    client = connect()
    await client.probe(VM, "hibernate")
    await client.inspect(VM, "hibernate")
    for seen in (*registry.seen("HEAD"), *registry.seen("GET")):
        assert {kind.strip() for kind in seen.accept.split(",")} == {
            "application/vnd.oci.image.manifest.v1+json",
            "application/vnd.oci.image.index.v1+json",
            "application/vnd.docker.distribution.manifest.v1+json",
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            "application/vnd.docker.distribution.manifest.v2+json",
            "application/vnd.docker.distribution.manifest.list.v2+json",
        }


@pytest.mark.asyncio
async def test_a_passing_failure_is_asked_again(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    registry.script["HEAD"].extend([answer(503), break_off])
    assert await connect().probe(VM, "hibernate") == Present(DIGEST)
    assert registry.count() == {"ping": 2, "HEAD": 3}  # what broke off may be another server by now


@pytest.mark.asyncio
async def test_a_broken_connection_is_tried_three_times_and_no_more(registry: FakeRegistry, connect: Connect) -> None:
    registry.always["HEAD"] = break_off
    found = await connect().probe(VM, "hibernate")
    assert found == Unknown(f"127.0.0.1:{registry.port} broke the connection off")
    assert registry.count()["HEAD"] == 3


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("retry_after", "asked"),
    [({"Retry-After": "0"}, 3), ({}, 3), ({"Retry-After": "x"}, 3), ({"Retry-After": "60"}, 1)],
)
@pytest.mark.parametrize("kind", ["HEAD", "ping"])
async def test_429_is_obeyed_and_ends_the_question_when_it_asks_for_more_time_than_there_is(
    registry: FakeRegistry, connect: Connect, kind: str, retry_after: dict[str, str], asked: int
) -> None:
    registry.always[kind] = answer(429, retry_after)
    found = await connect().probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "429" in found.reason
    assert registry.count()[kind] == asked


@pytest.mark.asyncio
async def test_nobody_there_is_unknown(connect: Connect, registry: FakeRegistry) -> None:
    client = connect()
    port = registry.port
    await registry.__aexit__()
    found = await client.probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert found.reason == f"cannot connect to 127.0.0.1:{port}: Connection refused"


@pytest.mark.asyncio
@pytest.mark.parametrize("host", ["registry.invalid", "xn--.invalid", "a" * 64 + ".invalid"])
async def test_a_host_that_does_not_exist_is_unknown(connect: Connect, host: str) -> None:
    assert isinstance(await connect(address=RegistryAddress(host)).probe(VM, "hibernate"), Unknown)


@pytest.mark.asyncio
@pytest.mark.parametrize(("vm", "reference"), [("../other", "hibernate"), (VM, "a/b"), (VM, ""), (VM, "sha256:0")])
async def test_names_that_are_none_are_unknown_without_a_request(
    registry: FakeRegistry, connect: Connect, vm: str, reference: str
) -> None:
    assert isinstance(await connect().probe(vm, reference), Unknown)
    assert not registry.requests


@pytest.mark.asyncio
async def test_a_closed_client_answers_unknown(connect: Connect) -> None:
    client = connect()
    await client.close()
    assert await client.probe(VM, "hibernate") == Unknown("the registry client is closed")


@pytest.mark.asyncio
@pytest.mark.scenario("S326")
@pytest.mark.parametrize("refusal", [answer(403), answer(401), answer(503), answer(404), break_off])
async def test_w08_a_failed_handshake_is_forgotten(registry: FakeRegistry, connect: Connect, refusal: Fault) -> None:
    registry.put(VM, "hibernate", BODY)
    client = connect()
    registry.always["ping"] = refusal
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    del registry.always["ping"]
    assert await client.probe(VM, "hibernate") == Present(DIGEST)
    assert registry.count()["HEAD"] == 1


@pytest.mark.asyncio
@pytest.mark.scenario("S326")
async def test_w08_a_refused_token_is_forgotten(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    registry.auth = "bearer"
    client = connect()
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    registry.open_token_service = True
    assert await client.probe(VM, "hibernate") == Present(DIGEST)


@pytest.mark.asyncio
@pytest.mark.scenario("S327")
async def test_w09_a_404_of_the_handshake_is_not_absent(registry: FakeRegistry, connect: Connect) -> None:
    registry.always["ping"] = answer(404, mark=False)
    client = connect()
    for question in (client.probe, client.inspect):
        found = await question(VM, "hibernate")
        assert isinstance(found, Unknown)
        assert "check OCI_REGISTRY" in found.reason
    assert registry.count() == {"ping": 2}


@pytest.mark.asyncio
@pytest.mark.scenario("S327")
async def test_w09_a_404_of_the_token_service_is_not_absent(registry: FakeRegistry, connect: Connect) -> None:
    registry.auth = "bearer"
    registry.always["token"] = answer(404)
    found = await connect().probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "token service" in found.reason
    assert registry.count() == {"ping": 1, "token": 1}


@pytest.mark.asyncio
@pytest.mark.scenario("S327")
async def test_w09_a_proxy_that_takes_the_registrys_place_later_is_not_absent(
    registry: FakeRegistry, connect: Connect
) -> None:
    registry.put(VM, "hibernate", BODY)
    client = connect()
    assert await client.probe(VM, "hibernate") == Present(DIGEST)
    page = answer(404, {"Content-Type": "text/html"}, b"default backend - 404", mark=False)
    registry.always.update(ping=page, HEAD=page, GET=page)
    assert isinstance(await client.probe(VM, "hibernate"), Unknown)
    assert isinstance(await client.inspect(VM, "hibernate"), Unknown)
    registry.always.clear()
    assert await client.probe(VM, "hibernate") == Present(DIGEST)


@pytest.mark.asyncio
@pytest.mark.scenario("S327")
async def test_w09_a_single_404_that_nobody_owns_up_to_is_asked_again(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    registry.script["HEAD"].append(answer(404, mark=False))
    assert await connect().probe(VM, "hibernate") == Present(DIGEST, "registry.example.com/ubuntu:24.04")


@pytest.mark.asyncio
@pytest.mark.scenario("S324")
@pytest.mark.parametrize(
    ("not_found", "requests"),
    [
        (answer(404), {"ping": 1, "HEAD": 1}),
        (errors(404, "MANIFEST_UNKNOWN"), {"ping": 1, "HEAD": 1, "GET": 1}),
        (errors(404, "NAME_UNKNOWN"), {"ping": 1, "HEAD": 1, "GET": 1}),
        (errors(404, "NOT_FOUND"), {"ping": 1, "HEAD": 1, "GET": 1}),
        (errors(404, "odd code"), {"ping": 2, "HEAD": 1, "GET": 1}),
        (answer(404, mark=False), {"ping": 2, "HEAD": 1, "GET": 1}),
    ],
)
async def test_a_404_of_the_manifest_is_absent_and_costs_more_only_if_it_could_be_somebody_elses(
    registry: FakeRegistry, connect: Connect, not_found: Fault, requests: dict[str, int]
) -> None:
    registry.always.update(HEAD=not_found, GET=not_found)
    assert await connect().probe(VM, "hibernate") == Absent()
    assert registry.count() == requests


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["ping", "HEAD"])
async def test_w39_a_registry_that_hangs_is_given_up(registry: FakeRegistry, connect: Connect, kind: str) -> None:
    registry.always[kind] = registry.hang
    client = connect(patience=Patience(total=0.5, attempt=0.2, tries=10, first_wait=0.01, longest_wait=0.01))
    found = await client.probe(VM, "hibernate")
    assert isinstance(found, Unknown)
    assert "did not answer within 0.2 s" in found.reason or "no answer within 0.5 s" in found.reason
    assert 1 <= registry.count()[kind] <= 3


@pytest.mark.asyncio
async def test_w39_a_body_that_never_ends_is_given_up(registry: FakeRegistry, connect: Connect) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**GOOD, "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"{")
        await registry.hang(request)
        return response

    registry.always["GET"] = drip
    client = connect(patience=Patience(total=0.5, attempt=0.2, tries=1))
    assert await client.inspect(VM, "hibernate") == Unknown(f"127.0.0.1:{registry.port} did not answer within 0.2 s")


@pytest.mark.asyncio
async def test_w39_one_hanging_question_holds_back_no_other(registry: FakeRegistry, connect: Connect) -> None:
    arrived = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        arrived.set()
        return await registry.hang(request)

    registry.put(VM, "hibernate", BODY)
    client = connect()
    registry.script["HEAD"].append(hang)
    slow = asyncio.create_task(client.probe(VM, "hibernate"))
    await arrived.wait()
    assert await client.probe(VM, "hibernate") == Present(DIGEST)
    assert not slow.done()
    slow.cancel()


@pytest.mark.asyncio
async def test_every_request_is_counted_once(registry: FakeRegistry, connect: Connect) -> None:
    told: list[tuple[str, int | str]] = []
    registry.put(VM, "hibernate", BODY)
    registry.script["HEAD"].extend([answer(503), break_off])
    client = connect(on_request=lambda kind, code, _: told.append((kind, code)))
    await client.probe(VM, "hibernate")
    await client.inspect(VM, "hibernate")
    await client.drop(VM, "hibernate")
    assert told == [
        ("handshake", "tls"),
        ("handshake", 200),
        ("probe", 503),
        ("probe", "lost"),
        ("handshake", "tls"),
        ("handshake", 200),
        ("probe", 200),
        ("inspect", 200),
        ("drop", 202),
    ]
