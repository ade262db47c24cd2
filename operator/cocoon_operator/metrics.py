"""What is counted, under the names of the contract (7.1), and how it is served.

The families of the contract appear after their first use, as they did before; ``_created`` series never do. Names that
dashboards take from controller-runtime keep their meaning. New families carry no namespace or name (cardinality).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector
from typing_extensions import override

from cocoon_operator.api import keys

PREFIX: Final = "cocoon_operator_"

_BY_SET: Final = ("namespace", "cocoonset")
_PHASE_BUCKETS: Final = (10, 30, 60, 180, 600, 1800)
_CONTROLLER: Final = "cocoonset"

COUNTERS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "subagent_rebuild_total": (_BY_SET, "Sub-agent pods that were deleted to be built again."),
    "subagent_dead_letter_total": (_BY_SET, "Sub-agent pods that were given up after too many rebuilds."),
    "lifecycle_state_failed_observed_total": (("phase",), "Main agents whose lifecycle turned failed, by set phase."),
    "slot_release_pods_deleted_total": (_BY_SET, "Pods that were deleted to free their seat."),
    "slot_release_wake_total": ((*_BY_SET, "placement"), "Released seats that woke, by where."),
    "slot_release_wake_unschedulable_total": (_BY_SET, "Waking pods that found no node."),
}
HISTOGRAMS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "hibernate_phase_duration_seconds": (("result",), "How long a CocoonHibernation was Hibernating."),
    "wake_phase_duration_seconds": (("result",), "How long a CocoonHibernation was Waking."),
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

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = _UsedOnly()
        ProcessCollector(registry=self.registry)
        self._counters = {
            name: Counter(PREFIX + name, text, labels, registry=self.registry)
            for name, (labels, text) in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(PREFIX + name, text, labels, buckets=_PHASE_BUCKETS, registry=self.registry)
            for name, (labels, text) in HISTOGRAMS.items()
        }
        self._passes = self._counter(
            "controller_runtime_reconcile_total", ("controller", "result"), "Passes by result."
        )
        self._errors = self._counter("controller_runtime_reconcile_errors_total", ("controller",), "Failed passes.")
        self._pass_time = self._histogram("controller_runtime_reconcile_time_seconds", ("controller",), "Pass time.")
        self._depth = Gauge("workqueue_depth", "Keys that wait.", ("name",), registry=self.registry)
        self._adds = self._counter("workqueue_adds_total", ("name",), "Keys added.")
        self._retries = self._counter("workqueue_retries_total", ("name",), "Keys added again after a failure.")
        self._waited = self._histogram("workqueue_queue_duration_seconds", ("name",), "How long keys waited.")
        self._took = self._histogram("workqueue_work_duration_seconds", ("name",), "How long passes took.")
        self._leading = Gauge("leader_election_master_status", "1 while leading.", ("name",), registry=self.registry)
        self._kube = self._counter(
            f"{PREFIX}kube_api_requests_total", ("verb", "resource", "code"), "Requests to the Kubernetes API."
        )
        self._kube_time = self._histogram(f"{PREFIX}kube_api_request_seconds", ("verb",), "Their time.")
        self._registry_requests = self._counter(
            f"{PREFIX}registry_requests_total", ("operation", "code"), "Requests to the registry."
        )
        self._leading.labels(keys.LEASE_NAME).set(0)

    # -- reconcile.ports.Measures ----------------------------------------------------------------------------------

    def count(self, name: str, **labels: str) -> None:
        """Add one to ``cocoon_operator_<name>``. Raises :class:`UnknownMetricError` for any other name."""
        if name not in self._counters:
            raise UnknownMetricError(name)
        self._counters[name].labels(**labels).inc()

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to ``cocoon_operator_<name>``. Raises :class:`UnknownMetricError` for any other name."""
        if name not in self._histograms:
            raise UnknownMetricError(name)
        self._histograms[name].labels(**labels).observe(seconds)

    def forget(self, namespace: str, name: str) -> None:
        """Drop the series of a set that is gone."""
        for key, (labels, _) in COUNTERS.items():
            if labels[: len(_BY_SET)] == _BY_SET:
                self._counters[key].remove_by_labels({"namespace": namespace, "cocoonset": name})

    # -- engine.EngineMeasures -------------------------------------------------------------------------------------

    def queued(self, depth: int) -> None:
        """Count a key that was added."""
        self._adds.labels(_CONTROLLER).inc()
        self._depth.labels(_CONTROLLER).set(depth)

    def taken(self, depth: int, waited: float) -> None:
        """Note a key that was taken after ``waited`` seconds."""
        self._depth.labels(_CONTROLLER).set(depth)
        self._waited.labels(_CONTROLLER).observe(waited)

    def finished(self, took: float) -> None:
        """Note a run that ended after ``took`` seconds."""
        self._took.labels(_CONTROLLER).observe(took)

    def retried(self) -> None:
        """Count a key that runs again after a failure."""
        self._retries.labels(_CONTROLLER).inc()

    def leads(self, leading: bool) -> None:
        """Note whether this replica leads."""
        self._leading.labels(keys.LEASE_NAME).set(int(leading))

    def passed(self, result: str, seconds: float) -> None:
        """Count a pass by its result: success, error, requeue_after."""
        self._passes.labels(_CONTROLLER, result).inc()
        self._pass_time.labels(_CONTROLLER).observe(seconds)
        if result == "error":
            self._errors.labels(_CONTROLLER).inc()

    # -- the clients -----------------------------------------------------------------------------------------------

    def kube_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a request to the Kubernetes API; code 0 is no answer."""
        self._kube.labels(verb, resource or "other", code).inc()
        if verb != "watch":
            self._kube_time.labels(verb).observe(seconds)

    def registry_request(self, operation: str, code: int | str) -> None:
        """Count a request to the registry; the code is a word where there was no answer."""
        self._registry_requests.labels(operation, str(code)).inc()

    # -- output ----------------------------------------------------------------------------------------------------

    def text(self) -> bytes:
        """Return the exposition in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)

    def _counter(self, name: str, labels: tuple[str, ...], text: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, labels: tuple[str, ...], text: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry)
