"""Traces with OpenTelemetry's SDK. Its own ``OTEL_*`` variables hold: sampler, headers, resource attributes, service name.

Without ``OTEL_TRACES_SAMPLER`` one pass of a hundred is sampled.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio, Sampler

from cocoon_operator.reconcile.view import Outcome, View
from cocoon_operator.tracing import PassEnd
from cocoon_operator.version import version

_SHARE: Final = 0.01
_EXPORT_SECONDS: Final = 5
_FLUSH_MILLISECONDS: Final = 2000
_NANOSECONDS: Final = 1_000_000_000


class OtelTracer:
    """Implements :class:`cocoon_operator.tracing.Tracer` on a provider of its own, not the process-wide one."""

    def __init__(self, processor: SpanProcessor, sampler: Sampler | None = None) -> None:
        self._provider = TracerProvider(resource=_resource(), sampler=sampler, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("cocoon_operator")

    @classmethod
    def to_collector(cls, endpoint: str) -> OtelTracer:
        """Send spans in batches to a collector, by OTLP over HTTP."""
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_SECONDS)
        sampler = None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBasedTraceIdRatio(_SHARE)
        return cls(BatchSpanProcessor(exporter), sampler)

    @contextmanager
    def reconcile(self, view: View) -> Iterator[PassEnd]:
        """Enclose a pass in a span; its trace id goes into the pass's log lines."""
        with self._tracer.start_as_current_span("reconcile", attributes=_attributes(view)) as span:
            if not span.is_recording():
                yield lambda _: None
                return
            with structlog.contextvars.bound_contextvars(trace_id=f"{span.get_span_context().trace_id:032x}"):
                yield lambda outcome: _end(span, outcome)

    def kube_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Make a span of a request of the pass; requests of no pass, such as watches, have none."""
        self._request(f"{verb} {resource or 'other'}", code, seconds)

    def registry_request(self, operation: str, code: int | str, seconds: float) -> None:
        """Make a span of a request of the pass."""
        self._request(f"registry {operation}", str(code), seconds)

    async def close(self) -> None:
        """Send what is left. A collector that does not answer costs a few seconds and the rest of the spans."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._provider.force_flush(_FLUSH_MILLISECONDS)
        self._provider.shutdown()

    def _request(self, name: str, code: str, seconds: float) -> None:
        if not trace.get_current_span().is_recording():
            return
        end = time.time_ns()
        span = self._tracer.start_span(name, kind=trace.SpanKind.CLIENT, start_time=end - int(seconds * _NANOSECONDS))
        status = int(code) if code.isdigit() else 0
        if status:
            span.set_attribute("http.response.status_code", status)
        if not status or status >= 500:
            span.set_status(trace.StatusCode.ERROR, "no answer" if code == "0" else code)
        span.end(end)


def _resource() -> Resource:
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "cocoon-operator"}
    return Resource.create({**named, SERVICE_VERSION: version()})


def _attributes(view: View) -> dict[str, str | int]:
    if view.set is None:
        return {}
    return {
        "k8s.namespace.name": view.set.namespace,
        "k8s.cocoonset.name": view.set.name,
        "k8s.cocoonset.generation": view.set.generation,
        "k8s.cocoonset.phase": str(view.set.status.get("phase") or ""),
    }


def _end(span: trace.Span, outcome: Outcome) -> None:
    if outcome.error is not None:
        span.record_exception(outcome.error)
        span.set_status(trace.StatusCode.ERROR, str(outcome.error))
    elif outcome.requeue_after is not None:
        span.set_attribute("k8s.cocoonset.requeue_after_seconds", outcome.requeue_after)
