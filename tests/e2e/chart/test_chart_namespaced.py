"""An operator of one namespace: with Roles alone it does its work there, is refused nothing, and touches nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cocoon_devkit import checkout
from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.chart import NAME, Chart
from cocoon_devkit.controlplane import ControlPlane
from cocoon_devkit.demo import EXAMPLE
from cocoon_devkit.kubectl import Kubectl
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess

HOME, WATCHED, OTHER = "team-a-operator", "team-a", "team-b"
"""Where the operator lives, where it works, and where it must not."""
CLUSTER_SCOPED = ("clusterrole", "clusterrolebinding", "validatingadmissionpolicy", "validatingadmissionpolicybinding")
SECONDS = "--timeout=50s"


@pytest.fixture
def operator(bare_cluster: ControlPlane, chart_snapshots: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """The operator with the rights of a release that watches one namespace, and with its settings."""
    kubectl = bare_cluster.kubectl
    Chart.on(bare_cluster).uninstall()
    bare_cluster.apply_crds(checkout.CRDS)
    for name in (WATCHED, OTHER):
        kubectl("create", "namespace", name)
        kubectl("create", "-f", "-", stdin=EXAMPLE.read_text().replace("namespace: default", f"namespace: {name}"))
    release = Chart.on(bare_cluster, namespace=HOME)
    values = {"registry": chart_snapshots, "replicaCount": 0, "crds": {"install": False}, "watchNamespace": WATCHED}
    release.install(values)
    settings = {"WATCH_NAMESPACE": WATCHED, "POD_NAMESPACE": HOME}
    kubeconfig = bare_cluster.service_account_kubeconfig(HOME, NAME)
    with OperatorProcess(kubeconfig, tmp_path, OperatorOptions(chart_snapshots, settings=settings)) as process:
        yield process
    release.uninstall()


def change(kubectl: Kubectl, patch: str, phase: str) -> None:
    """Edit the set and wait for a phase of the edited generation."""
    kubectl("patch", "cset", "demo", "--namespace", WATCHED, "--type=merge", "-p", patch)
    generation = kubectl.get("cset", "demo", "--namespace", WATCHED)["metadata"]["generation"]
    wait(kubectl, f"jsonpath={{.status.observedGeneration}}={generation}")
    wait(kubectl, f"jsonpath={{.status.phase}}={phase}")


def wait(kubectl: Kubectl, what: str) -> None:
    kubectl("wait", f"--for={what}", "cset/demo", "--namespace", WATCHED, SECONDS)


def test_w38_roles_alone_are_enough_for_one_namespace(
    bare_cluster: ControlPlane, bare_nodes: AgentProcess, operator: OperatorProcess
) -> None:
    kubectl = bare_cluster.kubectl
    assert kubectl.get(",".join(CLUSTER_SCOPED), "--selector", f"app.kubernetes.io/name={NAME}")["items"] == []

    wait(kubectl, "jsonpath={.status.phase}=Running")
    change(kubectl, '{"spec":{"suspend":true}}', "Suspended")
    change(kubectl, '{"spec":{"suspend":false}}', "Running")
    change(kubectl, '{"spec":{"suspend":true,"hibernatePolicy":"release"}}', "Suspended")
    kubectl("wait", "--for=delete", "pod/demo-0", "--namespace", WATCHED, SECONDS)
    change(kubectl, '{"spec":{"suspend":false}}', "Running")
    kubectl("delete", "cset", "demo", "--namespace", WATCHED, SECONDS)

    requests = OperatorAudit(bare_cluster, f"system:serviceaccount:{HOME}:{NAME}").requests()
    assert [each.request_uri for each in requests if each.response_status.code in {401, 403}] == []
    objects = [each.object_ref for each in requests if each.object_ref.resource]
    assert {each.namespace for each in objects} == {HOME, WATCHED}
    assert {each.resource for each in objects if each.namespace == HOME} == {"leases"}
    untouched = kubectl.get("cset", "demo", "--namespace", OTHER)
    assert "status" not in untouched
    assert "finalizers" not in untouched["metadata"]
