"""The engine as a whole, against an API server of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.hibernation import hibernation_from_object
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.engine import SETS, Engine, EngineSettings, LeaseLostError, Ports
from cocoon_operator.engine.lease import Elector, Periods
from cocoon_operator.engine.store import Key
from cocoon_operator.reconcile.view import Outcome, View
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer
from tests.unit.kubernetes.waiting import until

BASE = f"/apis/{keys.GROUP}/v1/namespaces/ns"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/system/leases/{keys.LEASE_NAME}"
QUICK = Periods(lease=1.0, renew_deadline=0.6, retry=0.05)


class Recording:
    """A reconciler that writes the view's set down, and an annotation on it."""

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.views: list[View] = []
        self.forgotten: list[Key] = []

    async def reconcile(self, view: View) -> Outcome:
        self.views.append(view)
        if view.set is not None and keys.HINT_NODE not in view.set.annotations:
            await self.ports.cluster.patch_set(view.set, annotations={keys.HINT_NODE: "n"})
            self.ports.recorder.event(view.set, "Normal", "Woken", "it woke")
        return Outcome()

    def forget(self, namespace: str, name: str) -> None:
        self.forgotten.append(Key(namespace, name))


class Replica:
    """One engine with its reconciler."""

    def __init__(self, client: KubeClient, identity: str, **settings: Any) -> None:
        self.reconcilers: list[Recording] = []
        self.own = KubeClient(client.connection, limits=Limits(attempt=0.3, budget=0.3))
        self.elector = Elector(self.own, SystemClock(), namespace="system", identity=identity, periods=QUICK)
        self.engine = Engine(
            client, self._build, settings=EngineSettings(**settings), elector=self.elector if identity else None
        )

    def _build(self, ports: Ports) -> Recording:
        self.reconcilers.append(Recording(ports))
        return self.reconcilers[0]

    @property
    def views(self) -> list[View]:
        return self.reconcilers[0].views

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Engine]:
        self.engine.start()
        try:
            yield self.engine
        finally:
            await self.engine.stop()
            await self.own.close()
            if self.engine.ended.done():
                self.engine.ended.exception()


def demo() -> dict[str, Any]:
    return {"metadata": {"name": "demo", "namespace": "ns", "generation": 1}, "spec": {"agent": {"image": "i"}}}


@pytest.mark.asyncio
async def test_a_set_that_exists_is_run_once_and_its_event_sent(api: KubeApiServer, client: KubeClient) -> None:
    api.put(f"{BASE}/cocoonsets/demo", demo())
    replica = Replica(client, "one")
    async with replica.running():
        await until(lambda: api.count("POST", "/events") == 1)
    assert len(replica.views) == 1
    assert api.objects[f"{BASE}/cocoonsets/demo"]["metadata"]["annotations"] == {keys.HINT_NODE: "n"}


@pytest.mark.asyncio
async def test_a_graceful_stop_gives_the_lease_back(api: KubeApiServer, client: KubeClient) -> None:
    replica = Replica(client, "one")
    async with replica.running():
        await until(lambda: LEASE in api.objects)
        assert api.objects[LEASE]["spec"]["holderIdentity"] == "one"
    assert api.objects[LEASE]["spec"]["holderIdentity"] == ""
    assert replica.engine.ended.done()


@pytest.mark.asyncio
async def test_i9_after_a_pass_that_had_to_be_cancelled_the_lease_runs_out(
    api: KubeApiServer, client: KubeClient
) -> None:
    """Its last write may be on the wire still."""
    api.put(f"{BASE}/cocoonsets/demo", demo())
    api.faults.append(Fault("hang", method="PATCH"))
    replica = Replica(client, "one", drain=0.05)
    async with replica.running():
        await until(lambda: api.count("PATCH") == 1)
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "one"


@pytest.mark.asyncio
@pytest.mark.scenario("S312")
async def test_a_replica_without_the_lease_writes_nothing_and_takes_over_warm(
    api: KubeApiServer, client: KubeClient
) -> None:
    api.put(LEASE, {"metadata": {"name": keys.LEASE_NAME}, "spec": {"holderIdentity": "go", "leaseDurationSeconds": 9}})
    api.put(f"{BASE}/cocoonsets/demo", demo())
    replica = Replica(client, "two")
    async with replica.running() as engine:
        await until(lambda: engine.unready() == [])
        await asyncio.sleep(0.2)
        assert replica.views == []
        assert {method for method, _ in api.requests} == {"GET"}
        api.patch(LEASE, {"spec": {"holderIdentity": ""}})
        await until(lambda: len(replica.views) == 1)


