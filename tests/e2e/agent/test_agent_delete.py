"""The end of a pod (contract, 4.1 and 4.2): ``latest`` by policy, the order of VM and object, what keeps a VM."""

from __future__ import annotations

import time

import pytest
from node_fleet import BASE_IMAGE, Fleet, owned
from nodes import IMAGE


def terminating(fleet: Fleet, name: str = "demo-0") -> bool:
    pod = fleet.get(name)
    return pod is not None and pod["metadata"].get("deletionTimestamp") is not None


@pytest.mark.scenario("N161", "N177")
def test_always_pushes_latest_before_the_vm_goes_and_the_object_goes_last(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    fleet.work("demo-0", "precious")
    fleet.delete("demo-0")
    assert fleet.the_manifest("demo-0", "latest")["annotations"][BASE_IMAGE] == IMAGE
    moments = {
        each["op"]: each["seq"] for each in fleet.journal() if fleet.vm("demo-0") in str(each) or each["op"] == "delete"
    }
    pushed = max(each["seq"] for each in fleet.journal("registry", "PUT") if each["target"] == "manifest")
    assert moments["saved"] < pushed < moments["removed"] < moments["delete"]
    fleet.boot("demo-1", image=fleet.vm("demo-0"))
    assert fleet.the_vm("demo-1")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N162", "N163")
def test_main_only_and_never_look_at_role_and_policy(fleet: Fleet) -> None:
    owner = fleet.full("demo")
    names = {"demo-0": "main-only", "demo-1": "main-only", "demo-box-0": "main-only", "demo-2": "never"}
    for name, policy in names.items():
        fleet.create(owned(fleet.pod(name, snapshot_policy=policy), owner))
    for name in names:
        fleet.until_state(name, "ready")
        fleet.ask_delete(name)
    for name in names:
        fleet.until_gone(name)
    assert [name for name in names if fleet.has_tag(name, "latest")] == ["demo-0"]


@pytest.mark.scenario("N162")
def test_an_absent_policy_is_always(fleet: Fleet) -> None:
    fleet.boot("demo-0", snapshot_policy=None)
    fleet.delete("demo-0")
    assert fleet.has_tag("demo-0", "latest")


@pytest.mark.scenario("N165", "N167")
@pytest.mark.parametrize("point", ["push.manifest", "snapshot.save", "vm.inspect"])
def test_a_vm_whose_latest_cannot_be_saved_is_kept(fleet: Fleet, point: str) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    fault = fleet.agent.fault("n1", point, vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0")
    fleet.agent.wait_for_hit("n1", fault, hits=3)
    assert fleet.the_vm("demo-0")["state"] == "running"
    assert terminating(fleet)
    assert not fleet.has_tag("demo-0", "latest")
    fleet.until_event("demo-0", "ProviderDeleteFailed")
    fleet.agent.clear("n1", fault)
    fleet.until_gone("demo-0")
    assert fleet.has_tag("demo-0", "latest")
    assert fleet.find_vm("demo-0") is None


@pytest.mark.scenario("N168", "N169")
@pytest.mark.parametrize("state", ["stopped", "gone"])
def test_a_vm_that_does_not_run_is_not_saved(fleet: Fleet, state: str) -> None:
    fleet.boot("demo-0", snapshot_policy="always")
    barrier = fleet.agent.barrier("n1", "delete", vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.agent.crash_vm("n1", fleet.vm("demo-0"), state)
    fleet.agent.release("n1", barrier)
    fleet.until_gone("demo-0")
    assert fleet.engine("save", "demo-0") == []
    assert fleet.find_vm("demo-0") is None
    assert not fleet.has_tag("demo-0", "latest")


@pytest.mark.scenario("N170")
def test_a_vm_that_cannot_be_removed_keeps_its_pod(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fault = fleet.agent.fault("n1", "vm.remove", vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0")
    fleet.agent.wait_for_hit("n1", fault, hits=3)
    assert fleet.find_vm("demo-0") is not None
    assert terminating(fleet)
    assert fleet.engine("release-leases", "demo-0") == []
    fleet.agent.clear("n1", fault)
    fleet.until_gone("demo-0")
    assert fleet.find_vm("demo-0") is None
    assert len(fleet.engine("release-leases", "demo-0")) == 1


@pytest.mark.scenario("N171")
def test_leases_that_cannot_be_released_do_not_hold_the_delete_back(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.agent.fault("n1", "lease.release", vm=fleet.vm("demo-0"))
    fleet.delete("demo-0")
    assert fleet.find_vm("demo-0") is None


@pytest.mark.scenario("N176")
def test_a_hibernated_pod_is_gone_before_its_cache(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.hibernate("demo-0")
    barrier = fleet.agent.barrier("n1", "delete", vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    assert fleet.get("demo-0") is None
    assert fleet.local("demo-0") is not None
    fleet.agent.release("n1", barrier)
    fleet.until_gone("demo-0")
    assert fleet.local("demo-0") is None


@pytest.mark.scenario("N177")
def test_a_running_pod_stays_terminating_while_its_delete_hangs(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    barrier = fleet.agent.barrier("n1", "delete", vm=fleet.vm("demo-0"))
    fleet.ask_delete("demo-0")
    fleet.agent.wait_at_barrier("n1", barrier)
    time.sleep(1.2)
    assert terminating(fleet)
    assert fleet.find_vm("demo-0") is not None
    fleet.agent.release("n1", barrier)
    fleet.until_gone("demo-0")


@pytest.mark.scenario("N178")
def test_a_pod_without_a_node_vanishes_without_the_agent(fleet: Fleet) -> None:
    pod = fleet.pod("demo-0", node=None)
    pod["spec"]["nodeSelector"] = {"agent-test.invalid/nobody": "has-this"}
    fleet.create(pod)
    fleet.ask_delete("demo-0")
    assert fleet.get("demo-0") is None
    assert fleet.calls("demo-0") == []


@pytest.mark.scenario("N180")
def test_the_delete_of_a_sub_agent_leaves_the_main_agents_base(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.boot("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.delete("demo-1")
    assert f"fork-{fleet.vm('demo-0')}" in fleet.agent.snapshots("n1")
