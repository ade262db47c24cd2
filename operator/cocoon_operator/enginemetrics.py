"""What a scrape reads from the engine: the fleet by phase and condition, the age of what is known, the running passes.

Read, not kept up to date: nothing can drift, and a cluster that changes a lot costs nothing between two scrapes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from cocoon_operator.api.enums import HibernationPhase, SetPhase
from cocoon_operator.metricfamilies import FAMILIES, PREFIX

Labels = tuple[str, ...]

_OTHER: Final = "other"


class Source(Protocol):
    """What the engine shows (``engine.engine.Engine``)."""

    def silence(self) -> Mapping[str, float]:
        """Return the seconds since each resource was last heard of."""
        ...

    def running(self) -> Mapping[str, list[float]]:
        """Return for each controller the seconds that its running passes have taken so far."""
        ...

    def unready(self) -> list[str]:
        """Return why this replica does not see the cluster as it is."""
        ...

    def set_statuses(self) -> Iterable[Mapping[str, Any]]:
        """Return the stored status of every CocoonSet."""
        ...

    def hibernation_statuses(self) -> Iterable[Mapping[str, Any]]:
        """Return the stored status of every CocoonHibernation."""
        ...

    def pod_count(self) -> int:
        """Return how many pods of CocoonSets there are."""
        ...


class EngineCollector:
    """Implements ``prometheus_client.registry.Collector``; ``now`` is the wall clock in seconds."""

    def __init__(self, source: Source, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now

    def describe(self) -> list[Metric]:
        """Name no families: the registry would ask for all values to find them out."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read everything; what is stored in a status is text of others and never an error."""
        statuses = list(self._source.set_statuses())
        sets = Counter(_phase(status, SetPhase) for status in statuses)
        hibernations = Counter(_phase(status, HibernationPhase) for status in self._source.hibernation_statuses())
        conditions = Counter(labels for status in statuses for labels in _conditions(status))
        yield _gauge("cocoonsets", {(phase,): sets[phase] for phase in [*SetPhase, _OTHER]})
        yield _gauge("cocoonset_conditions", conditions)
        yield _gauge("cocoonhibernations", {(phase,): hibernations[phase] for phase in [*HibernationPhase, _OTHER]})
        yield _gauge("pods", {(): self._source.pod_count()})
        yield _gauge("ready", {(): int(not self._source.unready())})
        yield self._heard()
        yield from self._running()

    def _heard(self) -> Metric:
        ages = {resource: age for resource, age in self._source.silence().items() if age != float("inf")}
        now = self._now()
        return _gauge("watch_last_event_timestamp_seconds", {(name,): now - age for name, age in ages.items()})

    def _running(self) -> Iterator[Metric]:
        ages = self._source.running()
        total: dict[Labels, float] = {(name, name): sum(passes) for name, passes in ages.items()}
        longest: dict[Labels, float] = {(name, name): max(passes, default=0.0) for name, passes in ages.items()}
        yield _family("workqueue_unfinished_work_seconds", total)
        yield _family("workqueue_longest_running_processor_seconds", longest)


def _gauge(name: str, values: Mapping[Labels, float]) -> Metric:
    return _family(PREFIX + name, values)


def _family(name: str, values: Mapping[Labels, float]) -> Metric:
    family = FAMILIES[name]
    metric = GaugeMetricFamily(name, family.text, labels=family.labels)
    for labels, value in sorted(values.items()):
        metric.add_metric(labels, value)
    return metric


def _phase(status: Mapping[str, Any], phases: type[SetPhase | HibernationPhase]) -> str:
    """Return the phase, ``Pending`` where none is stored yet, ``other`` where it is none that we know."""
    stored = status.get("phase") or SetPhase.PENDING
    return str(stored) if stored in list(phases) else _OTHER


def _conditions(status: Mapping[str, Any]) -> Iterator[Labels]:
    stored = status.get("conditions")
    for entry in stored if isinstance(stored, list) else ():
        if isinstance(entry, Mapping):
            yield str(entry.get("type")), str(entry.get("status")), str(entry.get("reason"))
