"""Restart and loss (contract, 1.8 and 1.9): what a new agent makes of pods and VMs, and of a VM that fails by itself."""

from __future__ import annotations

import pytest
from node_fleet import ID, IP, LIFECYCLE, Fleet, note, ready


def kill_at(fleet: Fleet, point: str, name: str = "demo-0") -> None:
    """Kill the agent the moment it comes to a point, and disarm it."""
    barrier = fleet.agent.barrier("n1", point, vm=fleet.vm(name))
    fleet.annotate(name, hibernate="true")
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.agent.kill_node("n1")
    fleet.agent.clear("n1", barrier)


@pytest.mark.scenario("N186")
def test_a_restart_changes_nothing_for_running_pods(fleet: Fleet) -> None:
    names = ("demo-0", "demo-1", "demo-2")
    before = {name: note(fleet.boot(name), ID) for name in names}
    fleet.agent.kill_node("n1")
    fleet.agent.start_node("n1")
    fleet.settle()
    for name in names:
        pod = fleet.the_pod(name)
        assert note(pod, ID) == before[name] == fleet.the_vm(name)["id"]
        assert ready(pod)
        assert note(pod, LIFECYCLE) == "ready"
        assert [each["ready"] for each in fleet.writes(name) if each["op"] == "status"] == ["False", "True"]


