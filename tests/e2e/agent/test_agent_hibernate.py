"""Hibernation (contract, 3.3): order, evidence in the registry, and what each failure leaves behind."""

from __future__ import annotations

import pytest
from node_fleet import BASE_IMAGE, ID, IP, LIFECYCLE, MESSAGE, Fleet, note, ready, running
from nodes import IMAGE


@pytest.mark.scenario("N064", "N065", "N066", "N078")
def test_hibernated_is_said_last(fleet: Fleet) -> None:
    with fleet.recording("demo-0") as seen:
        fleet.boot("demo-0")
        fleet.hibernate("demo-0")
    order = [
        f"{each['kind']} {each['op']} {each.get('changes', {}).get(LIFECYCLE) or each.get('phase') or ''}".strip()
        for each in fleet.journal()
        if (each["kind"], each["op"])
        in {("engine", "saved"), ("engine", "removed"), ("api", "annotate"), ("api", "status")}
        or (each["op"], each.get("target")) == ("PUT", "manifest")
    ]
    assert order[5:] == [
        "api annotate hibernating",
        "engine saved",
        "registry PUT",
        "registry PUT",
        "api annotate",
        "engine removed",
        "api annotate hibernated",
        "api status Pending",
    ]
    for version in seen:
        if note(version, LIFECYCLE) == "hibernated":
            assert note(version, ID) == ""
            assert IP not in version["metadata"]["annotations"]
    assert fleet.the_manifest("demo-0")["annotations"][BASE_IMAGE] == IMAGE
    assert fleet.tag_id("demo-0") == fleet.local_id("demo-0")
    fleet.until_event("demo-0", "Hibernated")
    # The engine's own word that the VM is gone evicts nobody.
    fleet.settle()
    pod = fleet.the_pod("demo-0")
    assert pod["metadata"].get("deletionTimestamp") is None
    assert pod["status"]["phase"] == "Pending"
    assert not pod["status"].get("containerStatuses")


@pytest.mark.scenario("N067")
def test_a_second_round_moves_tag_and_copy_together(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "first")
    fleet.hibernate("demo-0")
    first = fleet.tag_id("demo-0")
    fleet.wake("demo-0")
    fleet.work("demo-0", "second")
    fleet.hibernate("demo-0")
    second = fleet.tag_id("demo-0")
    assert second not in {"", first}
    assert fleet.local_id("demo-0") == second
    fleet.wake("demo-0")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["first", "second"]


@pytest.mark.scenario("N069", "N199")
def test_a_push_that_fails_leaves_the_vm_alive_and_is_tried_again(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", "push.manifest", vm=fleet.vm("demo-0"), times=2)
    fleet.annotate("demo-0", hibernate="true")
    pod = fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "HibernatePushFailed")
    assert note(pod, MESSAGE).startswith("hibernate: ")
    assert note(pod, ID) == fleet.the_vm("demo-0")["id"]
    assert not fleet.has_tag("demo-0")
    fleet.until_state("demo-0", "hibernated")
    assert fleet.tag_id("demo-0") == fleet.local_id("demo-0")
    starts = [each["time"] for each in fleet.engine("save", "demo-0")]
    assert len(starts) == 3
    # A tenth of 15 s, then twice that; the failing attempts themselves take no time worth counting.
    assert 1.4 < starts[1] - starts[0] < starts[2] - starts[1]
    assert fault in {each["id"] for each in fleet.agent.faults("n1")}


@pytest.mark.scenario("N199")
@pytest.mark.parametrize("stage", ["push.blob", "push.config"])
def test_a_failed_upload_leaves_the_old_manifest_behind_the_tag(fleet: Fleet, stage: str) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    before = fleet.tag_id("demo-0")
    fleet.wake("demo-0")
    fleet.agent.fault("n1", stage, vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate="true")
    fleet.until_state("demo-0", "failed")
    assert fleet.tag_id("demo-0") == before


