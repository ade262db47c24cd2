"""drop and copy: what is done, what is refused, and what nobody knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cocoon_operator.api.answers import Done, Refused, Unknown
from cocoon_operator.clients.registry import Patience, RegistryClient
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
BODY = manifest("img:1")
DIGEST = digest_of(BODY)
INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.mark.asyncio
@pytest.mark.scenario("S321", "N202")
async def test_a_dropped_tag_is_gone_and_dropping_it_again_is_done(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    client = connect()
    assert await client.drop(VM, "hibernate") == Done()
    assert ("base/vk-ns-demo-0", "hibernate") not in registry.manifests
    assert await client.drop(VM, "hibernate") == Done()
    assert registry.count() == {"ping": 1, "DELETE": 2}


@pytest.mark.asyncio
@pytest.mark.scenario("S325")
@pytest.mark.parametrize("status", [200, 202, 404])
async def test_a_drop_that_the_registry_confirms_is_done(registry: FakeRegistry, connect: Connect, status: int) -> None:
    registry.always["DELETE"] = answer(status)
    assert await connect().drop(VM, "hibernate") == Done()
    assert registry.count() == {"ping": 1, "DELETE": 1}


@pytest.mark.asyncio
@pytest.mark.scenario("S325", "N204")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (answer(400), "answered 400"),
        (errors(400, "DIGEST_INVALID"), "400, DIGEST_INVALID"),
        (answer(401), "refuses the operator's credentials (401)"),
        (errors(403, "DENIED"), "refuses the operator's credentials (403, DENIED)"),
        (errors(405, "UNSUPPORTED"), "deletes are disabled in the registry"),
        (answer(409), "answered 409"),
        (answer(429), "answered 429"),
        (answer(429, {"Retry-After": "0"}), "answered 429"),
    ],
)
async def test_a_drop_that_the_registry_refuses_left_the_tag_as_it_was(
    registry: FakeRegistry, connect: Connect, fault: Fault, reason: str
) -> None:
    registry.always["DELETE"] = fault
    result = await connect().drop(VM, "hibernate")
    assert isinstance(result, Refused)
    assert reason in result.reason
    assert registry.count() == {"ping": 1, "DELETE": 1}


@pytest.mark.asyncio
@pytest.mark.scenario("S325")
@pytest.mark.parametrize("status", [204, 302, 408, 499, 500, 502, 503, 504, 507])
async def test_a_drop_without_a_clear_answer_is_unknown_and_never_repeated(
    registry: FakeRegistry, connect: Connect, status: int
) -> None:
    registry.always["DELETE"] = answer(status, {"Retry-After": "0", "Location": "/v2/elsewhere"})
    assert isinstance(await connect().drop(VM, "hibernate"), Unknown)
    assert registry.count() == {"ping": 1, "DELETE": 1}


@pytest.mark.asyncio
async def test_a_drop_whose_connection_breaks_is_sent_once(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    registry.always["DELETE"] = break_off
    client = connect()
    await client.probe(VM, "hibernate")  # a connection that was used before is the one that libraries like to retry
    assert await client.drop(VM, "hibernate") == Unknown(f"127.0.0.1:{registry.port} broke the connection off")
    assert registry.count()["DELETE"] == 1


@pytest.mark.asyncio
async def test_w39_a_drop_that_hangs_is_unknown_and_sent_once(registry: FakeRegistry, connect: Connect) -> None:
    registry.always["DELETE"] = registry.hang
    client = connect(patience=Patience(total=2, attempt=0.2, tries=3, first_wait=0.01))
    assert await client.drop(VM, "hibernate") == Unknown(f"127.0.0.1:{registry.port} did not answer within 0.2 s")
    assert registry.count()["DELETE"] == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", [answer(503), answer(404), break_off, answer(429)])
async def test_a_drop_does_not_repeat_its_handshake_and_sends_nothing_after_a_failed_one(
    registry: FakeRegistry, connect: Connect, fault: Fault
) -> None:
    registry.always["ping"] = fault
    assert isinstance(await connect().drop(VM, "hibernate"), Unknown)
    assert registry.count() == {"ping": 1}


@pytest.mark.asyncio
async def test_a_drop_for_which_no_token_is_given_is_refused(registry: FakeRegistry, connect: Connect) -> None:
    registry.auth = "bearer"
    result = await connect().drop(VM, "hibernate")
    assert isinstance(result, Refused)
    assert "refuses anonymous requests (401)" in result.reason
    assert registry.count() == {"ping": 1, "token": 1}


@pytest.mark.asyncio
@pytest.mark.scenario("S325")
async def test_w09_a_drop_answered_404_by_somebody_else_is_unknown(registry: FakeRegistry, connect: Connect) -> None:
    registry.put(VM, "hibernate", BODY)
    registry.script["DELETE"].append(answer(404, mark=False))
    client = connect()
    assert await client.drop(VM, "hibernate") == Unknown(
        f"DELETE base/{VM}:hibernate was answered 404, but the tag is there"
    )
    registry.always.update(dict.fromkeys(("ping", "HEAD", "GET", "DELETE"), answer(404, mark=False)))
    assert isinstance(await client.drop(VM, "hibernate"), Unknown)
    assert registry.count()["DELETE"] == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", [answer(404, mark=False), errors(404, "MANIFEST_UNKNOWN")])
async def test_a_404_of_a_registry_that_does_not_mark_its_answers_is_done(
    registry: FakeRegistry, connect: Connect, fault: Fault
) -> None:
    registry.always.update(HEAD=fault, GET=fault, DELETE=fault)
    assert await connect().drop(VM, "hibernate") == Done()


@pytest.mark.asyncio
async def test_a_digest_is_never_dropped(registry: FakeRegistry, connect: Connect) -> None:
    assert isinstance(await connect().drop(VM, DIGEST), Refused)
    assert not registry.requests


@pytest.mark.asyncio
@pytest.mark.parametrize("source", ["hibernate", DIGEST])
async def test_a_copy_has_the_same_bytes_type_and_digest(registry: FakeRegistry, connect: Connect, source: str) -> None:
    body = b'{  "schemaVersion": 2,\n "odd": "spacing" }' if source == "hibernate" else BODY
    registry.put(VM, "hibernate", body, INDEX)
    assert await connect().copy(VM, source, "orphan-0123456789ab") == Done()
    assert registry.manifests["base/vk-ns-demo-0", "orphan-0123456789ab"] == (INDEX, body)
    assert registry.manifests["base/vk-ns-demo-0", "hibernate"] == (INDEX, body)
    assert registry.count() == {"ping": 1, "GET": 1, "PUT": 1, "HEAD": 1}


@pytest.mark.asyncio
async def test_a_copy_of_nothing_is_refused(registry: FakeRegistry, connect: Connect) -> None:
    assert await connect().copy(VM, DIGEST, "hibernate") == Refused(f"base/{VM}@{DIGEST} does not exist")
    assert registry.count() == {"ping": 1, "GET": 1}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "fault", "outcome", "puts"),
    [
        ("GET", answer(503), Unknown, 0),
        ("GET", answer(404, mark=False), Refused, 0),
        ("GET", answer(403), Refused, 0),
        ("GET", answer(200, {"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": DIGEST}, b"other"), Unknown, 0),
        ("PUT", errors(400, "MANIFEST_INVALID"), Refused, 1),
        ("PUT", answer(403), Refused, 1),
        ("PUT", answer(404), Refused, 1),
        ("PUT", answer(413), Refused, 1),
        ("PUT", answer(307, {"Location": "/"}), Unknown, 1),
        ("PUT", answer(500), Unknown, 1),
        ("PUT", break_off, Unknown, 1),
        ("PUT", answer(201), Unknown, 1),  # says so, but does nothing
        ("HEAD", answer(503), Unknown, 1),
        ("HEAD", answer(200, {"Content-Type": "x", "Docker-Content-Digest": digest_of(b"x")}, b"x"), Unknown, 1),
    ],
)
async def test_a_copy_that_is_not_verified_is_not_done(
    registry: FakeRegistry, connect: Connect, *, kind: str, fault: Fault, outcome: type, puts: int
) -> None:
    registry.put(VM, "hibernate", BODY)
    registry.always[kind] = fault
    assert isinstance(await connect().copy(VM, "hibernate", "orphan-0123456789ab"), outcome)
    assert registry.count()["PUT"] == puts


@pytest.mark.asyncio
async def test_a_copy_needs_a_tag(registry: FakeRegistry, connect: Connect) -> None:
    assert isinstance(await connect().copy(VM, "hibernate", DIGEST), Refused)
    assert not registry.requests
