"""The informer's cache ends up right, whatever happens to the watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from cocoon_operator.api import keys
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.podinformer import PodInformer
from cocoon_operator.engine.queue import Backoff
from cocoon_operator.engine.store import Key
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer
from tests.unit.kubernetes.waiting import until

PODS = "/api/v1/namespaces/ns/pods"
DEMO = Key("ns", "demo")


def pod(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {keys.LABEL_SET: "demo"},
            "annotations": annotations,
        },
    }


class Stage:
    """An informer that runs, and what it knows."""

    def __init__(self, api: KubeApiServer, client: KubeClient) -> None:
        self.api = api
        self.enqueued: list[Key] = []
        self.cache = Cache(self.enqueued.append)
        self.informer = PodInformer(client, self.cache, backoff=Backoff(first=0.02, longest=0.05))

    def names(self) -> list[str]:
        return [item.name for item in self.cache.view(DEMO, datetime.now(UTC)).pods]

    async def watching(self) -> None:
        await until(lambda: bool(self.api.watches))


@pytest_asyncio.fixture
async def stage(api: KubeApiServer, client: KubeClient) -> AsyncIterator[Stage]:
    api.put(f"{PODS}/demo-0", pod("demo-0"))
    api.put(f"{PODS}/stranger", {"kind": "Pod", "metadata": {"name": "stranger", "namespace": "ns"}})
    stage = Stage(api, client)
    running = asyncio.create_task(stage.informer.run())
    await stage.watching()
    yield stage
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.asyncio
async def test_w37_only_pods_with_the_label_are_listed_and_kept(stage: Stage) -> None:
    assert stage.names() == ["demo-0"]
    assert len(stage.cache.pods) == 1
    assert all(query["labelSelector"] == keys.LABEL_SET for query in stage.api.queries)
    assert stage.api.queries[-1]["allowWatchBookmarks"] == "true"


@pytest.mark.asyncio
async def test_events_change_the_cache_and_enqueue_the_set(stage: Stage) -> None:
    stage.enqueued.clear()
    stage.api.put(f"{PODS}/demo-1", pod("demo-1"))
    await until(lambda: stage.names() == ["demo-0", "demo-1"])
    stage.api.remove(f"{PODS}/demo-0")
    await until(lambda: stage.names() == ["demo-1"])
    stage.api.put(f"{PODS}/demo-1", {**pod("demo-1"), "metadata": {"name": "demo-1", "namespace": "ns", "labels": {}}})
    await until(lambda: stage.names() == [])
    assert stage.enqueued == [DEMO, DEMO, DEMO]


@pytest.mark.asyncio
async def test_a_deletion_that_was_missed_is_seen_after_a_410(stage: Stage) -> None:
    stage.api.silent = True
    stage.api.remove(f"{PODS}/demo-0")
    stage.api.put(f"{PODS}/demo-1", pod("demo-1"))
    stage.api.forget_history()
    stage.api.silent = False
    await stage.api.cut_watches()
    await until(lambda: stage.names() == ["demo-1"])


@pytest.mark.asyncio
async def test_an_error_event_with_410_lists_again(stage: Stage) -> None:
    stage.api.silent = True
    stage.api.remove(f"{PODS}/demo-0")
    stage.api.forget_history()
    stage.api.silent = False
    await stage.api.say({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
    await until(lambda: stage.names() == [])


@pytest.mark.asyncio
async def test_a_cut_connection_goes_on_where_it_was_without_a_list(stage: Stage) -> None:
    lists = [query for query in stage.api.queries if "watch" not in query]
    await stage.api.cut_watches()
    stage.api.put(f"{PODS}/demo-1", pod("demo-1"))
    await until(lambda: stage.names() == ["demo-0", "demo-1"])
    assert [query for query in stage.api.queries if "watch" not in query] == lists


@pytest.mark.asyncio
async def test_a_silent_watch_is_broken_and_what_it_withheld_is_seen(stage: Stage) -> None:
    stage.api.silent = True
    stage.api.put(f"{PODS}/demo-1", pod("demo-1"))
    await asyncio.sleep(0.1)
    assert stage.names() == ["demo-0"]
    watches = stage.api.count("GET")
    await until(lambda: stage.api.count("GET") > watches)
    stage.api.silent = False
    await until(lambda: stage.names() == ["demo-0", "demo-1"])


@pytest.mark.asyncio
async def test_a_bookmark_moves_the_place_from_which_the_watch_goes_on(stage: Stage) -> None:
    await stage.api.say({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "900"}}})
    await until(lambda: stage.informer._version == "900")
    await stage.api.cut_watches()
    await stage.watching()
    assert stage.api.queries[-1]["resourceVersion"] == "900"


@pytest.mark.asyncio
async def test_another_error_event_lists_again_with_back_off(stage: Stage) -> None:
    stage.api.faults.append(Fault("status", 500, method="GET"))
    stage.api.remove(f"{PODS}/demo-0")
    await stage.api.say({"type": "ERROR", "object": {"kind": "Status", "code": 403, "reason": "Forbidden"}})
    await until(lambda: stage.names() == [])


@pytest.mark.asyncio
async def test_an_outage_at_the_start_is_waited_out(api: KubeApiServer, client: KubeClient) -> None:
    api.put(f"{PODS}/demo-0", pod("demo-0"))
    api.faults += [Fault("status", 403), Fault("status", 403)]
    stage = Stage(api, client)
    running = asyncio.create_task(stage.informer.run())
    assert stage.informer.freshness.age == float("inf")
    await until(lambda: stage.names() == ["demo-0"])
    assert stage.informer.freshness.age < 5
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
