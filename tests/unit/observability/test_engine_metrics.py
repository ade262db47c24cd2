"""What a scrape reads from the engine, and what a real engine counts, to the number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import pytest
import pytest_asyncio

from cocoon_operator.api import keys
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection
from cocoon_operator.engine.engine import Engine, EngineSettings, Ports
from cocoon_operator.enginemetrics import EngineCollector
from cocoon_operator.metricfamilies import PREFIX
from cocoon_operator.metrics import Metrics
from cocoon_operator.reconcile.view import Outcome, View
from tests.unit.kubernetes.kube_api_server import KubeApiServer
from tests.unit.kubernetes.waiting import until

BASE = f"/apis/{keys.GROUP}/v1/namespaces/ns"
QUEUE = {"name": "cocoonset", "controller": "cocoonset"}


class Shown:
    """An engine that shows what it is told to."""

    def __init__(self) -> None:
        self.sets: list[Mapping[str, Any]] = []
        self.hibernations: list[Mapping[str, Any]] = []
        self.ages: dict[str, float] = {}
        self.passes: dict[str, list[float]] = {"cocoonset": []}
        self.reasons: list[str] = []

    def silence(self) -> Mapping[str, float]:
        return self.ages

    def running(self) -> Mapping[str, list[float]]:
        return self.passes

    def unready(self) -> list[str]:
        return self.reasons

    def set_statuses(self) -> Iterable[Mapping[str, Any]]:
        return self.sets

    def hibernation_statuses(self) -> Iterable[Mapping[str, Any]]:
        return self.hibernations

    def pod_count(self) -> int:
        return 7


def scraped(shown: Shown) -> Metrics:
    metrics = Metrics()
    metrics.add(EngineCollector(shown, now=lambda: 1000.0))
    return metrics


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


def test_the_fleet_is_told_by_phase_and_every_phase_is_there() -> None:
    shown = Shown()
    shown.sets = [{"phase": "Running"}, {"phase": "Running"}, {"phase": "Suspended"}, {}, {"phase": "Nonsense"}]
    shown.hibernations = [{"phase": "Hibernated"}, {}]
    metrics = scraped(shown)
    sets = {phase: value(metrics, f"{PREFIX}cocoonsets", phase=phase) for phase in ("Running", "Suspended", "Pending")}
    assert sets == {"Running": 2, "Suspended": 1, "Pending": 1}
    assert value(metrics, f"{PREFIX}cocoonsets", phase="other") == 1
    assert value(metrics, f"{PREFIX}cocoonsets", phase="Failed") == 0
    assert value(metrics, f"{PREFIX}cocoonhibernations", phase="Hibernated") == 1
    assert value(metrics, f"{PREFIX}cocoonhibernations", phase="Pending") == 1
    assert value(metrics, f"{PREFIX}cocoonhibernations", phase="Active") == 0
    assert value(metrics, f"{PREFIX}pods") == 7


def test_conditions_are_counted_by_what_they_say_and_never_an_error() -> None:
    shown = Shown()
    missing = condition("Ready", "False", "SnapshotMissing")
    shown.sets = [
        {"conditions": [missing, condition("OnTime", "True", "Waking")]},
        {"conditions": [missing]},
        {"conditions": "nonsense"},
        {"conditions": ["nonsense"]},
    ]
    metrics = scraped(shown)
    assert value(metrics, f"{PREFIX}cocoonset_conditions", **missing) == 2
    assert value(metrics, f"{PREFIX}cocoonset_conditions", **condition("OnTime", "True", "Waking")) == 1


def test_what_was_heard_of_last_is_a_moment_and_what_never_was_has_none() -> None:
    shown = Shown()
    shown.ages = {"pods": 12.5, "cocoonsets": float("inf")}
    metrics = scraped(shown)
    assert value(metrics, f"{PREFIX}watch_last_event_timestamp_seconds", resource="pods") == 987.5
    assert value(metrics, f"{PREFIX}watch_last_event_timestamp_seconds", resource="cocoonsets") is None


def test_running_passes_are_told_by_how_long_they_take_so_far() -> None:
    shown = Shown()
    metrics = scraped(shown)
    assert value(metrics, "workqueue_unfinished_work_seconds", **QUEUE) == 0
    assert value(metrics, "workqueue_longest_running_processor_seconds", **QUEUE) == 0
    shown.passes = {"cocoonset": [1.5, 4.0]}
    assert value(metrics, "workqueue_unfinished_work_seconds", **QUEUE) == 5.5
    assert value(metrics, "workqueue_longest_running_processor_seconds", **QUEUE) == 4.0


def test_ready_is_what_the_probe_says() -> None:
    shown = Shown()
    metrics = scraped(shown)
    assert value(metrics, f"{PREFIX}ready") == 1
    shown.reasons = ["pods not listed yet"]
    assert value(metrics, f"{PREFIX}ready") == 0


class Scripted:
    """A reconciler that does as told, one outcome a pass."""

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        self.outcomes: list[Outcome] = []
        self.passes = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def reconcile(self, view: View) -> Outcome:
        await self.gate.wait()
        self.passes += 1
        return self.outcomes.pop(0) if self.outcomes else Outcome()

    def forget(self, namespace: str, name: str) -> None:
        return None


class Operator:
    """A real engine with real metrics on an API server of this process."""

    def __init__(self, api: KubeApiServer) -> None:
        self.api = api
        self.metrics = Metrics()
        self.client = KubeClient(
            Connection(api.url, "a test"),
            limits=Limits(attempt=2.0, budget=5.0, silence=5.0),
            observe=self.metrics.kube_requests("host"),
        )
        self.reconcilers: list[Scripted] = []
        self.engine = Engine(self.client, self._build, settings=EngineSettings(workers=2), measures=self.metrics)
        self.metrics.add(EngineCollector(self.engine))

    def _build(self, ports: Ports) -> Scripted:
        self.reconcilers.append(Scripted(ports))
        return self.reconcilers[0]

    @property
    def reconciler(self) -> Scripted:
        return self.reconcilers[0]

    def value(self, name: str, /, **labels: str) -> float | None:
        return value(self.metrics, name, **labels)

    def result(self, result: str) -> float | None:
        return self.value("controller_runtime_reconcile_total", controller="cocoonset", result=result)


@pytest_asyncio.fixture
async def operator(api: KubeApiServer) -> AsyncIterator[Operator]:
    api.put(f"{BASE}/cocoonsets/demo", {"metadata": {"namespace": "ns", "name": "demo", "uid": "u1"}, "spec": {}})
    operator = Operator(api)
    yield operator
    await operator.engine.stop()
    await operator.client.close()


@pytest_asyncio.fixture
async def api() -> AsyncIterator[KubeApiServer]:
    async with KubeApiServer().serve() as server:
        yield server


@pytest.mark.asyncio
async def test_one_pass_is_one_of_everything(operator: Operator) -> None:
    operator.engine.start()
    await until(lambda: operator.result("success") == 1)
    assert operator.value("workqueue_adds_total", **QUEUE) == 1
    assert operator.value("workqueue_queue_duration_seconds_count", **QUEUE) == 1
    await until(lambda: operator.value("workqueue_work_duration_seconds_count", **QUEUE) == 1)
    assert operator.value("workqueue_depth", **QUEUE) == 0
    assert operator.value("workqueue_retries_total", **QUEUE) == 0
    assert operator.value("controller_runtime_max_concurrent_reconciles", controller="cocoonset") == 2
    lease = {"name": keys.LEASE_NAME}
    assert operator.value("leader_election_master_status", **lease) == 1
    for resource in ("pods", "cocoonsets", "cocoonhibernations"):
        assert operator.value(f"{PREFIX}kube_api_requests_total", verb="list", resource=resource, code="200") == 1
        assert operator.value(f"{PREFIX}watch_last_event_timestamp_seconds", resource=resource) is not None
    assert operator.value(f"{PREFIX}cocoonsets", phase="Pending") == 1
    assert operator.value(f"{PREFIX}ready") == 1


@pytest.mark.asyncio
async def test_a_failed_pass_is_an_error_and_a_retry(operator: Operator) -> None:
    operator.reconciler.outcomes = [Outcome(error=RuntimeError("no")), Outcome(requeue_after=300.0)]
    operator.engine.start()
    await until(lambda: operator.result("requeue_after") == 1)
    assert operator.result("error") == 1
    assert operator.value("controller_runtime_reconcile_errors_total", controller="cocoonset") == 1
    assert operator.value("workqueue_retries_total", **QUEUE) == 1
    assert operator.value("workqueue_adds_total", **QUEUE) == 2


@pytest.mark.asyncio
async def test_a_pass_that_hangs_is_seen_while_it_does(operator: Operator) -> None:
    operator.reconciler.gate.clear()
    operator.engine.start()
    await until(lambda: operator.value("controller_runtime_active_workers", controller="cocoonset") == 1)
    await until(lambda: (operator.value("workqueue_longest_running_processor_seconds", **QUEUE) or 0) > 0)
    operator.reconciler.gate.set()
    await until(lambda: operator.value("controller_runtime_active_workers", controller="cocoonset") == 0)
    assert operator.value("workqueue_longest_running_processor_seconds", **QUEUE) == 0


@pytest.mark.asyncio
async def test_the_leader_that_stops_leads_no_more(operator: Operator) -> None:
    operator.engine.start()
    await until(lambda: operator.value("leader_election_master_status", name=keys.LEASE_NAME) == 1)
    await operator.engine.stop()
    assert operator.value("leader_election_master_status", name=keys.LEASE_NAME) == 0
