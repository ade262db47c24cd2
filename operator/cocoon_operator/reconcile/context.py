"""What every pass works with: the worlds, and what is configured."""

from __future__ import annotations

from dataclasses import dataclass, field

from cocoon_operator.reconcile.hibernation.machine import Limits
from cocoon_operator.reconcile.pace import Pace
from cocoon_operator.reconcile.ports import Claims, Clock, Cluster, Measures, Recorder, Registry


@dataclass(frozen=True, slots=True)
class Context:
    """The worlds, and what is configured."""

    cluster: Cluster
    registry: Registry
    recorder: Recorder
    measures: Measures
    claims: Claims
    clock: Clock
    pace: Pace = field(default_factory=Pace)
    tag_collection_timeout: float = 600.0
    """Seconds that a deletion waits for tags it cannot collect; 0 waits for ever."""
    limits: Limits = field(default_factory=Limits)
