"""Local snapshots at a delete (contract, 4.3): the keep flag, and the next VM of that name."""

from __future__ import annotations

import pytest
from node_fleet import Fleet, note


def saved(fleet: Fleet, name: str = "demo-0") -> str:
    """Make a VM with work in it and put it to sleep; returns the id of its local copy."""
    fleet.boot(name)
    fleet.work(name, "precious")
    fleet.hibernate(name)
    return fleet.local_id(name)


def restored(fleet: Fleet, how: str, node: str = "n1", name: str = "demo-0") -> None:
    """Create the pod again with the restore mark; its VM must have the memory, found in the given way."""
    fleet.boot(name, node=node, restore_from_hibernate="true")
    vm = fleet.the_vm(name, node)
    assert vm["memory"]["work"][0] == "precious"
    assert vm["restored_via"] == how


@pytest.mark.scenario("N094", "N099", "N102")
@pytest.mark.parametrize("flag", [None, "false", "True"])
def test_without_the_exact_flag_copy_and_fork_base_go(fleet: Fleet, flag: str | None) -> None:
    fleet.boot("demo-0")
    fleet.boot("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.hibernate("demo-0")
    if flag is not None:
        fleet.annotate("demo-0", keep_snapshot_on_delete=flag)
    fleet.delete("demo-0")
    assert not {fleet.vm("demo-0"), f"fork-{fleet.vm('demo-0')}"} & set(fleet.agent.snapshots("n1"))
    assert fleet.has_tag("demo-0")


@pytest.mark.scenario("N095", "N100", "N106", "N111")
def test_a_kept_copy_survives_a_restart_and_spares_the_pull(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    fleet.boot("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.hibernate("demo-0")
    local = fleet.local_id("demo-0")
    fleet.annotate("demo-0", keep_snapshot_on_delete="true")
    assert note(fleet.the_pod("demo-0"), "vm.cocoonstack.io/keep-snapshot-on-delete") == "true"
    fleet.delete("demo-0")
    assert {fleet.vm("demo-0"), f"fork-{fleet.vm('demo-0')}"} <= set(fleet.agent.snapshots("n1"))
    fleet.agent.restart_node("n1")
    assert fleet.local_id("demo-0") == local
    since = fleet.agent.mark()
    restored(fleet, "local")
    assert fleet.layer_reads(since) == []


@pytest.mark.scenario("N101", "N102")
def test_a_living_vm_goes_before_its_copies_or_without_them(fleet: Fleet) -> None:
    for name in ("demo-0", "demo-1"):
        fleet.boot(name)
        fleet.hibernate(name)
        fleet.wake(name)
    fleet.release("demo-0")
    assert fleet.find_vm("demo-0") is None
    assert fleet.local("demo-0") is not None
    since = fleet.agent.mark()
    fleet.delete("demo-1")
    assert fleet.local("demo-1") is None
    order = [each["op"] for each in fleet.journal("engine", since=since) if fleet.vm("demo-1") in str(each)]
    assert order == ["remove", "removed", "release-leases", "remove-snapshot"]


@pytest.mark.scenario("N103")
def test_flag_and_delete_in_one_breath_keep_the_copy(fleet: Fleet) -> None:
    local = saved(fleet)
    fleet.agent.pause_informer("n1", paused=True)
    fleet.annotate("demo-0", keep_snapshot_on_delete="true")
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.pause_informer("n1", paused=False)
    fleet.until_gone("demo-0")
    assert fleet.local_id("demo-0") == local


@pytest.mark.scenario("N104")
def test_the_flag_of_another_incarnation_does_not_count(fleet: Fleet) -> None:
    saved(fleet)
    barrier = fleet.agent.barrier("n1", "delete", vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.begin("demo-0", keep_snapshot_on_delete="true", restore_from_hibernate="true")
    fleet.settle()
    assert fleet.local("demo-0") is not None
    fleet.agent.release("n1", barrier)
    fleet.until_state("demo-0", "ready")
    # The copy went with its own pod, so the successor had to pull.
    assert fleet.the_vm("demo-0")["restored_via"] == "pull"


@pytest.mark.scenario("N105")
def test_an_agent_that_misses_the_flag_costs_a_pull_and_nothing_else(fleet: Fleet) -> None:
    saved(fleet)
    fleet.agent.settings("n1", keep_from_informer=False)
    fleet.agent.pause_informer("n1", paused=True)
    fleet.annotate("demo-0", keep_snapshot_on_delete="true")
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.pause_informer("n1", paused=False)
    fleet.until_gone("demo-0")
    fleet.agent.settings("n1", keep_from_informer=True)
    assert fleet.local("demo-0") is None
    restored(fleet, "pull")


@pytest.mark.scenario("N107", "N108")
def test_a_copy_that_another_node_outdated_is_discarded(fleet: Fleet) -> None:
    saved(fleet)
    fleet.release("demo-0")
    restored(fleet, "pull", "n2")
    assert fleet.local("demo-0") is not None
    fleet.work("demo-0", "written on n2", "n2")
    fleet.hibernate("demo-0")
    fleet.release("demo-0")
    restored(fleet, "pull", "n1")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious", "written on n2"]
    assert fleet.local("demo-0") is None


@pytest.mark.scenario("N109")
def test_a_kept_copy_whose_tag_is_gone_is_not_resurrected(fleet: Fleet) -> None:
    saved(fleet)
    fleet.release("demo-0")
    fleet.drop_tag("demo-0")
    fleet.boot("demo-0")
    vm = fleet.the_vm("demo-0")
    assert (vm["memory"]["work"], vm["restored_from"]) == ([], "")


@pytest.mark.scenario("N110")
def test_without_an_answer_a_restore_waits_and_keeps_the_copy(fleet: Fleet) -> None:
    local = saved(fleet)
    fleet.release("demo-0")
    fault = fleet.agent.fault("n1", "registry")
    fleet.begin("demo-0", restore_from_hibernate="true")
    fleet.until_state("demo-0", "failed")
    assert fleet.local_id("demo-0") == local
    assert fleet.find_vm("demo-0") is None
    fleet.agent.clear("n1", fault)
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["restored_via"] == "local"


@pytest.mark.scenario("N112")
def test_a_latest_push_of_a_living_vm_outdates_the_kept_copy(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    fleet.work("demo-0", "precious")
    fleet.hibernate("demo-0")
    fleet.wake("demo-0")
    fleet.release("demo-0")
    assert fleet.local_id("demo-0") == fleet.tag_id("demo-0", "latest") != fleet.tag_id("demo-0")
    restored(fleet, "pull")


@pytest.mark.scenario("N114")
def test_the_next_pod_of_the_name_waits_for_the_removal(fleet: Fleet) -> None:
    saved(fleet)
    barrier = fleet.agent.barrier("n1", "snapshot.remove")
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.begin("demo-0", restore_from_hibernate="true")
    fleet.settle(0.3)
    assert note(fleet.the_pod("demo-0"), "vm.cocoonstack.io/lifecycle-state") == ""
    fleet.agent.release("n1", barrier)
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["restored_via"] == "pull"


@pytest.mark.scenario("N115")
def test_a_removal_that_fails_does_not_hold_the_delete_back(fleet: Fleet) -> None:
    saved(fleet)
    fleet.agent.fault("n1", "snapshot.remove")
    fleet.delete("demo-0")
    assert fleet.local("demo-0") is not None
