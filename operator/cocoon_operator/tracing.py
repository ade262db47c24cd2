"""Traces for whoever has a collector: a span for every pass, and below it one for each of its requests.

Off unless ``OTEL_EXPORTER_OTLP_ENDPOINT`` says where to. What does it lives in the extra ``otel`` (``tracing_otel``), so that a
process without a collector carries none of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from cocoon_operator.reconcile.view import Outcome, View
from cocoon_operator.startup import StartError

PassEnd = Callable[[Outcome], None]


class Tracer(Protocol):
    """What is told about passes and requests."""

    def reconcile(self, view: View) -> AbstractContextManager[PassEnd]:
        """Enclose a pass; what it yields is called with the outcome."""
        ...

    def kube_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Take note of a request to the Kubernetes API that just ended; code 0 is no answer."""
        ...

    def registry_request(self, operation: str, code: int | str, seconds: float) -> None:
        """Take note of a request to the registry that just ended; the code is a word where there was no answer."""
        ...

    async def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        ...


def open_tracer(endpoint: str) -> Tracer | None:
    """Return what sends traces to ``endpoint``, an URL; None when there is none.

    Raises :class:`StartError` when the extra is not installed.
    """
    if not endpoint:
        return None
    try:
        module = importlib.import_module("cocoon_operator.tracing_otel")
    except ImportError as error:
        raise StartError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, but {error.name} is not installed:"
            " install cocoon-operator[otel], or unset it"
        ) from error
    tracer: Tracer = module.OtelTracer.to_collector(endpoint)
    return tracer
