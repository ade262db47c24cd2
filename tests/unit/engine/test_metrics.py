"""Names, labels and buckets byte for byte (contract 7.1), and the servers that show them."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cocoon_operator.config import Address
from cocoon_operator.health import AddressInUseError, Health, Servers
from cocoon_operator.metrics import COUNTERS, HISTOGRAMS, Metrics, UnknownMetricError

PLACE = {"namespace": "ns", "cocoonset": "demo"}
USES = {
    "subagent_rebuild_total": PLACE,
    "subagent_dead_letter_total": PLACE,
    "lifecycle_state_failed_observed_total": {"phase": "Running"},
    "slot_release_pods_deleted_total": PLACE,
    "slot_release_wake_total": {**PLACE, "placement": "hint-node"},
    "slot_release_wake_unschedulable_total": PLACE,
}


def families(metrics: Metrics) -> dict[str, str]:
    return {family.name: family.type for family in text_string_to_metric_families(metrics.text().decode())}


def own(metrics: Metrics) -> set[str]:
    return {name for name in families(metrics) if name.startswith("cocoon_operator_")}


@pytest.mark.scenario("S313", "S314")
def test_after_one_use_each_the_families_of_the_contract_exist() -> None:
    metrics = Metrics()
    assert own(metrics) == set()
    for name, labels in USES.items():
        metrics.count(name, **labels)
    metrics.observe("hibernate_phase_duration_seconds", 42, result="ok")
    metrics.observe("wake_phase_duration_seconds", 42, result="timeout")
    lines = metrics.text().decode().splitlines()
    for line in (
        'cocoon_operator_subagent_rebuild_total{cocoonset="demo",namespace="ns"} 1.0',
        'cocoon_operator_subagent_dead_letter_total{cocoonset="demo",namespace="ns"} 1.0',
        'cocoon_operator_lifecycle_state_failed_observed_total{phase="Running"} 1.0',
        'cocoon_operator_slot_release_pods_deleted_total{cocoonset="demo",namespace="ns"} 1.0',
        'cocoon_operator_slot_release_wake_total{cocoonset="demo",namespace="ns",placement="hint-node"} 1.0',
        'cocoon_operator_slot_release_wake_unschedulable_total{cocoonset="demo",namespace="ns"} 1.0',
        'cocoon_operator_hibernate_phase_duration_seconds_count{result="ok"} 1.0',
        'cocoon_operator_wake_phase_duration_seconds_count{result="timeout"} 1.0',
    ):
        assert line in lines
    assert set(USES) == set(COUNTERS)


@pytest.mark.scenario("S314")
@pytest.mark.parametrize("name", sorted(HISTOGRAMS))
def test_buckets(name: str) -> None:
    metrics = Metrics()
    metrics.observe(name, 1, result="ok")
    (family,) = [
        found
        for found in text_string_to_metric_families(metrics.text().decode())
        if found.name == f"cocoon_operator_{name}"
    ]
    buckets = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
    assert buckets == ["10.0", "30.0", "60.0", "180.0", "600.0", "1800.0", "+Inf"]


def test_no_created_series() -> None:
    metrics = Metrics()
    metrics.count("subagent_rebuild_total", **PLACE)
    assert "_created" not in metrics.text().decode()


def test_a_name_or_a_label_that_is_made_up_is_an_error() -> None:
    metrics = Metrics()
    with pytest.raises(UnknownMetricError):
        metrics.count("subagent_rebuilds_total", **PLACE)
    with pytest.raises(UnknownMetricError):
        metrics.observe("wake_total", 1, result="ok")
    with pytest.raises(ValueError, match="label"):
        metrics.count("subagent_rebuild_total", cluster="x")


def test_the_series_of_a_set_go_with_it_and_others_stay() -> None:
    metrics = Metrics()
    for placement in ("hint-node", "pool"):
        metrics.count("slot_release_wake_total", **PLACE, placement=placement)
    metrics.count("slot_release_wake_total", namespace="ns", cocoonset="other", placement="pool")
    metrics.count("lifecycle_state_failed_observed_total", phase="Running")
    metrics.forget("ns", "demo")
    metrics.forget("ns", "never-seen")
    text = metrics.text().decode()
    assert 'cocoonset="demo"' not in text
    assert 'cocoonset="other"' in text
    assert 'phase="Running"' in text


def test_engine_and_clients_are_counted() -> None:
    metrics = Metrics()
    metrics.queued(1)
    metrics.taken(0, 0.1)
    metrics.finished(0.2)
    metrics.retried()
    metrics.leads(leading=True)
    metrics.passed("success", 0.1)
    metrics.passed("error", 0.1)
    metrics.kube_request("patch", "pods", "200", 0.1)
    metrics.kube_request("watch", "pods", "200", 300)
    metrics.registry_request("probe", 404)
    metrics.registry_request("probe", "timeout")
    lines = metrics.text().decode().splitlines()
    for line in (
        'workqueue_adds_total{name="cocoonset"} 1.0',
        'workqueue_depth{name="cocoonset"} 0.0',
        'workqueue_retries_total{name="cocoonset"} 1.0',
        'leader_election_master_status{name="cocoon-operator.cocoonset.cocoonstack.io"} 1.0',
        'controller_runtime_reconcile_total{controller="cocoonset",result="success"} 1.0',
        'controller_runtime_reconcile_errors_total{controller="cocoonset"} 1.0',
        'cocoon_operator_kube_api_requests_total{code="200",resource="pods",verb="patch"} 1.0',
        'cocoon_operator_registry_requests_total{code="404",operation="probe"} 1.0',
        'cocoon_operator_registry_requests_total{code="timeout",operation="probe"} 1.0',
    ):
        assert line in lines


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


@pytest.mark.asyncio
async def test_probes_and_metrics_are_served(unused_tcp_port_factory: object) -> None:
    assert callable(unused_tcp_port_factory)
    probes, metrics = unused_tcp_port_factory(), unused_tcp_port_factory()
    servers, health = Servers(), Health()
    await servers.probes(Address("127.0.0.1", probes), health)
    await servers.metrics(Address("127.0.0.1", metrics), Metrics().text)
    await servers.metrics(None, Metrics().text)
    try:
        assert await fetch(probes, "/healthz") == (200, "ok")
        assert await fetch(probes, "/livez") == (200, "ok")
        assert await fetch(probes, "/readyz") == (503, "starting")
        health.unready = list
        assert await fetch(probes, "/readyz") == (200, "ok")
        assert "leader_election_master_status" in (await fetch(metrics, "/metrics"))[1]
        with pytest.raises(AddressInUseError, match=f"PROBE_ADDR=127.0.0.1:{metrics}: cannot listen there"):
            await servers.probes(Address("127.0.0.1", metrics), health)
    finally:
        await servers.close()
