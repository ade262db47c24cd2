"""Traces are made on demand: a span for each pass, one below it for each of its requests, sent by OTLP."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
import structlog
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import StatusCode

from cocoon_devkit.ports import free_ports
from cocoon_operator.reconcile.objects import set_from_object
from cocoon_operator.reconcile.view import Outcome, View
from cocoon_operator.startup import StartError
from cocoon_operator.tracing import open_tracer
from cocoon_operator.tracing_otel import OtelTracer

SET = set_from_object(
    {"metadata": {"namespace": "ns", "name": "demo", "uid": "u1", "generation": 3}, "status": {"phase": "Waking"}}
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = View(SET, (), (), NOW)


class Traces:
    """A tracer, and the spans that it made."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer = OtelTracer(SimpleSpanProcessor(self.exporter), ALWAYS_ON)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@pytest.fixture
def traces() -> Traces:
    return Traces()


def test_a_pass_is_a_span_that_names_its_set(traces: Traces) -> None:
    with traces.tracer.reconcile(VIEW) as end:
        end(Outcome(requeue_after=5.0))
    span = traces.span("reconcile")
    assert dict(span.attributes or {}) == {
        "k8s.namespace.name": "ns",
        "k8s.cocoonset.name": "demo",
        "k8s.cocoonset.generation": 3,
        "k8s.cocoonset.phase": "Waking",
        "k8s.cocoonset.requeue_after_seconds": 5.0,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "cocoon-operator"


def test_a_pass_over_a_set_that_is_gone_is_a_span_too(traces: Traces) -> None:
    with traces.tracer.reconcile(View(None, (), (), NOW)) as end:
        end(Outcome())
    assert dict(traces.span("reconcile").attributes or {}) == {}


def test_a_pass_that_failed_or_broke_off_says_why(traces: Traces) -> None:
    with traces.tracer.reconcile(VIEW) as end:
        end(Outcome(error=RuntimeError("no way")))
    with pytest.raises(KeyError), traces.tracer.reconcile(VIEW):
        raise KeyError("mistake")
    failed, broke = traces.spans
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "no way")
    assert [event.name for event in failed.events] == ["exception"]
    assert broke.status.status_code is StatusCode.ERROR


def test_requests_of_a_pass_are_below_it_and_last_as_long_as_they_took(traces: Traces) -> None:
    with traces.tracer.reconcile(VIEW):
        traces.tracer.kube_request("patch", "pods", "200", 0.25)
        traces.tracer.kube_request("get", "", "0", 0.5)
        traces.tracer.registry_request("probe", 404, 0.125)
        traces.tracer.registry_request("probe", "timeout", 4.0)
        traces.tracer.registry_request("drop", 503, 0.125)
    whole = traces.span("reconcile")
    patch, get, absent, timeout, drop = traces.spans[:5]
    assert whole.context is not None
    assert {span.parent.span_id for span in traces.spans[:5] if span.parent} == {whole.context.span_id}
    assert [span.name for span in traces.spans[:5]] == [
        *("patch pods", "get other", "registry probe", "registry probe", "registry drop")
    ]
    assert (patch.end_time or 0) - (patch.start_time or 0) == 250_000_000
    statuses = [(span.attributes or {}).get("http.response.status_code") for span in traces.spans[:5]]
    assert statuses == [200, None, 404, None, 503]
    assert [span.status.description for span in (get, timeout, drop)] == ["no answer", "timeout", "503"]
    assert {span.status.status_code for span in (patch, absent)} == {StatusCode.UNSET}


def test_a_request_of_no_pass_is_no_trace(traces: Traces) -> None:
    traces.tracer.kube_request("watch", "pods", "200", 300.0)
    assert traces.spans == ()


def test_the_trace_is_named_in_the_log_lines_of_its_pass_alone(traces: Traces) -> None:
    with traces.tracer.reconcile(VIEW):
        bound = structlog.contextvars.get_contextvars()
    context = traces.span("reconcile").context
    assert context is not None
    assert bound == {"trace_id": f"{context.trace_id:032x}"}
    assert structlog.contextvars.get_contextvars() == {}


def test_a_pass_that_is_not_sampled_costs_no_span_and_no_word() -> None:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(SimpleSpanProcessor(exporter), ALWAYS_OFF)
    with tracer.reconcile(VIEW) as end:
        tracer.kube_request("patch", "pods", "200", 0.25)
        assert structlog.contextvars.get_contextvars() == {}
        end(Outcome(error=RuntimeError("no way")))
    assert exporter.get_finished_spans() == ()


def test_traces_are_off_unless_there_is_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cocoon_operator.tracing_otel", None)
    assert open_tracer("") is None


def test_a_missing_extra_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cocoon_operator.tracing_otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(StartError, match=r"^OTEL_EXPORTER_OTLP_ENDPOINT .* install cocoon-operator\[otel\]"):
        open_tracer("http://127.0.0.1:4318")


class Collector:
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.headers: list[dict[str, str]] = []
        self.spans: list[Any] = []

    async def take(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        message = ExportTraceServiceRequest()
        message.ParseFromString(await request.read())
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                self.spans += list(scope.spans)
        return web.Response(content_type="application/x-protobuf")


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", collector.port).start()
    yield collector
    await runner.cleanup()


@pytest.mark.asyncio
async def test_a_collector_gets_what_the_standard_variables_ask_for(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=cocoon")
    tracer = open_tracer(f"http://127.0.0.1:{collector.port}/")
    assert tracer is not None
    with tracer.reconcile(VIEW) as end:
        tracer.kube_request("patch", "pods", "200", 0.25)
        end(Outcome())
    await tracer.close()
    assert sorted(span.name for span in collector.spans) == ["patch pods", "reconcile"]
    assert {headers.get("x-team") for headers in collector.headers} == {"cocoon"}


@pytest.mark.asyncio
async def test_without_a_sampler_one_pass_of_a_hundred_is_traced(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    tracer = open_tracer(f"http://127.0.0.1:{collector.port}")
    assert isinstance(tracer, OtelTracer)
    assert "0.01" in tracer._provider.sampler.get_description()
    await tracer.close()
    assert collector.spans == []


@pytest.mark.asyncio
async def test_a_collector_that_is_not_there_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    (nobody,) = free_ports(1)
    tracer = open_tracer(f"http://127.0.0.1:{nobody}")
    assert tracer is not None
    with tracer.reconcile(VIEW):
        pass
    async with asyncio.timeout(20):
        await tracer.close()
