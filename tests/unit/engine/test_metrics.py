"""Names, labels and buckets byte for byte (contract 7.1), and when each is counted."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cocoon_operator.metricfamilies import CONTRACT, FAMILIES, PREFIX, TRANSITIONS
from cocoon_operator.metrics import Metrics, UnknownMetricError

PLACE = {"namespace": "ns", "cocoonset": "demo"}
USES = {
    "subagent_rebuild_total": PLACE,
    "subagent_dead_letter_total": PLACE,
    "lifecycle_state_failed_observed_total": {"phase": "Running"},
    "slot_release_pods_deleted_total": PLACE,
    "slot_release_wake_total": {**PLACE, "placement": "hint-node"},
    "slot_release_wake_unschedulable_total": PLACE,
}


def shown(metrics: Metrics) -> set[str]:
    """The families of the contract that the text has; the parser takes ``_total`` off a counter's name."""
    names = {family.name for family in text_string_to_metric_families(metrics.text().decode())}
    return {family.name for family in CONTRACT if family.name.removesuffix("_total") in names}


@pytest.mark.scenario("S313", "S314")
def test_after_one_use_each_the_families_of_the_contract_exist() -> None:
    metrics = Metrics()
    assert shown(metrics) == set()
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
    assert shown(metrics) == {family.name for family in CONTRACT}
    assert {PREFIX + name for name in USES} == {family.name for family in CONTRACT if family.kind == "counter"}


@pytest.mark.scenario("S314")
@pytest.mark.parametrize("name", ["hibernate_phase_duration_seconds", "wake_phase_duration_seconds"])
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


def test_transitions_are_there_after_their_first_use_and_reach_from_a_second_to_half_an_hour() -> None:
    metrics = Metrics()
    for family in TRANSITIONS:
        metrics.observe(family.name.removeprefix(PREFIX), 42, **dict.fromkeys(family.labels, "x"))
        labels = dict.fromkeys(family.labels, "x")
        assert value(metrics, f"{family.name}_bucket", **labels, le="30.0") == 0
        assert value(metrics, f"{family.name}_bucket", **labels, le="60.0") == 1
        assert (family.buckets[0], family.buckets[-1]) == (1, 1800)


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


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """The value of one series; None when there is none."""
    found: float | None = metrics.registry.get_sample_value(name, labels)
    return found


def test_a_controller_and_its_queue_begin_at_zero() -> None:
    metrics = Metrics()
    metrics.controller("cocoonhibernation", 3)
    of = {"controller": "cocoonhibernation"}
    for result in ("success", "error", "requeue", "requeue_after"):
        assert value(metrics, "controller_runtime_reconcile_total", **of, result=result) == 0
    assert value(metrics, "controller_runtime_reconcile_errors_total", **of) == 0
    assert value(metrics, "controller_runtime_max_concurrent_reconciles", **of) == 3
    assert value(metrics, "controller_runtime_active_workers", **of) == 0
    for name in ("depth", "adds_total", "retries_total", "queue_duration_seconds_count", "work_duration_seconds_count"):
        assert value(metrics, f"workqueue_{name}", name="cocoonhibernation", **of) == 0


def test_the_queue_is_counted_as_client_go_does() -> None:
    metrics = Metrics()
    queue = metrics.controller("cocoonset", 4)
    of = {"name": "cocoonset", "controller": "cocoonset"}

    queue.queued(1)
    queue.queued(2)
    assert value(metrics, "workqueue_adds_total", **of) == 2
    assert value(metrics, "workqueue_depth", **of) == 2

    queue.taken(1, 0.25)
    assert value(metrics, "workqueue_depth", **of) == 1
    assert value(metrics, "workqueue_queue_duration_seconds_sum", **of) == 0.25
    assert value(metrics, "workqueue_queue_duration_seconds_bucket", **of, le="0.1") == 0
    assert value(metrics, "workqueue_queue_duration_seconds_bucket", **of, le="1.0") == 1
    assert value(metrics, "controller_runtime_active_workers", controller="cocoonset") == 1

    queue.finished(0.5)
    queue.retried()
    assert value(metrics, "controller_runtime_active_workers", controller="cocoonset") == 0
    assert value(metrics, "workqueue_work_duration_seconds_sum", **of) == 0.5
    assert value(metrics, "workqueue_retries_total", **of) == 1
    assert value(metrics, "workqueue_adds_total", **of) == 2


