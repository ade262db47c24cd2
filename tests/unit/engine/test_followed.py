"""A pod that no label selects is followed by its name, for as long as a CocoonHibernation names it (S271)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine import followed
from cocoon_operator.engine.followed import FollowedPods
from cocoon_operator.engine.queue import Backoff
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import lone_key
from tests.unit.kubernetes.kube_api_server import KubeApiServer
from tests.unit.kubernetes.waiting import until

PODS = "/api/v1/namespaces/ns/pods"
SOLO = lone_key("ns", "solo")

pytestmark = pytest.mark.asyncio


def pod(name: str = "solo", **annotations: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "annotations": annotations},
    }


class Stage:
    """Who follows, whom, and who has to run."""

    def __init__(self, client: KubeClient) -> None:
        self.enqueued: list[Key] = []
        self.wanted = {SOLO}
        self.pods = FollowedPods(
            client, self.enqueued.append, lambda key: key in self.wanted, backoff=Backoff(first=0.02, longest=0.05)
        )


@pytest_asyncio.fixture
async def stage(client: KubeClient) -> AsyncIterator[Stage]:
    stage = Stage(client)
    yield stage
    await stage.pods.stop()


@pytest.mark.scenario("S271")
async def test_its_creation_its_changes_and_its_end_run_the_key(api: KubeApiServer, stage: Stage) -> None:
    stage.pods.follow(SOLO)
    stage.pods.follow(SOLO)
    await until(lambda: len(api.watches) == 1)
    api.put(f"{PODS}/other", pod("other"))
    api.put(f"{PODS}/solo", pod())
    await until(lambda: stage.enqueued == [SOLO])
    api.put(f"{PODS}/solo", pod(work="done"))
    await until(lambda: stage.enqueued == [SOLO] * 2)
    api.remove(f"{PODS}/solo")
    await until(lambda: stage.enqueued == [SOLO] * 3)


async def test_a_heartbeat_runs_nothing(api: KubeApiServer, stage: Stage) -> None:
    stage.pods.follow(SOLO)
    api.put(f"{PODS}/solo", pod())
    await until(lambda: stage.enqueued == [SOLO])
    api.put(f"{PODS}/solo", {**pod(), "status": {"conditions": [{"type": "Initialized", "status": "True"}]}})
    api.put(f"{PODS}/solo", pod(work="done"))
    await until(lambda: stage.enqueued == [SOLO] * 2)


async def test_what_nobody_names_any_more_is_not_followed(api: KubeApiServer, stage: Stage) -> None:
    stage.pods.follow(lone_key("ns", "unknown"))
    assert stage.pods.keys == []
    stage.pods.follow(SOLO)
    await until(lambda: len(api.watches) == 1)
    stage.wanted.clear()
    api.put(f"{PODS}/solo", pod())
    await until(lambda: stage.pods.keys == [])
    assert stage.enqueued == []


async def test_there_is_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "LIMIT", 1)
    other = lone_key("ns", "other")
    stage.wanted.add(other)
    stage.pods.follow(SOLO)
    stage.pods.follow(other)
    assert stage.pods.keys == [SOLO]
