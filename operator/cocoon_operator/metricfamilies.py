"""Every metric there is: name, type, labels, meaning. ``docs/metrics.md``, alerts and dashboards are checked against it.

The names of the contract (7.1) and of controller-runtime stay as they are, for dashboards that exist. Namespace and name are
labels only where the contract has them: elsewhere they would be a series for every set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "cocoon_operator_"

BY_SET: Final = ("namespace", "cocoonset")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. Durations are in seconds; ``text`` says what it tells, in one sentence."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()


_PHASE: Final = (10.0, 30.0, 60.0, 180.0, 600.0, 1800.0)
_TRANSITION: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1800.0)
_REQUEST: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LAG: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
# controller-runtime's and client-go's, so that a quantile means the same after a swap.
_PASS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0),
    *(40.0, 50.0, 60.0),
)
_QUEUE: Final = tuple(float(f"1e{power}") for power in range(-8, 4))

_CONTROLLER: Final = ("controller",)
_WORKQUEUE: Final = ("name", "controller")

CONTRACT: Final = (
    Family(f"{PREFIX}subagent_rebuild_total", "counter", BY_SET, "Sub-agents that were deleted to be made again."),
    Family(f"{PREFIX}subagent_dead_letter_total", "counter", BY_SET, "Sub-agents given up after too many rebuilds."),
    Family(
        f"{PREFIX}lifecycle_state_failed_observed_total",
        "counter",
        ("phase",),
        "Main agents that failed for good, by the phase of their set before.",
    ),
    Family(f"{PREFIX}slot_release_pods_deleted_total", "counter", BY_SET, "Pods that were deleted to free their seat."),
    Family(
        f"{PREFIX}slot_release_wake_total",
        "counter",
        (*BY_SET, "placement"),
        "Released seats that woke: on the node they left (hint-node) or on another (pool).",
    ),
    Family(
        f"{PREFIX}slot_release_wake_unschedulable_total",
        "counter",
        BY_SET,
        "Wakes of released seats that found no node at first.",
    ),
    Family(
        f"{PREFIX}hibernate_phase_duration_seconds",
        "histogram",
        ("result",),
        "How long CocoonHibernations were Hibernating, until saved (ok) or given up (timeout).",
        _PHASE,
    ),
    Family(
        f"{PREFIX}wake_phase_duration_seconds",
        "histogram",
        ("result",),
        "How long CocoonHibernations were Waking, until awake (ok) or given up (timeout).",
        _PHASE,
    ),
)
"""The families of the contract. Each is there after its first use, as it was with the Go operator."""

TRANSITIONS: Final = (
    Family(
        f"{PREFIX}suspend_duration_seconds",
        "histogram",
        ("mode", "outcome"),
        "How long sets were Suspending, by hibernatePolicy, until that was done, reversed by an edit, or failed.",
        _TRANSITION,
    ),
    Family(
        f"{PREFIX}wake_duration_seconds",
        "histogram",
        ("mode", "outcome"),
        "How long sets took to wake, in place (retain) or from a released seat (release), as above.",
        _TRANSITION,
    ),
    Family(
        f"{PREFIX}migration_duration_seconds",
        "histogram",
        ("outcome",),
        "How long sets were Migrating, as above.",
        _TRANSITION,
    ),
)
"""How long the transitions of CocoonSets take."""

FLEET: Final = (
    Family(f"{PREFIX}cocoonsets", "gauge", ("phase",), "CocoonSets by phase."),
    Family(
        f"{PREFIX}cocoonset_conditions",
        "gauge",
        ("type", "status", "reason"),
        "CocoonSets that have a condition, by its type, status and reason.",
    ),
    Family(f"{PREFIX}cocoonhibernations", "gauge", ("phase",), "CocoonHibernations by phase."),
    Family(f"{PREFIX}pods", "gauge", (), "Pods of CocoonSets."),
)
"""The state of the fleet as this replica's cache shows it; every replica tells it, so take the maximum."""

BUILT_IN: Final = (
    Family("controller_runtime_reconcile_total", "counter", ("controller", "result"), "Passes by result."),
    Family("controller_runtime_reconcile_errors_total", "counter", _CONTROLLER, "Passes that failed."),
    Family("controller_runtime_reconcile_time_seconds", "histogram", _CONTROLLER, "How long passes took.", _PASS),
    Family("controller_runtime_max_concurrent_reconciles", "gauge", _CONTROLLER, "Passes that can run at once."),
    Family("controller_runtime_active_workers", "gauge", _CONTROLLER, "Passes that run."),
    Family("workqueue_depth", "gauge", _WORKQUEUE, "Keys that wait."),
    Family("workqueue_adds_total", "counter", _WORKQUEUE, "Keys that were added."),
    Family("workqueue_retries_total", "counter", _WORKQUEUE, "Keys that run again because their pass failed."),
    Family("workqueue_queue_duration_seconds", "histogram", _WORKQUEUE, "How long keys waited.", _QUEUE),
    Family("workqueue_work_duration_seconds", "histogram", _WORKQUEUE, "How long keys were worked on.", _QUEUE),
    Family("workqueue_unfinished_work_seconds", "gauge", _WORKQUEUE, "Time that the running passes took so far."),
    Family("workqueue_longest_running_processor_seconds", "gauge", _WORKQUEUE, "Time that the longest of them took."),
    Family("leader_election_master_status", "gauge", ("name",), "1 on the replica that leads, 0 on the others."),
    Family(
        "rest_client_requests_total",
        "counter",
        ("code", "method", "host"),
        "Requests to the Kubernetes API; code <error> is no answer. Kopf's two watches are not in it.",
    ),
)
"""What dashboards know from controller-runtime and client-go, with its meaning."""

PROCESS: Final = (
    Family(
        f"{PREFIX}kube_api_requests_total",
        "counter",
        ("verb", "resource", "code"),
        "Requests to the Kubernetes API; code 0 is no answer. Kopf's two watches are not in it.",
    ),
    Family(
        f"{PREFIX}kube_api_request_duration_seconds",
        "histogram",
        ("verb",),
        "How long they took; watches are not in it.",
        _REQUEST,
    ),
    Family(
        f"{PREFIX}registry_requests_total",
        "counter",
        ("operation", "code"),
        "Requests to the registry; where there was no answer, the code is a word that says why.",
    ),
    Family(f"{PREFIX}registry_request_duration_seconds", "histogram", ("operation",), "How long they took.", _REQUEST),
    Family(
        f"{PREFIX}watch_last_event_timestamp_seconds",
        "gauge",
        ("resource",),
        "When a resource was last heard of: a list, an event or, for pods, a bookmark.",
    ),
    Family(f"{PREFIX}ready", "gauge", (), "1 when this replica sees the cluster as it is, as /readyz says."),
    Family(
        f"{PREFIX}event_loop_lag_seconds", "histogram", (), "How late the event loop was, looked at every second.", _LAG
    ),
    Family(
        f"{PREFIX}events_total",
        "counter",
        ("result",),
        "Kubernetes events: created, counted (folded into one), dropped (too many) or failed.",
    ),
    Family(f"{PREFIX}build_info", "gauge", ("version",), "1, with the version as its label."),
)
"""How the operator itself is doing."""

FAMILIES: Final = {family.name: family for family in (*CONTRACT, *TRANSITIONS, *FLEET, *BUILT_IN, *PROCESS)}