def test_a_pass_is_counted_once_by_its_result_and_an_error_as_one_too() -> None:
    metrics = Metrics()
    passes = metrics.controller("cocoonset", 4)
    passes.passed("success", 0.25)
    passes.passed("requeue_after", 0.25)
    passes.passed("error", 0.5)
    counted = {
        result: value(metrics, "controller_runtime_reconcile_total", controller="cocoonset", result=result)
        for result in ("success", "requeue_after", "error", "requeue")
    }
    assert counted == {"success": 1, "requeue_after": 1, "error": 1, "requeue": 0}
    assert value(metrics, "controller_runtime_reconcile_errors_total", controller="cocoonset") == 1
    assert value(metrics, "controller_runtime_reconcile_time_seconds_sum", controller="cocoonset") == 1.0


def test_leadership_is_a_number_of_the_lease() -> None:
    metrics = Metrics()
    lease = {"name": "cocoon-operator.cocoonset.cocoonstack.io"}
    assert value(metrics, "leader_election_master_status", **lease) == 0
    metrics.leads(leading=True)
    assert value(metrics, "leader_election_master_status", **lease) == 1
    metrics.leads(leading=False)
    assert value(metrics, "leader_election_master_status", **lease) == 0


def test_requests_to_the_api_server_are_counted_under_both_names() -> None:
    metrics = Metrics()
    count = metrics.kube_requests("10.0.0.1:443")
    count("patch", "pods", "200", 0.25)
    count("patch", "pods", "0", 0.25)
    count("watch", "pods", "200", 300)
    count("get", "", "200", 0.25)
    requests = f"{PREFIX}kube_api_requests_total"
    assert value(metrics, requests, verb="patch", resource="pods", code="200") == 1
    assert value(metrics, requests, verb="patch", resource="pods", code="0") == 1
    assert value(metrics, requests, verb="watch", resource="pods", code="200") == 1
    assert value(metrics, requests, verb="get", resource="other", code="200") == 1
    of = {"host": "10.0.0.1:443"}
    assert value(metrics, "rest_client_requests_total", **of, method="PATCH", code="200") == 1
    assert value(metrics, "rest_client_requests_total", **of, method="PATCH", code="<error>") == 1
    assert value(metrics, "rest_client_requests_total", **of, method="GET", code="200") == 2
    assert value(metrics, f"{PREFIX}kube_api_request_duration_seconds_sum", verb="patch") == 0.5
    assert value(metrics, f"{PREFIX}kube_api_request_duration_seconds_count", verb="watch") is None


def test_requests_to_the_registry_events_and_lag_are_counted() -> None:
    metrics = Metrics("1.2.3")
    metrics.registry_request("probe", 404, 0.25)
    metrics.registry_request("probe", "timeout", 4.0)
    metrics.event("created")
    metrics.lagged(0.75)
    assert value(metrics, f"{PREFIX}registry_requests_total", operation="probe", code="404") == 1
    assert value(metrics, f"{PREFIX}registry_requests_total", operation="probe", code="timeout") == 1
    assert value(metrics, f"{PREFIX}registry_request_duration_seconds_sum", operation="probe") == 4.25
    assert value(metrics, f"{PREFIX}events_total", result="created") == 1
    assert value(metrics, f"{PREFIX}event_loop_lag_seconds_bucket", le="0.5") == 0
    assert value(metrics, f"{PREFIX}event_loop_lag_seconds_bucket", le="1.0") == 1
    assert value(metrics, f"{PREFIX}build_info", version="1.2.3") == 1


def test_new_families_have_no_label_that_grows_with_the_number_of_sets() -> None:
    by_contract = {family.name for family in CONTRACT}
    growing = {"namespace", "cocoonset", "name", "pod", "uid", "vm"}
    assert {
        name
        for name, family in FAMILIES.items()
        if growing & set(family.labels) and name not in by_contract and not name.startswith(("workqueue_", "leader_"))
    } == set()
