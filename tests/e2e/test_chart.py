"""The chart by real helm: what it renders, what it refuses, and that its rights are enough and no more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodes import NODES

from cocoon_devkit import checkout
from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.chart import CHART, NAME, NAMESPACE, OPERATOR_USER, Chart
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import API_SERVER, ControlPlane, ControlPlaneOptions
from cocoon_devkit.demo import EXAMPLE
from cocoon_devkit.demostory import Story
from cocoon_devkit.demoview import View
from cocoon_devkit.demoworld import DemoWorld
from cocoon_devkit.errors import HelmError
from cocoon_devkit.helm import Helm
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.rawapi import Api, proxied_api
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys

Obj = dict[str, Any]
Right = tuple[str, str, str]
"""Group, resource with its subresource, verb."""

VALUES = {"registry": "registry.example.com/cocoon"}
CRD_FILES = sorted(checkout.CRDS.glob("*.yaml"))

# What the chart grants although the story below never calls it, and why.
NOT_CALLED: dict[Right, str] = {
    (keys.GROUP, "cocoonsets", "get"): "a set is read live after a write of unknown outcome",
    (keys.GROUP, "cocoonsets/finalizers", "update"): "asked for by admission where owner references are enforced",
}

# What only the tests of CocoonHibernations call: the story below has none.
CALLED_FOR_HIBERNATIONS: set[Right] = {
    (keys.GROUP, "cocoonhibernations", "get"),
    (keys.GROUP, "cocoonhibernations", "patch"),
    (keys.GROUP, "cocoonhibernations/status", "patch"),
}


@pytest.fixture(scope="module")
def offline(tools: Path) -> Iterator[Chart]:
    """The chart without a cluster."""
    with Scratch("chart") as scratch:
        yield Chart(Helm(tools / "helm", scratch.path))


def of_kind(objects: list[Obj], kind: str) -> list[Obj]:
    return [each for each in objects if each["kind"] == kind]


def the(objects: list[Obj], kind: str) -> Obj:
    found = of_kind(objects, kind)
    assert len(found) == 1
    return found[0]


# -- what it renders ---------------------------------------------------------------------------------------------------


def test_its_crds_are_byte_for_byte_those_of_the_project() -> None:
    copies = sorted((CHART / "files" / "crds").iterdir())
    assert [copy.name for copy in copies] == [file.name for file in CRD_FILES]
    assert [copy.read_bytes() for copy in copies] == [file.read_bytes() for file in CRD_FILES]


def test_crds_are_rendered_as_they_are_and_kept(offline: Chart) -> None:
    rendered = of_kind(offline.render(VALUES), "CustomResourceDefinition")
    for crd in rendered:
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert rendered == [yaml.safe_load(file.read_text()) for file in CRD_FILES]


def test_crds_can_be_left_to_somebody_else(offline: Chart) -> None:
    assert of_kind(offline.render({**VALUES, "crds": {"install": False}}), "CustomResourceDefinition") == []


def test_names_and_labels_are_those_that_a_cluster_knows(offline: Chart) -> None:
    values = {**VALUES, "crds": {"install": False}, "admission": {"enabled": False}}
    objects = offline.render(values)
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"}
    assert {each["kind"] for each in objects} == kinds
    for each in objects:
        assert each["metadata"]["name"] == NAME
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == NAME
    deployment = the(objects, "Deployment")
    for labels in (deployment["metadata"]["labels"], deployment["spec"]["template"]["metadata"]["labels"]):
        assert labels["app.kubernetes.io/component"] == "controller"
    assert deployment["spec"]["selector"] == {"matchLabels": {"app.kubernetes.io/name": NAME}}
    assert deployment["spec"]["replicas"] == 1
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
        assert the(objects, kind)["subjects"] == [account]


def test_the_container_starts_the_operator_as_the_contract_says(offline: Chart) -> None:
    pod = the(offline.render(VALUES), "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == NAME
    [container] = pod["containers"]
    assert container["name"] == "manager"
    assert container["image"] == "ghcr.io/cocoonstack/cocoon-operator:0.1.0"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["args"] == [
        "--metrics-bind-address=:8080",
        "--health-probe-bind-address=:8081",
        "--leader-elect=true",
    ]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables == {"OCI_REGISTRY": VALUES["registry"], "OPERATOR_LOG_LEVEL": "info", "LOG_FORMAT": "text"}
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"metrics": 8080, "probe": 8081}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "probe"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "probe"}
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"cpu": "1", "memory": "512Mi"},
    }


def test_a_login_for_the_registry_is_mounted_as_docker_writes_it(offline: Chart) -> None:
    values = {**VALUES, "registryCredentialsSecret": "snapshots-login"}
    pod = the(offline.render(values), "Deployment")["spec"]["template"]["spec"]
    [container], [volume] = pod["containers"], pod["volumes"]
    folder = next(each["value"] for each in container["env"] if each["name"] == "DOCKER_CONFIG")
    assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": folder, "readOnly": True}]
    items = [{"key": ".dockerconfigjson", "path": "config.json"}]
    assert volume["secret"] == {"secretName": "snapshots-login", "items": items}


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "registry must be set: where the VMs' snapshots are"),
        ({"registry": "https://registry.example.com"}, "registry has no scheme: write host[:port][/path] instead of"),
        ({**VALUES, "regstry": "x"}, "additional properties 'regstry' not allowed"),
        ({**VALUES, "crds": {"instal": True}}, "additional properties 'instal' not allowed"),
        ({**VALUES, "image": {"digest": "x"}}, "additional properties 'digest' not allowed"),
        ({**VALUES, "resources": {"limit": {}}}, "additional properties 'limit' not allowed"),
        ({**VALUES, "replicaCount": "2"}, "at '/replicaCount': got string, want integer"),
        ({**VALUES, "replicaCount": -1}, "at '/replicaCount': minimum: got -1, want 0"),
        ({**VALUES, "logLevel": "loud"}, "at '/logLevel': value must be one of"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(offline: Chart, values: Obj, words: str) -> None:
    with pytest.raises(HelmError) as refused:
        offline.render(values)
    assert words in str(refused.value)


def test_every_value_is_in_the_schema_and_described(offline: Chart) -> None:
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert {*yaml.safe_load(text), "global"} == set(schema["properties"])
    offline.render({**yaml.safe_load(text), **VALUES})
    lines = text.splitlines()
    tops = [number for number, line in enumerate(lines) if line[:1].isalpha()]
    assert [lines[number] for number in tops if not lines[number - 1].startswith("# ")] == []


# -- on a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare_cluster(tools: Path) -> Iterator[ControlPlane]:
    """A cluster of its own without CRDs, which enforces owner references: the chart has to bring everything."""
    flags = {API_SERVER: ("--enable-admission-plugins=OwnerReferencesPermissionEnforcement",)}
    options = ControlPlaneOptions(flags=flags)
    with Scratch("chart-cluster") as scratch, ControlPlane(tools, scratch.path, options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def installed(bare_cluster: ControlPlane, registry: Registry) -> Chart:
    """The chart as a user installs it, but for the pod, for which no image is here."""
    release = Chart.on(bare_cluster)
    release.install({"registry": f"{registry.address}/chart", "replicaCount": 0})
    bare_cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(checkout.CRDS), timeout=90)
    return release


def granted(cluster: Cluster) -> set[Right]:
    """Every right of the operator, as the API server has it."""
    rules = cluster.kubectl.get("clusterrole", NAME)["rules"]
    rules += cluster.kubectl.get("role", NAME, "--namespace", NAMESPACE)["rules"]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def live_through_everything(cluster: Cluster, agent: AgentProcess, api: Api, repository: str) -> None:
    """Create, suspend, wake, release, wake, suspend, delete; and a refusal that is told twice."""
    agent.client.publish_image(yaml.safe_load(EXAMPLE.read_text())["spec"]["agent"]["image"])
    world = DemoWorld(api, agent.client, repository, NODES, "default", "demo")
    refusal = ("annotate", "--overwrite", "cset", "refused", f"{keys.START_FRESH}=nobody")
    cluster.kubectl("create", "-f", "-", stdin=EXAMPLE.read_text().replace("name: demo", "name: refused"))
    cluster.kubectl(*refusal)
    until(lambda: told(api, "StartFreshRefused") == 1, "the refusal is told")
    cluster.kubectl(*refusal)
    until(lambda: told(api, "StartFreshRefused") == 2, "the refusal is told again")
    cluster.kubectl("delete", "cset", "refused")
    Story(world, cluster.kubectl, OperatorAudit(cluster), View(), EXAMPLE, settle=0.2).tell()


def told(api: Api, reason: str) -> int:
    """How often an event was counted."""
    events = api.call("GET", "/api/v1/namespaces/default/events")["items"]
    return sum(event["count"] for event in events if event["reason"] == reason)


def until(holds: Callable[[], bool], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {what}"
        time.sleep(0.05)


def test_its_rights_are_enough_and_no_more(
    bare_cluster: ControlPlane, installed: Chart, registry: Registry, tmp_path: Path
) -> None:
    snapshots = f"{registry.address}/chart"
    kubeconfig = bare_cluster.service_account_kubeconfig(NAMESPACE, NAME)
    options = AgentOptions(nodes=NODES, registry=snapshots, time_scale=0.1)
    with (
        AgentProcess(bare_cluster.kubeconfig, tmp_path / "nodes", options) as agent,
        proxied_api(bare_cluster) as api,
        OperatorProcess(kubeconfig, tmp_path / "operator", OperatorOptions(snapshots)),
    ):
        live_through_everything(bare_cluster, agent, api, f"{registry.url}/v2/chart")
    requests = [each for each in OperatorAudit(bare_cluster).requests() if each.object_ref.resource]
    assert {each.user.username for each in requests} == {OPERATOR_USER}
    assert [each.request_uri for each in requests if each.response_status.code in {401, 403}] == []
    called = {
        (ref.api_group, f"{ref.resource}/{ref.subresource}".rstrip("/"), each.verb)
        for each in requests
        for ref in [each.object_ref]
    }
    assert called <= granted(bare_cluster)
    assert granted(bare_cluster) - called == {*NOT_CALLED, *CALLED_FOR_HIBERNATIONS} - called
    leases = {each.object_ref.namespace for each in requests if each.object_ref.resource == "leases"}
    assert leases == {NAMESPACE}


def test_owner_references_are_refused_without_the_right_that_looks_unused(
    bare_cluster: ControlPlane, installed: Chart
) -> None:
    kubectl = bare_cluster.kubectl
    kubectl("create", "-f", "-", stdin=EXAMPLE.read_text().replace("name: demo", "name: owner"))
    owner = kubectl.get("cset", "owner")["metadata"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "owned",
            "ownerReferences": [
                {
                    "apiVersion": keys.API_VERSION,
                    "kind": keys.KIND_SET,
                    "name": "owner",
                    "uid": owner["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "agent", "image": "example.invalid/placeholder:latest"}]},
    }
    kubectl("create", "role", "pods", "--verb=create", "--resource=pods")
    kubectl("create", "rolebinding", "pods", "--role=pods", "--serviceaccount=default:default")
    dry_run = ("create", "--dry-run=server", "--validate=false", "-o", "name", "-f", "-")
    try:
        kubectl(*dry_run, "--as", OPERATOR_USER, stdin=yaml.safe_dump(pod))
        refused = kubectl(
            *dry_run, "--as", "system:serviceaccount:default:default", stdin=yaml.safe_dump(pod), check=False
        )
        assert "cannot set blockOwnerDeletion" in refused.stderr
    finally:
        kubectl("delete", "cset", "owner")


def test_its_pods_are_admitted_where_pod_security_is_restricted(bare_cluster: ControlPlane, installed: Chart) -> None:
    kubectl = bare_cluster.kubectl
    kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    values = {**VALUES, "replicaCount": 2, "registryCredentialsSecret": "snapshots-login"}
    installed.install(values)
    selector = ("--namespace", NAMESPACE, "--selector", f"app.kubernetes.io/name={NAME}")
    until(lambda: len(kubectl.get("pods", *selector)["items"]) == 2, "both pods of the Deployment exist")


def test_an_uninstall_takes_the_operator_and_leaves_the_users_sets(
    bare_cluster: ControlPlane, installed: Chart, registry: Registry
) -> None:
    kubectl = bare_cluster.kubectl
    kubectl("create", "-f", "-", stdin=EXAMPLE.read_text().replace("name: demo", "name: precious"))
    installed.uninstall()
    left = kubectl("get", "deployment,serviceaccount,role", NAME, "--namespace", NAMESPACE, "-o", "name", check=False)
    assert left.stdout == ""
    assert kubectl("get", "clusterrole", NAME, check=False).returncode != 0
    assert kubectl.get("cset", "precious")["metadata"]["name"] == "precious"
    installed.install({"registry": f"{registry.address}/chart", "replicaCount": 0})
    assert kubectl.get("cset", "precious")["metadata"]["name"] == "precious"
