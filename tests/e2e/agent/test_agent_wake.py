"""Waking in place (contract, 3.4): the verified local copy, the pull, and every way to fail closed."""

from __future__ import annotations

import json

import pytest
from node_fleet import BASE_IMAGE, ID, LIFECYCLE, Fleet, note, ready, running

CONFIG_TYPE = "application/vnd.cocoonstack.snapshot.config.v1+json"


def asleep(fleet: Fleet, name: str = "demo-0") -> str:
    """Make a VM with work in it, put it to sleep, return its boot id."""
    fleet.boot(name)
    fleet.work(name, "precious")
    boot_id = str(fleet.the_vm(name)["boot_id"])
    fleet.hibernate(name)
    return boot_id


def refuse_wake(fleet: Fleet, name: str = "demo-0") -> None:
    """Ask for a wake and wait until the agent has refused it, with no VM made."""
    fleet.annotate(name, hibernate=None)
    pod = fleet.until_state(name, "failed")
    assert note(pod, ID) == ""
    assert fleet.find_vm(name) is None
    fleet.until_event(name, "WakePullFailed")


@pytest.mark.scenario("N079", "N080", "N081")
def test_a_verified_copy_is_used_without_a_download(fleet: Fleet) -> None:
    boot_id = asleep(fleet)
    local, tag = fleet.local_id("demo-0"), fleet.the_manifest("demo-0")
    since = fleet.agent.mark()
    pod = fleet.wake("demo-0")
    assert running(pod)
    assert ready(pod)
    assert fleet.layer_reads(since) == []
    assert not any(each["op"] == "DELETE" for each in fleet.journal("registry"))
    assert fleet.the_manifest("demo-0") == tag
    assert fleet.local_id("demo-0") == local
    assert fleet.the_vm("demo-0")["boot_id"] == boot_id
    fleet.until_event("demo-0", "Woken")
    states = [
        each["changes"][LIFECYCLE] for each in fleet.writes("demo-0", since) if LIFECYCLE in each.get("changes", {})
    ]
    assert states == ["creating", "ready"]


