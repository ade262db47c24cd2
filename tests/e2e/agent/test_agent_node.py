"""The Node object on a real control plane (contract, 1.2 to 1.5): seen, scheduled to, and what a second start changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from node_fleet import Fleet, Obj, note
from nodes import NODES, PREFIX

from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.errors import ProcessFailedError
from cocoon_devkit.rawapi import Api
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys
from cocoon_operator.api.snapshot import FAILED, SnapshotStatus

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


@pytest.fixture
def folder() -> Iterator[Path]:
    with Scratch("lone-node") as scratch:
        yield scratch.path


@pytest.fixture
def lone_node(cluster: Cluster, folder: Path) -> Iterator[AgentProcess]:
    """A node of another pool, without a registry."""
    options = AgentOptions(nodes=("lone",), time_scale=0.1, flags=("--pool", "lonely", "--boot-seconds", "0.05"))
    with AgentProcess(cluster.kubeconfig, folder, options) as process:
        yield process
    cluster.kubectl("delete", "node", "lone")


def node(api: Api, name: str = "n1") -> Obj:
    found = api.find(f"/api/v1/nodes/{name}")
    assert found is not None
    return found


@pytest.mark.scenario("N001", "N011")
def test_a_node_is_what_the_contract_says(fleet: Fleet) -> None:
    body = node(fleet.api)
    wanted = {
        "type": "virtual-kubelet",
        "kubernetes.io/role": "agent",
        "kubernetes.io/hostname": "n1",
        "cocoonstack.io/pool": "default",
        "node-role.kubernetes.io/cocoon-vm": "",
    }
    assert wanted.items() <= body["metadata"]["labels"].items()
    taint = {"key": "virtual-kubelet.io/provider", "value": "cocoon", "effect": "NoSchedule"}
    assert taint in body["spec"]["taints"]
    status = body["status"]
    assert {each["type"] for each in status["addresses"]} == {"InternalIP", "Hostname"}
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    assert {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]} == {
        "Ready": ("True", "KubeletReady"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
        "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
        "PIDPressure": ("False", "KubeletHasSufficientPID"),
        "NetworkUnavailable": ("False", "RouteCreated"),
    }
    lease = fleet.api.call("GET", LEASE)
    assert lease["spec"]["leaseDurationSeconds"] == 40
    assert lease["spec"]["holderIdentity"] == "n1"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == body["metadata"]["uid"]


@pytest.mark.scenario("N001", "N107")
def test_the_real_scheduler_places_pods_by_pool_and_hostname(fleet: Fleet) -> None:
    for number, wanted in enumerate(NODES):
        pod = fleet.pod(f"demo-{number}", node=None)
        pod["spec"]["nodeSelector"] = {"cocoonstack.io/pool": "default", "kubernetes.io/hostname": wanted}
        fleet.create(pod)
        assert fleet.until_state(f"demo-{number}", "ready")["spec"]["nodeName"] == wanted


@pytest.mark.scenario("N001")
def test_a_second_start_reasserts_labels_but_not_a_removed_taint(api: Api, lone_node: AgentProcess) -> None:
    lone_node.client.kill_node("lone")
    patch = {"metadata": {"labels": {"cocoonstack.io/pool": "stolen"}}, "spec": {"taints": None}}
    api.call("PATCH", "/api/v1/nodes/lone", patch, "application/merge-patch+json")
    lone_node.client.start_node("lone")
    body = node(api, "lone")
    assert body["metadata"]["labels"]["cocoonstack.io/pool"] == "lonely"
    assert not any(each["key"].startswith("virtual-kubelet.io") for each in body["spec"].get("taints") or [])


@pytest.mark.scenario("N007", "N010")
def test_a_cache_that_fills_the_disk_keeps_pods_away_until_it_goes(fleet: Fleet) -> None:
    fleet.boot("demo-0", node="n2")
    fleet.hibernate("demo-0")
    fleet.release("demo-0")
    total = int(node(fleet.api, "n2")["status"]["capacity"]["ephemeral-storage"])
    fleet.agent.change_snapshot("n2", fleet.vm("demo-0"), size=total)

    def allocatable() -> int:
        return int(node(fleet.api, "n2")["status"]["allocatable"]["ephemeral-storage"])

    fleet.until(lambda: allocatable() == 0, "the cache is seen")
    pod = fleet.pod("demo-1", node=None)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n2"}
    pod["spec"]["containers"][0]["resources"] = {"requests": {"ephemeral-storage": "10Gi"}}
    fleet.create(pod)

    def unschedulable(pod: Obj) -> bool:
        return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions") or [])

    fleet.until_pod("demo-1", unschedulable, "it fits nowhere")
    fleet.agent.forget_snapshot("n2", fleet.vm("demo-0"))
    # A push of the status, rather than the wait for the next minute's.
    fleet.agent.settings("n2")
    fleet.until_state("demo-1", "ready", seconds=30)


@pytest.mark.scenario("N074", "N087")
def test_an_agent_without_a_registry_trusts_its_own_copy(fleet: Fleet, lone_node: AgentProcess) -> None:
    alone = Fleet(lone_node, fleet.api, fleet.registry, fleet.namespace)
    alone.begin("demo-0", node="lone", mode="run", image="https://example.invalid/disk.img")
    alone.until_state("demo-0", "ready")
    alone.work("demo-0", "precious", "lone")
    alone.hibernate("demo-0")
    assert alone.local("demo-0", "lone") is not None
    assert not alone.has_tag("demo-0")
    alone.wake("demo-0")
    alone.annotate("demo-0", snapshot="team/nowhere:one")
    answer = alone.until_pod("demo-0", lambda pod: note(pod, keys.SNAPSHOT_STATUS) != "", "it is answered")
    assert SnapshotStatus.parse(answer["metadata"]["annotations"]).state == FAILED
    vm = alone.the_vm("demo-0", "lone")
    assert (vm["memory"]["work"], vm["restored_via"]) == (["precious"], "local")
    assert node(fleet.api, "lone")["metadata"]["labels"]["cocoonstack.io/pool"] == "lonely"
    fleet.api.call("DELETE", alone.path("demo-0"), {"gracePeriodSeconds": 0})


@pytest.mark.scenario("N014")
def test_a_foreign_cpu_class_refuses_the_start_unless_the_pod_is_terminal(
    fleet: Fleet, cluster: Cluster, folder: Path
) -> None:
    pod = fleet.pod("demo-0", node="picky")
    pod["spec"]["nodeSelector"] = {"cocoonstack.io/snapshot-cpu-class": "x"}
    fleet.create(pod)
    options = AgentOptions(nodes=("picky",), registry=f"{fleet.registry.address}/{PREFIX}", time_scale=0.1)
    process = AgentProcess(cluster.kubeconfig, folder, options)
    with pytest.raises(ProcessFailedError, match="CPU class"):
        process.start()
    assert fleet.api.find("/api/v1/nodes/picky") is None
    failed = {"status": {"phase": "Failed"}}
    fleet.api.call("PATCH", f"{fleet.path('demo-0')}/status", failed, "application/merge-patch+json")
    with process:
        assert fleet.api.find("/api/v1/nodes/picky") is not None
        assert note(fleet.the_pod("demo-0"), "vm.cocoonstack.io/lifecycle-state") == ""
    cluster.kubectl("delete", "node", "picky")


@pytest.mark.scenario("N194")
def test_a_start_that_cannot_list_pods_registers_nothing(fleet: Fleet, cluster: Cluster, folder: Path) -> None:
    blind = folder / "kubeconfig"
    # The administrator's cluster, with a user whom nobody knows.
    text = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten").stdout
    blind.write_text(text)
    cluster.kubectl("config", "--kubeconfig", str(blind), "set-credentials", "nobody", "--token=wrong")
    cluster.kubectl("config", "--kubeconfig", str(blind), "set-context", "--current", "--user=nobody")
    process = AgentProcess(blind, folder, AgentOptions(nodes=("blind",)))
    with pytest.raises(ProcessFailedError, match="could not start"):
        process.start()
    assert fleet.api.find("/api/v1/nodes/blind") is None


@pytest.mark.scenario("N004")
@pytest.mark.parametrize("flags", [("--reserve-percent", "101"), ("--reserve-percent", "x")])
def test_a_reserve_that_is_no_percentage_aborts_the_start(
    fleet: Fleet, cluster: Cluster, folder: Path, flags: tuple[str, ...]
) -> None:
    process = AgentProcess(cluster.kubeconfig, folder, AgentOptions(nodes=("greedy",), flags=flags))
    with pytest.raises(ProcessFailedError, match="ended with code 2"):
        process.start()
    assert fleet.api.find("/api/v1/nodes/greedy") is None
