"""What nobody told us about is seen all the same: deletions behind a cut connection, and behind a version that is gone."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf
import pytest

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import API_SERVER, ControlPlane, ControlPlaneOptions
from cocoon_operator import handlers, kopf_settings
from cocoon_operator.api import keys
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection, find_connection
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.engine import Engine, EngineSettings
from cocoon_operator.engine.podinformer import PodInformer
from cocoon_operator.engine.queue import Backoff
from cocoon_operator.engine.store import Key
from cocoon_operator.reconcile.view import Outcome, View
from tests.e2e.relay import Relay

QUICK = Limits(attempt=5.0, budget=5.0, silence=150.0, page=2)


async def until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not happened():  # noqa: ASYNC110 - what happens is not ours to signal
            await asyncio.sleep(0.05)


async def kubectl(cluster: Cluster, *args: str, stdin: str | None = None) -> str:
    answer = await asyncio.to_thread(cluster.kubectl, *args, stdin=stdin)
    return answer.stdout


def pod(namespace: str, name: str) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {keys.LABEL_SET: "demo"}},
            "spec": {"containers": [{"name": "a", "image": "example.com/none:1"}], "terminationGracePeriodSeconds": 0},
        }
    )


class Follower:
    """An informer that can be stopped and started, and the pods it knows of one set."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.client = KubeClient(connection, limits=QUICK)
        self.lists = 0
        self.key = Key(namespace, "demo")
        self.cache = Cache(lambda _: None)
        self.informer = PodInformer(
            self.client, self.cache, backoff=Backoff(first=0.1, longest=0.5), on_relist=self._listed
        )

    def _listed(self) -> None:
        self.lists += 1

    def pods(self) -> list[str]:
        return [item.name for item in self.cache.view(self.key, datetime.now(UTC)).pods]

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.client.close()


@pytest.mark.asyncio
async def test_a_pod_deleted_behind_a_cut_connection_is_seen_to_be_gone(cluster: Cluster, namespace: str) -> None:
    connection = await find_connection(str(cluster.kubeconfig), env={})
    async with Relay(connection.server).serve() as relay:
        follower = Follower(dataclasses.replace(connection, server=relay.url), namespace)
        for name in ("demo-0", "demo-1", "demo-2"):
            await kubectl(cluster, "apply", "-f", "-", stdin=pod(namespace, name))
        async with follower.following():
            await until(lambda: follower.pods() == ["demo-0", "demo-1", "demo-2"])
            relay.close()
            await kubectl(cluster, "delete", "pod", "demo-1", "-n", namespace)
            await kubectl(cluster, "apply", "-f", "-", stdin=pod(namespace, "demo-3"))
            assert follower.pods() == ["demo-0", "demo-1", "demo-2"]
            relay.reopen()
            await until(lambda: follower.pods() == ["demo-0", "demo-2", "demo-3"])
            assert follower.lists == 1, "the watch went on where it was"


@pytest.mark.asyncio
async def test_a_pod_deleted_before_a_version_that_is_gone_is_seen_to_be_gone(tools: Path, tmp_path: Path) -> None:
    with ControlPlane(tools, tmp_path / "own", ControlPlaneOptions()) as cluster:
        connection = await find_connection(str(cluster.kubeconfig), env={})
        await kubectl(cluster, "create", "serviceaccount", "default", "-n", "kube-public")
        follower = Follower(connection, "kube-public")
        for name in ("demo-0", "demo-1"):
            await kubectl(cluster, "apply", "-f", "-", stdin=pod("kube-public", name))
        async with follower.following():
            await until(lambda: follower.pods() == ["demo-0", "demo-1"])
        await kubectl(cluster, "delete", "pod", "demo-0", "-n", "kube-public")
        # A fresh API server remembers no event from before its start: it answers 410 to the old version.
        await asyncio.to_thread(cluster.stop_component, API_SERVER)
        await asyncio.to_thread(cluster.start_component, API_SERVER)
        assert follower.pods() == ["demo-0", "demo-1"]
        async with follower.following():
            await until(lambda: follower.pods() == ["demo-1"])
        assert follower.lists == 2


class Watching:
    """A reconciler that only looks."""

    def __init__(self) -> None:
        self.views: list[View] = []

    async def reconcile(self, view: View) -> Outcome:
        self.views.append(view)
        return Outcome()

    def forget(self, namespace: str, name: str) -> None:
        """Nothing is remembered."""


class Parts:
    """What the handlers need of a runtime."""

    def __init__(self, connection: Connection, engine: Engine) -> None:
        self.connection = connection
        self.engine = engine


@asynccontextmanager
async def kopf_feeds(connection: Connection, engine: Engine) -> AsyncIterator[None]:
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    kopf_settings.configure(settings)
    parts: Any = Parts(connection, engine)
    handlers.register(registry, lambda: parts)
    stop = asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop)
    )
    try:
        yield
    finally:
        await engine.stop()
        stop.set()
        await asyncio.wait({task}, timeout=20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_objects_of_both_kinds_deleted_behind_kopfs_back_are_seen_to_be_gone(
    cluster: Cluster, namespace: str
) -> None:
    connection = await find_connection(str(cluster.kubeconfig), env={})
    await kubectl(cluster, "apply", "-f", "-", stdin=_set(namespace, "demo"))
    await kubectl(cluster, "apply", "-f", "-", stdin=_hibernation(namespace, "held"))
    await kubectl(cluster, "apply", "-f", "-", stdin=_hibernation(namespace, "kept"))
    async with Relay(connection.server).serve() as relay:
        detour = dataclasses.replace(connection, server=relay.url)
        client, reconciler = KubeClient(detour, limits=QUICK), Watching()
        settings = EngineSettings(resync_interval=2.0, namespace=namespace)
        engine = Engine(client, lambda _: reconciler, settings=settings)
        engine.start()
        async with kopf_feeds(detour, engine):
            await until(lambda: bool(reconciler.views) and len(reconciler.views[-1].hibernations) == 2)
            relay.close()
            await kubectl(cluster, "delete", "cocoonhibernation", "held", "-n", namespace)
            relay.reopen()
            await until(lambda: len(reconciler.views[-1].hibernations) == 1)
            relay.close()
            await kubectl(cluster, "delete", "cocoonset", "demo", "-n", namespace)
            relay.reopen()
            await until(lambda: reconciler.views[-1].set is None)
        await client.close()


def _set(namespace: str, name: str) -> str:
    body = {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_SET,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"agent": {"image": "registry.example.com/agent:1"}},
    }
    return json.dumps(body)


def _hibernation(namespace: str, name: str) -> str:
    body = {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_HIBERNATION,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podRef": {"name": "demo-0"}, "desire": "Hibernate"},
    }
    return json.dumps(body)
