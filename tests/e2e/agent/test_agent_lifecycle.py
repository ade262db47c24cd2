"""Lifecycle arithmetic (contract, 3.2): the triple, the generation echo, drift."""

from __future__ import annotations

import pytest
from node_fleet import LIFECYCLE, MESSAGE, OBSERVED, Fleet, note


@pytest.mark.scenario("N056", "N057")
def test_a_newer_stamp_is_echoed_once_and_nothing_else_is(fleet: Fleet) -> None:
    fleet.boot("demo-0", generation="1")
    fleet.settle()
    since = fleet.agent.mark()
    fleet.annotate("demo-0", generation="2")
    fleet.until_pod("demo-0", lambda pod: note(pod, OBSERVED) == "2", "the stamp is echoed")
    fleet.settle()
    writes = fleet.writes("demo-0", since)
    assert [each["changes"] for each in writes] == [{LIFECYCLE: "ready", OBSERVED: "2", MESSAGE: None}]
    since = fleet.agent.mark()
    fleet.annotate("demo-0", network="other")
    fleet.settle()
    assert fleet.writes("demo-0", since) == []


@pytest.mark.scenario("N058")
def test_a_newer_stamp_is_echoed_in_sleep(fleet: Fleet) -> None:
    fleet.boot("demo-0", generation="3")
    pod = fleet.hibernate("demo-0")
    assert note(pod, OBSERVED) == "3"
    since = fleet.agent.mark()
    fleet.annotate("demo-0", generation="4")
    pod = fleet.until_pod("demo-0", lambda pod: note(pod, OBSERVED) == "4", "the stamp is echoed")
    assert note(pod, LIFECYCLE) == "hibernated"
    assert fleet.find_vm("demo-0") is None
    assert fleet.journal("registry", since=since) == []


@pytest.mark.scenario("N060", "N061", "N068", "N072")
def test_failed_sticks_within_a_generation_until_the_request_is_taken_back(fleet: Fleet) -> None:
    before = fleet.boot("demo-0")
    fleet.agent.fault("n1", "snapshot.save", vm=fleet.vm("demo-0"), message="disk full")
    fleet.annotate("demo-0", hibernate="true")
    pod = fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "HibernateSnapshotFailed")
    assert note(pod, MESSAGE) == "hibernate: disk full"
    vm = fleet.the_vm("demo-0")
    assert note(pod, "vm.cocoonstack.io/id") == vm["id"]
    assert not fleet.has_tag("demo-0")
    fleet.until_pod("demo-0", lambda pod: pod["status"]["conditions"][0]["status"] == "False", "Ready is False")
    since = fleet.agent.mark()
    fleet.annotate("demo-0", hibernate=None)
    pod = fleet.until_state("demo-0", "ready")
    states = [
        each["changes"][LIFECYCLE] for each in fleet.writes("demo-0", since) if LIFECYCLE in each.get("changes", {})
    ]
    assert states[-2:] == ["creating", "ready"]
    assert MESSAGE not in pod["metadata"]["annotations"]
    assert note(pod, "vm.cocoonstack.io/id") == note(before, "vm.cocoonstack.io/id")


@pytest.mark.scenario("N062")
def test_a_lifecycle_that_somebody_wrote_over_is_restored(fleet: Fleet) -> None:
    fleet.boot("demo-0", generation="5")
    fleet.annotate("demo-0", lifecycle_state="creating", lifecycle_observed_generation="4")
    pod = fleet.until_state("demo-0", "ready")
    assert note(pod, OBSERVED) == "5"


@pytest.mark.scenario("N063")
def test_a_write_for_a_pod_that_is_gone_is_given_up(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    barrier = fleet.agent.barrier("n1", "patch.annotations.lifecycle", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", generation="2")
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.release("n1", barrier)
    fleet.until_gone("demo-0")
    hits = next(each["hits"] for each in fleet.agent.faults("n1") if each["id"] == barrier)
    assert hits == 1
    fleet.settle(1.7)
    assert next(each["hits"] for each in fleet.agent.faults("n1") if each["id"] == barrier) == 1
