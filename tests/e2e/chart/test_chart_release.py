"""The life of a release by real helm: install, upgrade, roll back, uninstall. What users made outlives all of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered import CRD_FILES, VALUES, Obj, variables_of
from test_chart_rights import until

from cocoon_devkit import checkout
from cocoon_devkit.chart import CHART, NAME, NAMESPACE, Chart
from cocoon_devkit.controlplane import ControlPlane
from cocoon_devkit.demo import EXAMPLE
from cocoon_devkit.kubectl import Kubectl

SET_CRD = "cocoonsets.cocoonset.cocoonstack.io"
QUIET = {**VALUES, "replicaCount": 0, "admission": {"enabled": False}}
KINDS = (
    "deployment",
    "serviceaccount",
    "role",
    "rolebinding",
    "service",
    "poddisruptionbudget",
    "clusterrole",
    "clusterrolebinding",
    "validatingadmissionpolicy",
    "validatingadmissionpolicybinding",
)
POLICIES = {**VALUES, "replicaCount": 0}


@pytest.fixture
def release(bare_cluster: ControlPlane) -> Iterator[Chart]:
    """The chart on a cluster where it is not installed; what was, and its CRDs with all sets, is gone."""
    kubectl = bare_cluster.kubectl
    Chart.on(bare_cluster).uninstall()
    kubectl("delete", "--ignore-not-found", "--timeout=30s", "-f", str(checkout.CRDS))
    yield Chart.on(bare_cluster)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce-")


@pytest.fixture
def older(bare_cluster: ControlPlane, tmp_path: Path) -> Chart:
    """An older version of the chart: its CRD of CocoonSets does not know ``snapshotPolicy`` yet."""
    folder = tmp_path / "older"
    shutil.copytree(CHART, folder)
    about = folder / "Chart.yaml"
    about.write_text(about.read_text().replace("version: 0.1.0", "version: 0.0.1"))
    [file] = (folder / "files" / "crds").glob("*_cocoonsets.yaml")
    crd = yaml.safe_load(file.read_text())
    del spec_schema(crd)["snapshotPolicy"]
    file.write_text(yaml.safe_dump(crd))
    return Chart.on(bare_cluster, folder)


def spec_schema(crd: Obj) -> dict[str, Any]:
    [version] = crd["spec"]["versions"]
    properties: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return properties


def create_set(kubectl: Kubectl, name: str) -> None:
    kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{SET_CRD}")
    kubectl("create", "-f", "-", stdin=EXAMPLE.read_text().replace("name: demo", f"name: {name}"))


def knows_policy(kubectl: Kubectl) -> bool:
    return "snapshotPolicy" in spec_schema(kubectl.get("crd", SET_CRD))


def uid_of(kubectl: Kubectl, name: str) -> str:
    return str(kubectl.get("cset", name)["metadata"]["uid"])


def test_an_upgrade_brings_new_definitions_a_rollback_the_old_ones_and_sets_stay(
    bare_cluster: ControlPlane, release: Chart, older: Chart
) -> None:
    kubectl = bare_cluster.kubectl
    older.install({**QUIET, "logFormat": "json"})
    assert not knows_policy(kubectl)
    kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{SET_CRD}")
    kubectl("create", "--validate=false", "-f", "-", stdin=EXAMPLE.read_text().replace("name: demo", "name: precious"))
    uid = uid_of(kubectl, "precious")

    release.install({}, "--reset-then-reuse-values")
    assert knows_policy(kubectl)
    deployment = kubectl.get("deployment", NAME, "--namespace", NAMESPACE)
    assert variables_of([deployment])["LOG_FORMAT"] == "json"
    edit = ("patch", "cset", "precious", "--type=merge", "-p", '{"spec":{"snapshotPolicy":"never"}}')
    until(lambda: "never" in kubectl(*edit, "-o", "yaml").stdout, "the new field is kept")

    release.roll_back(1)
    assert not knows_policy(kubectl)
    assert uid_of(kubectl, "precious") == uid
    assert kubectl.get("deployment", NAME, "--namespace", NAMESPACE)["metadata"]["labels"]["helm.sh/chart"] == (
        f"{NAME}-0.0.1"
    )


def test_an_uninstall_takes_the_operator_and_leaves_the_users_sets(bare_cluster: ControlPlane, release: Chart) -> None:
    kubectl = bare_cluster.kubectl
    release.install(POLICIES)
    create_set(kubectl, "precious")
    uid = uid_of(kubectl, "precious")
    release.install({**POLICIES, "crds": {"install": False}})
    assert uid_of(kubectl, "precious") == uid, "definitions that are given to somebody else stay"
    release.uninstall()
    left = kubectl.get(",".join(KINDS), "--namespace", NAMESPACE, "--selector", f"app.kubernetes.io/name={NAME}")
    assert left["items"] == []
    assert uid_of(kubectl, "precious") == uid
    release.install(QUIET)
    assert uid_of(kubectl, "precious") == uid


def test_definitions_of_somebody_else_are_taken_over_only_when_asked_to(
    bare_cluster: ControlPlane, release: Chart
) -> None:
    """As in the place of the Go operator, or after `kubectl apply -f crds/`."""
    kubectl = bare_cluster.kubectl
    kubectl("apply", "--server-side", *(f"--filename={file}" for file in CRD_FILES))
    create_set(kubectl, "precious")
    uid = uid_of(kubectl, "precious")
    refused = release.run("upgrade", QUIET, "--install", "--create-namespace", check=False)
    assert refused.returncode != 0
    assert "CustomResourceDefinition" in refused.stderr
    assert 'missing key "meta.helm.sh/release-name"' in refused.stderr
    release.install(QUIET, "--take-ownership")
    assert kubectl.get("crd", SET_CRD)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    release.uninstall()
    assert uid_of(kubectl, "precious") == uid


def test_a_second_release_for_the_same_sets_is_refused(bare_cluster: ControlPlane, release: Chart) -> None:
    release.install(QUIET)
    second = Chart.on(bare_cluster, namespace="elsewhere")
    values = {**QUIET, "crds": {"install": False}}
    refused = second.run("upgrade", values, "--install", "--create-namespace", check=False)
    assert refused.returncode != 0
    assert f'ClusterRole "{NAME}' in refused.stderr


def test_its_pods_are_admitted_where_pod_security_is_restricted(bare_cluster: ControlPlane, release: Chart) -> None:
    kubectl = bare_cluster.kubectl
    release.install(QUIET)
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    everything: Obj = {
        **VALUES,
        "registryCredentialsSecret": "snapshots-login",
        "registryCA": {"configMap": "authorities"},
        "registryClientCert": {"secret": "snapshots-identity"},
        "google": {"credentialsSecret": "google-key"},
    }
    said = release.install(everything)
    assert "would violate PodSecurity" not in said.stderr
    selector = ("--namespace", NAMESPACE, "--selector", f"app.kubernetes.io/name={NAME}")
    until(lambda: len(kubectl.get("pods", *selector)["items"]) == 2, "both pods of the Deployment exist")
    [test_pod] = [each for each in release.render(everything) if each["kind"] == "Pod"]
    admitted = kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(test_pod), check=False)
    assert (admitted.returncode, admitted.stderr) == (0, "")
