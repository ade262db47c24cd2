"""What a real operator tells of a set that sleeps and wakes: metrics, log lines, events, traces; and the alerts, by promtool."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from nodes import IMAGE
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from cocoon_devkit import checkout
from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.ports import free_ports
from cocoon_devkit.rawapi import Api
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys
from cocoon_operator.metricfamilies import FAMILIES, PREFIX

ALERTS = checkout.ROOT / "charts" / "cocoon-operator" / "files" / "alerts"
SECONDS = 30.0


def promtool(tools: Path, *arguments: str, stdin: str = "") -> str:
    """What promtool prints; it has to be content."""
    done = subprocess.run(
        [str(tools / "promtool"), *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# -- a life ------------------------------------------------------------------------------------------------------------


class Collector(ThreadingHTTPServer):
    """Takes traces by OTLP over HTTP."""

    def __init__(self) -> None:
        (port,) = free_ports(1)
        super().__init__(("127.0.0.1", port), _Taker)
        self.spans: list[Any] = []
        self.thread = threading.Thread(target=self.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Taker(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        message = ExportTraceServiceRequest()
        message.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in message.resource_spans:
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return None


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        collector.thread.start()
        yield collector
        collector.shutdown()
        collector.thread.join(5)


@dataclass(frozen=True)
class Life:
    """What was told while a set came up, went to sleep on a released seat, and woke."""

    namespace: str
    metrics: str
    lines: list[dict[str, Any]]
    events: list[dict[str, Any]]
    spans: list[Any]
    output: str

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series of a metric that have these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.metrics)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def said(self, message: str, **what: Any) -> list[dict[str, Any]]:
        """The log lines with this message and these keys."""
        return [line for line in self.lines if line["message"] == message and what.items() <= line.items()]


def until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def life(
    api: Api, node_agent: AgentProcess, snapshots: str, operator_kubeconfig: Path, collector: Collector
) -> Iterator[Life]:
    namespace = f"told-{time.time_ns() % 10**9}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    sets = f"/apis/{keys.API_VERSION}/namespaces/{namespace}/cocoonsets"
    settings = {
        "LOG_FORMAT": "json",
        "WATCH_NAMESPACE": namespace,
        "COCOONSET_CONCURRENCY": "many",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_TRACES_SAMPLER": "always_on",
    }

    def come_to(phase: str) -> None:
        until(lambda: api.call("GET", f"{sets}/demo").get("status", {}).get("phase") == phase, phase)

    def edit(**spec: Any) -> None:
        api.call("PATCH", f"{sets}/demo", {"spec": spec}, "application/merge-patch+json")

    def scrape() -> str:
        with urllib.request.urlopen(operator.metrics_url, timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    with Scratch("told") as scratch:
        operator = OperatorProcess(operator_kubeconfig, scratch.path, OperatorOptions(snapshots, settings=settings))
        with operator:
            operator.wait_leading()
            until(lambda: api.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default") is not None, "account")
            body = {
                "apiVersion": keys.API_VERSION,
                "kind": keys.KIND_SET,
                "metadata": {"name": "demo", "namespace": namespace},
                "spec": {"agent": {"image": IMAGE}, "hibernatePolicy": "release"},
            }
            api.call("POST", sets, body)
            come_to("Running")
            edit(suspend=True)
            come_to("Suspended")
            edit(suspend=False)
            come_to("Running")
            until(lambda: f'{PREFIX}events_total{{result="created"}} 2.0' in scrape(), "the wake's last word")
            assert operator.probe("/livez") == 200
            assert operator.probe("/readyz") == 200
            metrics = scrape()
            events = api.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
            assert operator.stop() == 0
        output = operator.output()
        yield Life(
            namespace, metrics, [json.loads(line) for line in output.splitlines()], events, collector.spans, output
        )
    api.call("DELETE", f"{sets}/demo")
    api.call("DELETE", f"/api/v1/namespaces/{namespace}")


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_the_metrics_are_as_prometheus_wants_them_and_as_they_are_declared(life: Life, tools: Path) -> None:
    promtool(tools, "check", "metrics", "--lint=all", stdin=life.metrics)
    told = {(family.name, family.type) for family in text_string_to_metric_families(life.metrics)}
    declared = {(family.name.removesuffix("_total"), family.kind) for family in FAMILIES.values()}
    assert {each for each in told - declared if not each[0].startswith(("process_", "python_gc_"))} == set()


def test_a_life_is_counted_to_the_number(life: Life) -> None:
    assert life.value(f"{PREFIX}slot_release_pods_deleted_total", namespace=life.namespace, cocoonset="demo") == 1
    assert life.value(f"{PREFIX}slot_release_wake_total", namespace=life.namespace, cocoonset="demo") == 1
    assert life.value(f"{PREFIX}suspend_duration_seconds_count", mode="release", outcome="done") == 1
    assert life.value(f"{PREFIX}wake_duration_seconds_count", mode="release", outcome="done") == 1
    assert life.value(f"{PREFIX}cocoonsets") == 1
    assert life.value(f"{PREFIX}cocoonsets", phase="Running") == 1
    assert life.value(f"{PREFIX}cocoonset_conditions", type="Ready", status="True") == 1
    assert life.value(f"{PREFIX}kube_api_requests_total", verb="create", resource="pods", code="201") == 2
    assert life.value(f"{PREFIX}kube_api_requests_total", verb="delete", resource="pods", code="200") == 1
    assert life.value(f"{PREFIX}registry_requests_total", operation="drop", code="202") == 1
    assert life.value("leader_election_master_status") == 1
    assert life.value(f"{PREFIX}ready") == 1
    assert life.value("controller_runtime_max_concurrent_reconciles", controller="cocoonset") == 4
    passes = life.value("controller_runtime_reconcile_total", controller="cocoonset")
    assert passes == life.value("controller_runtime_reconcile_time_seconds_count", controller="cocoonset") > 0
    events = life.value(f"{PREFIX}events_total", result="created") + life.value(
        f"{PREFIX}events_total", result="counted"
    )
    assert events == len(life.said("event"))
    for resource in ("pods", "cocoonsets", "cocoonhibernations"):
        heard = life.value(f"{PREFIX}watch_last_event_timestamp_seconds", resource=resource)
        assert 0 <= time.time() - heard < 300


# -- lines and events --------------------------------------------------------------------------------------------------


def test_every_write_is_a_line_with_set_generation_and_pod(life: Life) -> None:
    about = {"cocoonset": f"{life.namespace}/demo", "pod": "demo-0"}
    assert [line["generation"] for line in life.said("pod created", **about)] == [1, 3]
    assert [line["generation"] for line in life.said("pod deleted", **about)] == [2]
    assert all(line["generation"] == 2 for line in life.said("pod patched", **about))
    (dropped,) = life.said("tag dropped")
    assert (dropped["vm"], dropped["tag"], dropped["generation"]) == (f"vk-{life.namespace}-demo-0", "hibernate", 3)
    assert {line["level"] for line in life.lines} <= {"debug", "info", "warning"}


def test_it_begins_with_its_settings_and_says_which_it_ignored(life: Life) -> None:
    (starting,) = life.said("starting")
    assert (starting["WATCH_NAMESPACE"], starting["COCOONSET_CONCURRENCY"]) == (life.namespace, 4)
    (ignored,) = life.said("a setting was ignored")
    assert ignored["setting"].startswith("COCOONSET_CONCURRENCY=many: write a number")


def test_events_are_told_once_in_the_cluster_and_in_the_log(life: Life) -> None:
    own = [event for event in life.events if event["source"].get("component") == keys.EVENT_COMPONENT]
    assert {event["reason"]: event["count"] for event in own} == {"Suspended": 1, "Resumed": 1}
    assert [line["reason"] for line in life.said("event", object="demo")] == ["Suspended", "Resumed"]


def test_nothing_secret_is_in_a_line(life: Life, operator_kubeconfig: Path) -> None:
    secrets = re.findall(r"(?:token|client-key-data|password): \"?([^\s\"]+)", operator_kubeconfig.read_text())
    secrets += re.findall(r"\"(?:token|client-key-data|password)\": \"([^\"]+)\"", operator_kubeconfig.read_text())
    assert secrets
    assert not [secret for secret in secrets if secret in life.output]


# -- traces ------------------------------------------------------------------------------------------------------------


def test_a_pass_and_its_requests_are_one_trace_that_its_lines_name(life: Life) -> None:
    passes = {span.span_id: span for span in life.spans if span.name == "reconcile"}
    created = [span for span in life.spans if span.name == "create pods"]
    assert len(created) == 2
    for span in created:
        whole = passes[span.parent_span_id]
        assert whole.trace_id == span.trace_id
        assert {each.key: each.value.string_value for each in whole.attributes}["k8s.cocoonset.name"] == "demo"
    named = {line["trace_id"] for line in life.said("pod created")}
    assert named == {span.trace_id.hex() for span in created}
    assert {"registry drop", "registry probe"} & {span.name for span in life.spans}


# -- alerts ------------------------------------------------------------------------------------------------------------


def test_the_alerts_are_rules_and_fire_when_they_should(tools: Path) -> None:
    for file in sorted(ALERTS.glob("*.yaml")):
        promtool(tools, "check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert "SUCCESS" in promtool(tools, "test", "rules", str(Path(__file__).with_name("alerts.test.yaml")))