@pytest.mark.scenario("N082")
def test_a_copy_that_the_tag_does_not_name_is_discarded(fleet: Fleet) -> None:
    fork = f"fork-{fleet.vm('demo-0')}"
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    boot_id = fleet.the_vm("demo-0")["boot_id"]
    fleet.boot("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.hibernate("demo-0")
    assert fork in fleet.agent.snapshots("n1")
    fleet.agent.change_snapshot("n1", fleet.vm("demo-0"), id="other")
    since = fleet.agent.mark()
    fleet.wake("demo-0")
    removed = {each["snapshot"] for each in fleet.journal("engine", "remove-snapshot", since=since)}
    assert {fleet.vm("demo-0"), fork} <= removed
    assert fork not in fleet.agent.snapshots("n1")
    assert fleet.layer_reads(since) != []
    vm = fleet.the_vm("demo-0")
    assert (vm["boot_id"], vm["memory"]["work"], vm["restored_via"]) == (boot_id, ["precious"], "pull")
    imported = f"{fleet.vm('demo-0')}-hibernate-import"
    fleet.until(lambda: imported not in fleet.agent.snapshots("n1"), "the import is removed")


@pytest.mark.scenario("N083")
def test_a_copy_without_a_tag_is_not_resurrected(fleet: Fleet) -> None:
    asleep(fleet)
    fleet.drop_tag("demo-0")
    refuse_wake(fleet)
    assert fleet.local("demo-0") is None


@pytest.mark.scenario("N084")
def test_without_an_answer_the_copy_is_kept_and_the_wake_waits(fleet: Fleet) -> None:
    asleep(fleet)
    fault = fleet.agent.fault("n1", "registry")
    refuse_wake(fleet)
    local = fleet.local_id("demo-0")
    assert local
    fleet.agent.clear("n1", fault)
    fleet.until_state("demo-0", "ready")
    vm = fleet.the_vm("demo-0")
    assert (vm["restored_from"], vm["restored_via"]) == (local, "local")


@pytest.mark.scenario("N084")
def test_a_registry_that_is_down_fails_closed(fleet: Fleet) -> None:
    asleep(fleet)
    fleet.registry.stop()
    try:
        refuse_wake(fleet)
        assert fleet.local("demo-0") is not None
    finally:
        fleet.registry.start()
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N085")
def test_a_config_blob_that_cannot_be_read_fails_closed(fleet: Fleet) -> None:
    asleep(fleet)
    fault = fleet.agent.fault("n1", "registry.get.blob", message="500")
    refuse_wake(fleet)
    assert fleet.local("demo-0") is not None
    fleet.agent.clear("n1", fault)
    fleet.until_state("demo-0", "ready")


@pytest.mark.scenario("N085")
@pytest.mark.parametrize("wrong", [{"mediaType": "application/json"}, {"size": (64 << 20) + 1}])
def test_a_config_of_another_type_or_size_fails_closed(fleet: Fleet, wrong: dict[str, object]) -> None:
    asleep(fleet)
    good = fleet.the_manifest("demo-0")
    bad = json.loads(json.dumps(good))
    bad["config"].update(wrong)
    fleet.put_manifest(fleet.vm("demo-0"), "hibernate", bad)
    refuse_wake(fleet)
    assert fleet.local("demo-0") is not None
    fleet.put_manifest(fleet.vm("demo-0"), "hibernate", good)
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["restored_via"] == "local"


@pytest.mark.scenario("N088", "N123")
def test_without_a_copy_the_state_is_pulled_under_another_id(fleet: Fleet) -> None:
    asleep(fleet)
    fleet.agent.forget_snapshot("n1", fleet.vm("demo-0"))
    since = fleet.agent.mark()
    fleet.wake("demo-0")
    imported = fleet.journal("engine", "import", since=since)
    assert [each["snapshot"] for each in imported] == [f"{fleet.vm('demo-0')}-hibernate-import"]
    assert imported[0]["id"] != fleet.tag_id("demo-0")
    assert fleet.local("demo-0") is None
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N090")
def test_a_clone_that_fails_leaves_the_tag_and_is_tried_again(fleet: Fleet) -> None:
    asleep(fleet)
    tag = fleet.the_manifest("demo-0")
    fleet.agent.fault("n1", "vm.boot.clone", vm=fleet.vm("demo-0"), times=1)
    fleet.annotate("demo-0", hibernate=None)
    fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "WakeCloneFailed")
    assert fleet.the_manifest("demo-0") == tag
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N091")
def test_sleep_that_is_asked_for_again_drops_the_outcome_of_the_wake(fleet: Fleet) -> None:
    asleep(fleet)
    fault = fleet.agent.fault("n1", "ip", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate=None)
    fleet.until_pod("demo-0", running, "it runs again")
    since = fleet.agent.mark()
    fleet.hibernate("demo-0")
    fleet.agent.clear("n1", fault)
    fleet.settle()
    states = [
        each["changes"][LIFECYCLE] for each in fleet.writes("demo-0", since) if LIFECYCLE in each.get("changes", {})
    ]
    assert states == ["hibernating", "hibernated"]
    assert fleet.tag_id("demo-0") == fleet.local_id("demo-0")


@pytest.mark.scenario("N093")
def test_a_woken_vm_without_an_address_fails_but_is_live(fleet: Fleet) -> None:
    asleep(fleet)
    fleet.agent.fault("n1", "ip", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate=None)
    pod = fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "WakeIPWaitTimeout")
    assert note(pod, ID)
    assert running(pod)


@pytest.mark.scenario("N088")
def test_a_pull_that_fails_is_a_failed_wake(fleet: Fleet) -> None:
    asleep(fleet)
    fleet.agent.forget_snapshot("n1", fleet.vm("demo-0"))
    fault = fleet.agent.fault("n1", "pull", vm=fleet.vm("demo-0"))
    refuse_wake(fleet)
    fleet.agent.clear("n1", fault)
    fleet.until_state("demo-0", "ready")
    assert BASE_IMAGE in fleet.the_manifest("demo-0")["annotations"]
