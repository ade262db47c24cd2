"""What the agent reports of a pod, and when a persisted status is not that (contract 1.7, R1.25)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cocoon_devkit.agent import wire
from cocoon_devkit.agent.podstatus import compose, differs, is_ready
from cocoon_devkit.agent.tracked import Intent, Table, Tracked

Obj = dict[str, Any]


def tracked(*, vm: bool = True) -> Tracked:
    pod: Obj = {
        "metadata": {"namespace": "ns", "name": "p", "uid": "1", "annotations": {wire.VM_NAME: "v"}},
        "spec": {"containers": [{"name": "agent", "image": "placeholder"}]},
    }
    each = Table().track(pod)
    if vm:
        each.vm_id, each.ip = "id", "10.0.0.1"
    return each


@pytest.mark.scenario("N064", "N188")
def test_without_a_vm_a_pod_is_bare_and_pending() -> None:
    status = compose(tracked(vm=False))
    assert status["phase"] == "Pending"
    assert {key for key, value in status.items() if value is None} == {
        "reason",
        "message",
        "podIP",
        "podIPs",
        "conditions",
        "containerStatuses",
    }


@pytest.mark.scenario("N020", "N021", "N060")
@pytest.mark.parametrize(
    ("probe", "state", "promoting", "ready"),
    [
        (True, "ready", False, True),
        (True, "creating", False, False),
        (True, "creating", True, True),
        (True, "failed", False, False),
        (False, "ready", False, False),
        (False, "creating", True, False),
    ],
)
def test_ready_wants_probe_and_lifecycle(probe: bool, state: str, promoting: bool, ready: bool) -> None:
    each = tracked()
    each.probe_ok, each.promoting, each.intent = probe, promoting, Intent(state, 1)
    assert is_ready(each) is ready
    status = compose(each)
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["name"] == "agent"
    assert "running" in status["containerStatuses"][0]["state"]
    assert status["containerStatuses"][0]["ready"] is ready


@pytest.mark.scenario("N020")
def test_the_time_of_a_condition_moves_only_with_it() -> None:
    each = tracked()
    each.ready_since = ("False", "2026-01-01T00:00:00Z")
    assert compose(each)["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    each.probe_ok, each.intent = True, Intent("ready", 1)
    assert compose(each)["conditions"][0]["lastTransitionTime"] != "2026-01-01T00:00:00Z"


@pytest.mark.scenario("N062")
@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Pending"},
        {"podIP": "10.9.9.9"},
        {"conditions": None},
        {"containerStatuses": None},
        {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]},
    ],
)
def test_a_drifted_status_is_seen(change: Obj) -> None:
    wanted = compose(tracked())
    seen = copy.deepcopy(wanted)
    assert not differs(wanted, seen)
    # The scheduler's own condition is nobody's drift.
    seen["conditions"].append({"type": "PodScheduled", "status": "True"})
    assert not differs(wanted, seen)
    assert differs(wanted, {**seen, **change})
