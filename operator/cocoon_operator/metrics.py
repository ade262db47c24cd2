"""What is counted, as ``metricfamilies`` declares it, and its text.

The families of the contract appear after their first use, as they did before; ``_created`` series never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, Metric, ProcessCollector
from prometheus_client.registry import Collector
from typing_extensions import override

from cocoon_operator.api import keys
from cocoon_operator.metricfamilies import BY_SET, FAMILIES, PREFIX, Family

_RESULTS: Final = ("success", "error", "requeue", "requeue_after")
_METHODS: Final = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


class UnknownMetricError(LookupError):
    """No family of this name exists: a name is part of the contract and is never made up on the way."""


class _UsedOnly(CollectorRegistry):
    """Leaves families out that have no sample yet."""

    @override
    def collect(self) -> Iterable[Metric]:
        return (metric for metric in super().collect() if metric.samples)


class Metrics:
    """Every family of the process. Implements ``reconcile.ports.Measures`` and ``engine.engine.EngineMeasures``."""

    def __init__(self, version: str = "") -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = _UsedOnly()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._counters = {family.name: self._counter(family) for family in _of_kind("counter")}
        self._histograms = {family.name: self._histogram(family) for family in _of_kind("histogram")}
        self._gauges = {name: self._gauge(FAMILIES[name]) for name in _SET_HERE}
        self._gauges[f"{PREFIX}build_info"].labels(version).set(1)
        self.leads(leading=False)

    # -- reconcile.ports.Measures ----------------------------------------------------------------------------------

    def count(self, name: str, **labels: str) -> None:
        """Add one to ``cocoon_operator_<name>``. Raises :class:`UnknownMetricError` for any other name."""
        counter = self._counters.get(PREFIX + name)
        if counter is None:
            raise UnknownMetricError(name)
        counter.labels(**labels).inc()

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to ``cocoon_operator_<name>``. Raises :class:`UnknownMetricError` for any other name."""
        histogram = self._histograms.get(PREFIX + name)
        if histogram is None:
            raise UnknownMetricError(name)
        histogram.labels(**labels).observe(seconds)

    def forget(self, namespace: str, name: str) -> None:
        """Drop the series of a set that is gone."""
        for family in _of_kind("counter"):
            if family.labels[: len(BY_SET)] == BY_SET:
                self._counters[family.name].remove_by_labels({"namespace": namespace, "cocoonset": name})

    # -- engine.EngineMeasures -------------------------------------------------------------------------------------

    def controller(self, name: str, workers: int) -> ControllerMetrics:
        """Return the measures of a controller and its queue; their series are there from now on."""
        return ControllerMetrics(self._counters, self._histograms, self._gauges, name, workers)

    def leads(self, leading: bool) -> None:
        """Note whether this replica leads."""
        self._gauges["leader_election_master_status"].labels(keys.LEASE_NAME).set(int(leading))

    def event(self, result: str) -> None:
        """Count a Kubernetes event by what became of it."""
        self._counters[f"{PREFIX}events_total"].labels(result).inc()

    # -- the clients and the event loop ----------------------------------------------------------------------------

    def kube_requests(self, host: str) -> Callable[[str, str, str, float], None]:
        """Return what counts a request to the Kubernetes API: verb, resource, code (0 is no answer), seconds."""
        requests = self._counters[f"{PREFIX}kube_api_requests_total"]
        durations = self._histograms[f"{PREFIX}kube_api_request_duration_seconds"]
        as_client_go = self._counters["rest_client_requests_total"]

        def count(verb: str, resource: str, code: str, seconds: float) -> None:
            requests.labels(verb, resource or "other", code).inc()
            as_client_go.labels("<error>" if code == "0" else code, _METHODS.get(verb, verb), host).inc()
            if verb != "watch":
                durations.labels(verb).observe(seconds)

        return count

    def registry_request(self, operation: str, code: int | str, seconds: float) -> None:
        """Count a request to the registry; the code is a word where there was no answer."""
        self._counters[f"{PREFIX}registry_requests_total"].labels(operation, str(code)).inc()
        self._histograms[f"{PREFIX}registry_request_duration_seconds"].labels(operation).observe(seconds)

    def lagged(self, seconds: float) -> None:
        """Note how late the event loop was."""
        self._histograms[f"{PREFIX}event_loop_lag_seconds"].observe(seconds)

    # -- output ----------------------------------------------------------------------------------------------------

    def add(self, collector: Collector) -> None:
        """Let a collector be asked at every scrape."""
        self.registry.register(collector)

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)

    def _counter(self, family: Family) -> Counter:
        return Counter(family.name, family.text, family.labels, registry=self.registry)

    def _gauge(self, family: Family) -> Gauge:
        return Gauge(family.name, family.text, family.labels, registry=self.registry)

    def _histogram(self, family: Family) -> Histogram:
        return Histogram(family.name, family.text, family.labels, buckets=family.buckets, registry=self.registry)


class ControllerMetrics:
    """One controller and its queue. Implements ``engine.engine.ControllerMeasures``."""

    def __init__(
        self,
        counters: dict[str, Counter],
        histograms: dict[str, Histogram],
        gauges: dict[str, Gauge],
        name: str,
        workers: int,
    ) -> None:
        self._passes = {
            result: counters["controller_runtime_reconcile_total"].labels(name, result) for result in _RESULTS
        }
        self._errors = counters["controller_runtime_reconcile_errors_total"].labels(name)
        self._pass_time = histograms["controller_runtime_reconcile_time_seconds"].labels(name)
        self._active = gauges["controller_runtime_active_workers"].labels(name)
        self._depth = gauges["workqueue_depth"].labels(name, name)
        self._adds = counters["workqueue_adds_total"].labels(name, name)
        self._retries = counters["workqueue_retries_total"].labels(name, name)
        self._waited = histograms["workqueue_queue_duration_seconds"].labels(name, name)
        self._took = histograms["workqueue_work_duration_seconds"].labels(name, name)
        gauges["controller_runtime_max_concurrent_reconciles"].labels(name).set(workers)

    def queued(self, depth: int) -> None:
        """Count a key that was added."""
        self._adds.inc()
        self._depth.set(depth)

    def taken(self, depth: int, waited: float) -> None:
        """Note a key that was taken after ``waited`` seconds."""
        self._depth.set(depth)
        self._active.inc()
        self._waited.observe(waited)

    def finished(self, took: float) -> None:
        """Note a run that ended after ``took`` seconds."""
        self._active.dec()
        self._took.observe(took)

    def retried(self) -> None:
        """Count a key that runs again after a failure."""
        self._retries.inc()

    def passed(self, result: str, seconds: float) -> None:
        """Count a pass by its result: success, error, requeue, requeue_after."""
        self._passes[result].inc()
        self._pass_time.observe(seconds)
        if result == "error":
            self._errors.inc()


_SET_HERE: Final = (
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "workqueue_depth",
    "leader_election_master_status",
    f"{PREFIX}build_info",
)
"""The gauges that are set when something happens; the others are read at a scrape (``enginemetrics``)."""


def _of_kind(kind: str) -> list[Family]:
    return [family for family in FAMILIES.values() if family.kind == kind]