@pytest.mark.asyncio
async def test_i9_a_lost_lease_ends_the_engine_and_its_work(api: KubeApiServer, client: KubeClient) -> None:
    api.put(f"{BASE}/cocoonsets/demo", demo())
    replica = Replica(client, "one")
    async with replica.running() as engine:
        await until(lambda: api.count("POST", "/events") == 1)
        api.put(LEASE, {**api.objects[LEASE], "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 9}})
        async with asyncio.timeout(3):
            with pytest.raises(LeaseLostError):
                await asyncio.shield(engine.ended)
        writes = api.count("PATCH") + api.count("POST")
        engine.queues[SETS].add(Key("ns", "demo"))
        await asyncio.sleep(0.2)
        assert api.count("PATCH") + api.count("POST") == writes
    assert api.objects[LEASE]["spec"]["holderIdentity"] == "thief"


@pytest.mark.asyncio
async def test_a_set_whose_deletion_was_missed_is_seen_to_be_gone(api: KubeApiServer, client: KubeClient) -> None:
    api.put(f"{BASE}/cocoonsets/demo", demo())
    replica = Replica(client, "", resync_interval=60.0)
    async with replica.running() as engine:
        await until(lambda: len(replica.views) == 1)
        api.remove(f"{BASE}/cocoonsets/demo")
        engine.watching()
        await until(lambda: replica.reconcilers[0].forgotten == [Key("ns", "demo")])
    assert replica.views[-1].set is None


@pytest.mark.asyncio
async def test_every_key_runs_again_without_an_event(api: KubeApiServer, client: KubeClient) -> None:
    api.put(f"{BASE}/cocoonsets/demo", demo())
    replica = Replica(client, "", resync_interval=0.2)
    async with replica.running():
        await until(lambda: len(replica.views) >= 3)


@pytest.mark.asyncio
async def test_kopfs_events_reach_the_reconciler(api: KubeApiServer, client: KubeClient) -> None:
    replica = Replica(client, "", namespace="ns")
    async with replica.running() as engine:
        await until(lambda: engine.unready() == [])
        obj = api.put(f"{BASE}/cocoonsets/demo", demo())
        other = {"metadata": {"namespace": "other", "name": "x", "resourceVersion": "999", "uid": "o"}, "spec": {}}
        engine.see(keys.PLURAL_SETS, None, obj)
        engine.see(keys.PLURAL_SETS, "ADDED", other)
        await until(lambda: len(replica.views) == 1)
        held: dict[str, Any] = {"metadata": {"namespace": "ns", "name": "h", "resourceVersion": "998", "uid": "h"}}
        held["spec"] = {"podRef": {"name": "demo-0"}}
        engine.see(keys.PLURAL_HIBERNATIONS, "ADDED", held)
        await until(lambda: len(replica.views) == 2)
        assert replica.views[-1].hibernations == (hibernation_from_object(held),)
        engine.see(keys.PLURAL_HIBERNATIONS, "DELETED", held)
        await until(lambda: len(replica.views) == 3)
        engine.see(keys.PLURAL_SETS, "DELETED", api.objects[f"{BASE}/cocoonsets/demo"])
        await until(lambda: len(replica.views) == 4)
        assert replica.views[-1].set is None


@pytest.mark.asyncio
async def test_unready_says_why(api: KubeApiServer, client: KubeClient) -> None:
    replica = Replica(client, "", stale_after=-1.0)
    assert replica.engine.unready() == [
        "cocoonsets not listed yet",
        "cocoonhibernations not listed yet",
        "pods not listed yet",
    ]
    async with replica.running() as engine:
        await until(lambda: engine.unready() != [] and "not heard of" in engine.unready()[0])


@pytest.mark.asyncio
async def test_a_part_that_ends_ends_the_engine(api: KubeApiServer, client: KubeClient) -> None:
    replica = Replica(client, "")

    async def broken() -> None:
        raise ValueError("a mistake")

    replica.engine.recorder.run = broken  # type: ignore[method-assign]
    async with replica.running() as engine:
        async with asyncio.timeout(3):
            with pytest.raises(ValueError, match="a mistake"):
                await asyncio.shield(engine.ended)


def test_the_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().tzinfo is UTC