@pytest.mark.scenario("N187")
def test_a_vm_whose_id_was_lost_is_adopted_by_name(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    vm = fleet.the_vm("demo-0")
    fleet.agent.kill_node("n1")
    fleet.annotate("demo-0", id=None, ip=None)
    fleet.agent.start_node("n1")
    pod = fleet.until_pod("demo-0", lambda pod: note(pod, ID) != "", "the id is back")
    assert (note(pod, ID), note(pod, IP)) == (vm["id"], vm["ip"])
    assert len(fleet.engine("boot", "demo-0")) == 1


@pytest.mark.scenario("N188")
def test_a_stale_id_of_a_sleeping_pod_is_cleared(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    fleet.agent.fault("n1", "patch.annotations.runtime", vm=fleet.vm("demo-0"))
    assert note(fleet.hibernate("demo-0"), ID)
    fleet.agent.kill_node("n1")
    fleet.agent.clear("n1")
    fleet.agent.start_node("n1")
    pod = fleet.until_pod("demo-0", lambda pod: note(pod, ID) == "", "the id is cleared")
    assert IP not in pod["metadata"]["annotations"]
    assert pod["status"]["phase"] == "Pending"
    fleet.wake("demo-0")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N189")
def test_a_vm_that_was_lost_while_the_agent_was_down_is_made_anew(fleet: Fleet) -> None:
    old = note(fleet.boot("demo-0"), ID)
    fleet.agent.kill_node("n1")
    fleet.agent.crash_vm("n1", fleet.vm("demo-0"), "gone")
    fleet.agent.start_node("n1")
    fleet.until_pod("demo-0", lambda pod: note(pod, ID) not in {"", old}, "another VM")
    fleet.until_state("demo-0", "ready")


@pytest.mark.scenario("N190", "N195")
def test_orphans_are_destroyed_or_kept_by_policy(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    fleet.wake("demo-0")
    kept = fleet.the_vm("demo-0")["id"]
    fleet.agent.kill_node("n1")
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.settings("n1", orphan_policy="keep")
    fleet.agent.start_node("n1")
    assert fleet.the_vm("demo-0")["id"] == kept
    fleet.agent.settings("n1", orphan_policy="destroy")
    assert note(fleet.boot("demo-0"), ID) == kept
    fleet.agent.kill_node("n1")
    fleet.ask_delete("demo-0", force=True)
    fleet.agent.start_node("n1")
    assert fleet.find_vm("demo-0") is None
    assert fleet.local("demo-0") is not None


@pytest.mark.scenario("N191")
@pytest.mark.parametrize("point", ["push.blob", "vm.remove"])
def test_a_hibernation_that_was_cut_off_is_done_again(fleet: Fleet, point: str) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    kill_at(fleet, point)
    saved = fleet.local_id("demo-0")
    assert fleet.has_tag("demo-0") == (point == "vm.remove")
    fleet.work("demo-0", "written meanwhile")
    fleet.agent.start_node("n1")
    fleet.until_state("demo-0", "hibernated")
    fleet.until_event("demo-0", "ResumedAfterRestart")
    assert fleet.tag_id("demo-0") == fleet.local_id("demo-0") != saved
    fleet.wake("demo-0")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious", "written meanwhile"]


@pytest.mark.scenario("N175")
def test_a_delete_waits_for_resumed_work(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    kill_at(fleet, "push.blob")
    barrier = fleet.agent.barrier("n1", "push.manifest", vm=fleet.vm("demo-0"))
    fleet.agent.start_node("n1")
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.ask_delete("demo-0")
    fleet.until(lambda: "delete-failed" in fleet.calls("demo-0"), "the delete is refused")
    assert fleet.find_vm("demo-0") is not None
    fleet.agent.release("n1", barrier)
    fleet.until_gone("demo-0")
    assert fleet.find_vm("demo-0") is None


@pytest.mark.scenario("N192")
def test_an_agent_that_died_before_it_could_say_hibernated_does_not_say_it_later(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    kill_at(fleet, "lifecycle.hibernated")
    assert fleet.find_vm("demo-0") is None
    fleet.agent.start_node("n1")
    fleet.settle(0.6)
    pod = fleet.the_pod("demo-0")
    assert note(pod, LIFECYCLE) == "hibernating"
    assert pod["status"]["phase"] == "Pending"
    # Clearing the flag wakes it, which is the way out.
    fleet.wake("demo-0")


@pytest.mark.scenario("N193")
def test_a_wake_that_was_cut_off_is_taken_up_by_evidence(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    fleet.hibernate("demo-0")
    barrier = fleet.agent.barrier("n1", "vm.boot", vm=fleet.vm("demo-0"))
    fleet.annotate("demo-0", hibernate=None)
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.agent.kill_node("n1")
    fleet.agent.clear("n1", barrier)
    fleet.agent.start_node("n1")
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N187", "N021")
def test_the_way_to_ready_is_taken_up_after_a_restart(fleet: Fleet) -> None:
    fault = fleet.agent.fault("n1", "ip", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    pod = fleet.until_pod("demo-0", lambda pod: note(pod, ID) != "", "the VM is made")
    fleet.agent.kill_node("n1")
    fleet.agent.clear("n1", fault)
    fleet.agent.start_node("n1")
    after = fleet.until_state("demo-0", "ready")
    fleet.until_event("demo-0", "ResumedAfterRestart")
    assert note(after, ID) == note(pod, ID)


@pytest.mark.scenario("N181", "N182")
def test_a_vm_that_stops_is_started_once_and_evicted_the_second_time(fleet: Fleet) -> None:
    before = fleet.boot("demo-0")
    fleet.work("demo-0", "on disk")
    fleet.agent.crash_vm("n1", fleet.vm("demo-0"))
    fleet.until(lambda: fleet.the_vm("demo-0")["state"] == "running", "it is started again")
    pod = fleet.the_pod("demo-0")
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert note(pod, ID) == note(before, ID)
    with fleet.recording("demo-0") as seen:
        fleet.agent.crash_vm("n1", fleet.vm("demo-0"))
        fleet.until_gone("demo-0")
        fleet.until(lambda: bool(seen) and seen[-1]["status"]["phase"] == "Failed", "the end is told")
    terminated = seen[-1]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (1, "RestartCooldown")
    assert fleet.find_vm("demo-0") is None


@pytest.mark.scenario("N183", "N184")
def test_a_vm_that_vanishes_evicts_its_pod_once_the_api_lets_it(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", "pod.delete", vm=fleet.vm("demo-0"), times=2)
    with fleet.recording("demo-0") as seen:
        fleet.agent.crash_vm("n1", fleet.vm("demo-0"), "gone")
        fleet.agent.wait_for_hit("n1", fault, hits=2)
        fleet.settle()
        assert fleet.the_pod("demo-0")["metadata"].get("deletionTimestamp") is None
        # Another event about it: a VM of that name comes and goes again.
        fleet.agent.plant_vm("n1", fleet.vm("demo-0"))
        fleet.agent.crash_vm("n1", fleet.vm("demo-0"), "gone")
        fleet.until_gone("demo-0")
        fleet.until(lambda: bool(seen) and seen[-1]["status"]["phase"] == "Failed", "the end is told")
    assert seen[-1]["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "VMGone"


@pytest.mark.scenario("N181")
def test_an_engine_without_an_answer_is_asked_again(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", "vm.inspect", vm=fleet.vm("demo-0"), times=2)
    fleet.agent.crash_vm("n1", fleet.vm("demo-0"), "error")
    fleet.agent.wait_for_hit("n1", fault, hits=2)
    fleet.until(lambda: fleet.the_vm("demo-0")["state"] == "running", "it is started again")


@pytest.mark.scenario("N013", "N186")
def test_sigkill_of_the_process_loses_no_vm(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "precious")
    before = fleet.the_vm("demo-0")
    fleet.process.kill()
    assert fleet.api.find("/api/v1/nodes/n1") is not None
    assert ready(fleet.the_pod("demo-0"))
    fleet.process.start()
    fleet.started = 0
    after = fleet.the_vm("demo-0")
    assert (after["id"], after["boot_id"]) == (before["id"], before["boot_id"])
    assert after["memory"]["work"] == ["precious"]
    fleet.hibernate("demo-0")
    fleet.wake("demo-0")
    assert fleet.the_vm("demo-0")["boot_id"] == before["boot_id"]


@pytest.mark.scenario("N013")
def test_sigterm_leaves_nodes_and_pods(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.process.stop()
    try:
        for node in ("n1", "n2"):
            assert fleet.api.find(f"/api/v1/nodes/{node}") is not None
        assert ready(fleet.the_pod("demo-0"))
    finally:
        fleet.process.start()
    fleet.started = 0
    assert fleet.find_vm("demo-0") is not None