@pytest.mark.scenario("N070")
def test_a_removal_that_fails_takes_the_tag_back(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    vm = fleet.the_vm("demo-0")
    fleet.agent.fault("n1", "vm.remove", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate="true")
    pod = fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "HibernateRemoveFailed")
    assert not fleet.has_tag("demo-0")
    assert (note(pod, ID), note(pod, IP)) == (vm["id"], vm["ip"])
    assert note(pod, MESSAGE).startswith("hibernate: ")
    assert fleet.the_vm("demo-0")["state"] == "running"


@pytest.mark.scenario("N071")
def test_a_tag_that_cannot_be_taken_back_remains(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.agent.fault("n1", "vm.remove", vm=fleet.vm("demo-0"))
    fleet.agent.fault("n1", "registry.delete")
    fleet.annotate("demo-0", hibernate="true")
    fleet.until_state("demo-0", "failed")
    assert fleet.has_tag("demo-0")
    assert fleet.find_vm("demo-0") is not None


@pytest.mark.scenario("N075")
@pytest.mark.parametrize("value", ["True", "1"])
def test_only_the_text_true_puts_to_sleep(fleet: Fleet, value: str) -> None:
    fleet.boot("demo-0")
    fleet.annotate("demo-0", hibernate=value)
    fleet.settle()
    assert fleet.engine("save", "demo-0") == []
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "ready"


@pytest.mark.scenario("N076")
def test_sub_agents_and_toolboxes_sleep_too(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.boot("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.boot("demo-box", mode="run", image="https://example.invalid/disk.img")
    names = ("demo-0", "demo-1", "demo-box")
    for name in names:
        fleet.annotate(name, hibernate="true")
    for name in names:
        fleet.until_state(name, "hibernated")
        assert fleet.tag_id(name) == fleet.local_id(name)


@pytest.mark.scenario("N077", "N092")
def test_ids_that_survive_the_removal_are_cleared_before_the_next_vm(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    old = fleet.the_vm("demo-0")["id"]
    fault = fleet.agent.fault("n1", "patch.annotations.runtime", vm=fleet.vm("demo-0"))
    pod = fleet.hibernate("demo-0")
    assert note(pod, ID) == old
    assert fleet.find_vm("demo-0") is None
    fleet.agent.clear("n1", fault)
    with fleet.recording("demo-0") as seen:
        fleet.wake("demo-0")
    assert not any(note(version, ID) == old and running(version) for version in seen)
    assert any(note(version, ID) == "" for version in seen)


@pytest.mark.scenario("N064")
def test_a_windows_guest_is_saved_without_its_nic(fleet: Fleet) -> None:
    fleet.boot("demo-0", os="windows")
    fleet.hibernate("demo-0")
    assert "nics" not in fleet.config(fleet.vm("demo-0"), "hibernate")


@pytest.mark.scenario("N068")
def test_a_nic_that_cannot_be_dropped_is_its_own_failure(fleet: Fleet) -> None:
    fleet.boot("demo-0", os="windows")
    fleet.agent.fault("n1", "vm.net", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate="true")
    fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "HibernateNetResizeFailed")
    assert fleet.find_vm("demo-0") is not None


@pytest.mark.scenario("N064", "N069")
def test_a_push_that_succeeds_but_says_otherwise_is_redone(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.agent.fault("n1", "push.report", vm=fleet.vm("demo-0"), times=1)
    fleet.annotate("demo-0", hibernate="true")
    fleet.until_state("demo-0", "failed")
    assert fleet.has_tag("demo-0")
    assert fleet.find_vm("demo-0") is not None
    fleet.until_state("demo-0", "hibernated")
    assert fleet.tag_id("demo-0") == fleet.local_id("demo-0")


@pytest.mark.scenario("N069")
def test_a_new_update_restarts_a_waiting_attempt_at_once(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", "push.manifest", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate="true")
    fleet.agent.wait_for_hit("n1", fault, hits=2)
    fleet.until_state("demo-0", "failed")
    fleet.agent.clear("n1", fault)
    # The next own attempt is 3 s away.
    fleet.annotate("demo-0", generation="2")
    pod = fleet.until_state("demo-0", "hibernated", seconds=2)
    assert not ready(pod)
