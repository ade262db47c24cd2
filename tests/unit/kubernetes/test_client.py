"""The client against an API server that errs, hangs up, hangs and throttles."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cocoon_operator.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from cocoon_operator.api.pod import Pod
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection
from cocoon_operator.clients.kubernetes.failures import FencedError, UnsentError
from cocoon_operator.clients.kubernetes.resources import PODS, SETS
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer

POD = "/api/v1/namespaces/ns/pods/a"
RAW = dict[str, Any]


def pod(name: str = "a", **labels: str) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": {"nodeName": "n"}}


@pytest.mark.asyncio
async def test_get_decodes_into_the_type_asked_for(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    assert (await client.get(PODS, "ns", "a", Pod)).name == "a"
    assert (await client.get(PODS, "ns", "a", RAW))["spec"] == {"nodeName": "n"}


@pytest.mark.asyncio
async def test_list_follows_pages_and_selector(api: KubeApiServer, client: KubeClient) -> None:
    for index in range(5):
        api.put(f"/api/v1/namespaces/ns/pods/p{index}", pod(f"p{index}", app="x"))
    api.put("/api/v1/namespaces/ns/pods/other", pod("other"))
    pods, version = await client.list_objects(PODS, Pod, selector="app=x")
    assert [item.name for item in pods] == ["p0", "p1", "p2", "p3", "p4"]
    assert version == str(api.version)
    assert api.count("GET") == 3


@pytest.mark.asyncio
async def test_list_is_read_whole_when_the_continue_token_expired(api: KubeApiServer, client: KubeClient) -> None:
    for index in range(3):
        api.put(f"/api/v1/namespaces/ns/pods/p{index}", pod(f"p{index}"))

    def expire(request: Any) -> None:
        if "continue" in request.query:
            api.faults.append(Fault("status", 410))

    api.on_request = expire
    pods, _ = await client.list_objects(PODS, Pod)
    assert len(pods) == 3
    assert "limit" not in api.queries[-1]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", ForbiddenError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (410, "Gone", ExpiredError),
        (422, "Invalid", InvalidError),
    ],
)
async def test_every_refusal_has_its_type_and_is_sent_once(
    api: KubeApiServer, client: KubeClient, code: int, reason: str, kind: type[KubeError]
) -> None:
    api.faults.append(Fault("status", code, status={"message": "because", "reason": reason}))
    with pytest.raises(kind, match="because") as caught:
        await client.merge_patch(PODS, "ns", "a", {}, RAW)
    assert type(caught.value) is kind
    assert caught.value.outcome_known
    assert caught.value.reason == reason
    assert api.count("PATCH") == 1


@pytest.mark.asyncio
async def test_a_read_is_repeated_until_it_is_answered(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    api.faults += [Fault("drop"), Fault("status", 503), Fault("hang")]
    assert (await client.get(PODS, "ns", "a", Pod)).name == "a"
    assert api.count("GET") == 4


@pytest.mark.asyncio
async def test_a_read_gives_up_within_its_budget(api: KubeApiServer, client: KubeClient) -> None:
    api.faults += [Fault("status", 500)] * 50
    with pytest.raises(UnavailableError):
        await client.get(PODS, "ns", "a", Pod)
    assert 2 <= api.count("GET") < 20


@pytest.mark.asyncio
async def test_retry_after_is_obeyed(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    api.faults.append(Fault("status", 429, {"Retry-After": "1"}))
    loop = asyncio.get_running_loop()
    started = loop.time()
    await client.get(PODS, "ns", "a", Pod)
    assert loop.time() - started >= 1.0


@pytest.mark.asyncio
async def test_a_wait_longer_than_the_budget_ends_the_call(api: KubeApiServer, client: KubeClient) -> None:
    api.faults.append(Fault("status", 429, {"Retry-After": "3600"}))
    with pytest.raises(ThrottledError) as caught:
        await client.get(PODS, "ns", "a", Pod)
    assert caught.value.retry_after == 3600
    assert api.count("GET") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["lose", "drop", "hang", "status"])
async def test_a_create_is_never_repeated_once_it_may_have_been_seen(
    api: KubeApiServer, client: KubeClient, kind: str
) -> None:
    api.faults.append(Fault(kind))
    with pytest.raises(UnavailableError) as caught:
        await client.create(PODS, "ns", pod(), RAW)
    assert not caught.value.outcome_known
    assert api.count("POST") == 1


@pytest.mark.asyncio
async def test_a_throttled_create_is_repeated(api: KubeApiServer, client: KubeClient) -> None:
    api.faults.append(Fault("status", 429, {"Retry-After": "0"}))
    await client.create(PODS, "ns", pod(), RAW)
    assert api.count("POST") == 2


@pytest.mark.asyncio
async def test_a_patch_is_repeated_only_without_a_version(api: KubeApiServer, client: KubeClient) -> None:
    stored = api.put(POD, pod())
    api.faults.append(Fault("lose"))
    await client.merge_patch(PODS, "ns", "a", {"metadata": {"labels": {"x": "1"}}}, RAW)
    assert api.count("PATCH") == 2
    version = api.objects[POD]["metadata"]["resourceVersion"]
    assert version != stored["metadata"]["resourceVersion"]
    api.faults.append(Fault("lose"))
    with pytest.raises(UnavailableError):
        await client.merge_patch(PODS, "ns", "a", {"metadata": {"resourceVersion": version}, "x": 1}, RAW)
    assert api.count("PATCH") == 3


@pytest.mark.asyncio
async def test_a_delete_carries_its_preconditions(api: KubeApiServer, client: KubeClient) -> None:
    stored = api.put(POD, pod())["metadata"]
    with pytest.raises(ConflictError):
        await client.delete(PODS, "ns", "a", uid="another", resource_version=stored["resourceVersion"])
    with pytest.raises(ConflictError):
        await client.delete(PODS, "ns", "a", uid=stored["uid"], resource_version="1")
    await client.delete(PODS, "ns", "a", uid=stored["uid"], resource_version=stored["resourceVersion"])
    assert api.objects[POD]["metadata"]["deletionTimestamp"]


@pytest.mark.asyncio
async def test_a_doubtful_attempt_is_not_forgotten_by_a_later_one_that_never_left(
    api: KubeApiServer, client: KubeClient
) -> None:
    api.put(POD, pod())
    api.faults.append(Fault("lose"))
    allowed = iter([10.0, 0.0])
    client.set_fence(lambda: next(allowed))
    with pytest.raises(UnavailableError) as caught:
        await client.merge_patch(PODS, "ns", "a", {"metadata": {"labels": {"x": "1"}}}, RAW)
    assert not caught.value.outcome_known


@pytest.mark.asyncio
@pytest.mark.scenario("S312")
async def test_nothing_is_written_behind_the_fence(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    client.set_fence(lambda: 0.0)
    with pytest.raises(FencedError) as caught:
        await client.create(PODS, "ns", pod("b"), RAW)
    assert caught.value.outcome_known
    assert (await client.get(PODS, "ns", "a", Pod)).name == "a"
    assert api.count("POST") == 0


@pytest.mark.asyncio
async def test_a_write_is_limited_to_what_is_left_of_the_lease(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    client.set_fence(lambda: 0.2)
    await client.merge_patch(PODS, "ns", "a", {"x": 1}, RAW)
    assert api.queries[-1]["timeout"] == "1s"
    api.faults.append(Fault("hang"))
    with pytest.raises(UnavailableError):
        await client.merge_patch(PODS, "ns", "a", {"metadata": {"resourceVersion": str(api.version)}}, RAW)


@pytest.mark.asyncio
async def test_no_server_is_told_from_no_answer() -> None:
    client = KubeClient(Connection("http://127.0.0.1:1", "a test"), limits=Limits(attempt=0.2, budget=0.5))
    with pytest.raises(UnsentError) as caught:
        await client.create(PODS, "ns", pod(), RAW)
    assert caught.value.outcome_known
    await client.close()


@pytest.mark.asyncio
async def test_an_answer_that_is_no_object_is_unavailable(api: KubeApiServer, client: KubeClient) -> None:
    api.put("/api/v1/namespaces/ns/pods/a", {"metadata": {"name": 7}})
    with pytest.raises(UnavailableError, match="cannot be read"):
        await client.get(PODS, "ns", "a", Pod)


@pytest.mark.asyncio
async def test_watch_yields_events_and_names_its_end(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    stream = client.watch(PODS, resource_version="100", seconds=10)
    first = await anext(stream)
    assert first.type == "ADDED"
    await api.say({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
    with pytest.raises(ExpiredError, match="too old"):
        await anext(stream)


@pytest.mark.asyncio
async def test_watch_of_a_forgotten_version_is_expired(api: KubeApiServer, client: KubeClient) -> None:
    api.put(POD, pod())
    api.forget_history()
    with pytest.raises(ExpiredError):
        await anext(client.watch(PODS, resource_version="1", seconds=10))


@pytest.mark.asyncio
async def test_a_silent_watch_is_broken(api: KubeApiServer, client: KubeClient) -> None:
    with pytest.raises(UnavailableError):
        await anext(client.watch(PODS, resource_version="100", seconds=10))


@pytest.mark.asyncio
async def test_a_line_in_many_pieces_is_one_event(api: KubeApiServer, client: KubeClient) -> None:
    big = pod("big")
    big["metadata"]["annotations"] = {"text": "ä" * 300_000}
    api.put("/api/v1/namespaces/ns/pods/big", big)
    event = await anext(client.watch(PODS, resource_version="100", seconds=10))
    assert len(bytes(event.object)) > 300_000


@pytest.mark.asyncio
async def test_the_token_is_read_again_before_it_expires_and_after_a_refusal(
    api: KubeApiServer, tmp_path: Path
) -> None:
    from cocoon_operator.clients.kubernetes.connection import TokenFile

    now = [0.0]
    token = tmp_path / "token"
    token.write_text("one\n")
    connection = Connection(api.url, "a test", credentials=TokenFile(token, clock=lambda: now[0]))
    client = KubeClient(connection)
    api.put(POD, pod())
    await client.get(PODS, "ns", "a", RAW)
    token.write_text("two")
    await client.get(PODS, "ns", "a", RAW)
    now[0] = 61.0
    await client.get(PODS, "ns", "a", RAW)
    token.write_text("three")
    api.faults.append(Fault("status", 401))
    await client.merge_patch(PODS, "ns", "a", {"x": 1}, RAW)
    await client.close()
    assert [headers["Authorization"] for headers in api.headers] == [
        "Bearer one",
        "Bearer one",
        "Bearer two",
        "Bearer two",
        "Bearer three",
    ]
    assert api.objects[POD]["x"] == 1


@pytest.mark.asyncio
async def test_every_request_is_told_to_the_observer(api: KubeApiServer) -> None:
    seen: list[tuple[str, str, str]] = []
    client = KubeClient(
        Connection(api.url, "a test"),
        observe=lambda verb, resource, code, _: seen.append((verb, resource, code)),
        limits=Limits(attempt=0.5, budget=2.0),
    )
    api.faults.append(Fault("status", 503))
    with pytest.raises(NotFoundError):
        await client.get(SETS, "ns", "a", RAW)
    await client.close()
    assert seen == [("get", "cocoonsets", "503"), ("get", "cocoonsets", "404")]
