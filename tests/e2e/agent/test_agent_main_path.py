"""The main path on a real API server and a real registry: create, hibernate, wake, delete, restore."""

from __future__ import annotations

import pytest
from node_fleet import LIFECYCLE, Fleet, note, ready, running


@pytest.mark.scenario("N017", "N064", "N066", "N079", "N081")
def test_a_vm_keeps_its_memory_through_hibernation_and_wake(fleet: Fleet) -> None:
    pod = fleet.boot("demo-0")
    assert ready(pod)
    assert running(pod)
    fleet.work("demo-0", "essay, first half")
    before = fleet.the_vm("demo-0")
    assert before["restored_from"] == ""

    asleep = fleet.hibernate("demo-0")
    assert note(asleep, "vm.cocoonstack.io/id") == ""
    assert not asleep["status"].get("containerStatuses")
    assert fleet.find_vm("demo-0") is None
    local = fleet.local("demo-0")
    assert local is not None
    assert fleet.tag_id("demo-0") == local["id"]
    fleet.until_event("demo-0", "Hibernated")

    since = fleet.agent.mark()
    awake = fleet.wake("demo-0")
    assert ready(awake)
    assert note(awake, LIFECYCLE) == "ready"
    after = fleet.the_vm("demo-0")
    assert after["boot_id"] == before["boot_id"]
    assert after["memory"]["work"] == ["essay, first half"]
    assert after["memory"]["ticks"] >= before["memory"]["ticks"]
    assert after["restored_from"] == local["id"]
    assert after["id"] != before["id"]
    assert fleet.layer_reads(since) == []
    assert fleet.has_tag("demo-0")
    assert fleet.local_id("demo-0") == local["id"]
    fleet.until_event("demo-0", "Woken")


@pytest.mark.scenario("N100", "N103", "N106", "N045")
def test_a_released_seat_keeps_its_cache_and_is_restored_from_it(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "line")
    fleet.hibernate("demo-0")
    fleet.release("demo-0")
    assert fleet.local("demo-0") is not None

    since = fleet.agent.mark()
    pod = fleet.boot("demo-0", restore_from_hibernate="true")
    assert note(pod, "vm.cocoonstack.io/restore-from-hibernate") == "true"
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["line"]
    assert fleet.layer_reads(since) == []
    assert fleet.has_tag("demo-0")


@pytest.mark.scenario("N099", "N088", "N164", "N176")
def test_without_the_keep_flag_the_cache_goes_and_the_next_restore_pulls(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    fleet.work("demo-0", "line")
    fleet.hibernate("demo-0")
    fleet.delete("demo-0")
    assert fleet.local("demo-0") is None
    assert fleet.has_tag("demo-0")
    assert not fleet.has_tag("demo-0", "latest")

    since = fleet.agent.mark()
    fleet.boot("demo-0", restore_from_hibernate="true")
    vm = fleet.the_vm("demo-0")
    assert vm["memory"]["work"] == ["line"]
    assert vm["restored_via"] == "pull"
    assert fleet.layer_reads(since) != []
    assert fleet.local("demo-0") is None
    fleet.until(
        lambda: not any("hibernate-import" in name for name in fleet.agent.snapshots("n1")), "the import is gone"
    )
