"""Heartbeats, and a node without them (R1.11, R1.12). The last file on purpose: it looks back to the first test."""

from __future__ import annotations

from itertools import pairwise

import pytest
from node_fleet import Fleet, Obj, note, running

from cocoon_devkit.agent.node import LEASE_SECONDS, RENEW_SECONDS


@pytest.mark.scenario("N011")
def test_the_lease_is_renewed_every_ten_seconds(fleet: Fleet) -> None:
    """How late a renewal comes is a matter of the machine's load; that the lease never runs out is not."""

    def renewals() -> list[float]:
        return [each["time"] for each in fleet.journal("api", "lease", since=0) if each["node"] == "n1"]

    fleet.until(lambda: len(renewals()) > 1, "the lease is renewed twice", seconds=30)
    lease = fleet.api.call("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1")
    assert (RENEW_SECONDS, lease["spec"]["leaseDurationSeconds"]) == (10, LEASE_SECONDS)
    assert all(later - earlier < LEASE_SECONDS for earlier, later in pairwise(renewals()))


@pytest.mark.scenario("N012")
def test_a_silent_node_turns_unknown_and_its_pods_stay(silent_node: Fleet) -> None:
    def unknown() -> bool:
        body = silent_node.api.call("GET", "/api/v1/nodes/silent")
        taints = {each["key"] for each in body["spec"].get("taints") or []}
        return condition(body) == "Unknown" and "node.kubernetes.io/unreachable" in taints

    def condition(body: Obj) -> str:
        return next(str(each["status"]) for each in body["status"]["conditions"] if each["type"] == "Ready")

    silent_node.until(unknown, "the node is unknown", seconds=120)
    silent_node.settle(1)
    pod = silent_node.the_pod("demo-0")
    assert pod["metadata"].get("deletionTimestamp") is None
    assert running(pod)
    assert note(pod, "vm.cocoonstack.io/lifecycle-state") == "ready"
    assert len(silent_node.writes("demo-0")) == 5
    assert silent_node.find_vm("demo-0", "silent") is not None
