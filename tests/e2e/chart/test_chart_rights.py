"""The chart's rights on a cluster: enough for a whole life of sets, no more than is called, and those of people."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodes import NODES
from rendered import CHART_PREFIX, VALUES, Obj, the

from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.chart import NAME, NAMESPACE, OPERATOR_USER, Chart
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import ControlPlane
from cocoon_devkit.demo import EXAMPLE
from cocoon_devkit.demostory import Story
from cocoon_devkit.demoview import View
from cocoon_devkit.demoworld import DemoWorld
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.rawapi import Api, proxied_api
from cocoon_devkit.registry import Registry
from cocoon_operator.api import keys

Right = tuple[str, str, str]
"""Group, resource with its subresource, verb."""

# What the chart grants although the story below never calls it, and why.
NOT_CALLED: dict[Right, str] = {
    (keys.GROUP, "cocoonsets", "get"): "a set is read live after a write of unknown outcome",
    (keys.GROUP, "cocoonhibernations", "get"): "the same",
    (keys.GROUP, "cocoonsets/finalizers", "update"): "asked for by admission where owner references are enforced",
}

HOLD = f"""
apiVersion: {keys.API_VERSION}
kind: {keys.KIND_HIBERNATION}
metadata: {{name: refused-0}}
spec: {{podRef: {{name: refused-0}}, desire: Hibernate}}
"""


@pytest.fixture(scope="module")
def installed(bare_cluster: ControlPlane, chart_snapshots: str) -> Chart:
    """The chart as a user installs it, but for the pods, for which no image is here."""
    release = Chart.on(bare_cluster)
    release.install({"registry": chart_snapshots, "replicaCount": 0})
    bare_cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all", timeout=90)
    return release


def granted(cluster: Cluster) -> set[Right]:
    """Every right of the operator, as the API server has it."""
    rules = cluster.kubectl.get("clusterrole", NAME)["rules"]
    rules += cluster.kubectl.get("role", f"{NAME}-leader-election", "--namespace", NAMESPACE)["rules"]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def live_through_everything(cluster: Cluster, agent: AgentProcess, api: Api, repository: str) -> None:
    """Create, suspend, wake, release, wake, suspend, delete; a refusal that is told twice; one pod put to sleep."""
    world = DemoWorld(api, agent.client, repository, NODES, "default", "demo")
    refusal = ("annotate", "--overwrite", "cset", "refused", f"{keys.START_FRESH}=nobody")
    cluster.kubectl("create", "-f", "-", stdin=EXAMPLE.read_text().replace("name: demo", "name: refused"))
    cluster.kubectl(*refusal)
    until(lambda: told(api, "StartFreshRefused") == 1, "the refusal is told")
    cluster.kubectl(*refusal)
    until(lambda: told(api, "StartFreshRefused") == 2, "the refusal is told again")
    cluster.kubectl("create", "-f", "-", stdin=HOLD)
    until(
        lambda: cluster.kubectl.get("cocoonhibernation", "refused-0").get("status", {}).get("phase") == "Hibernated",
        "it sleeps",
    )
    cluster.kubectl("delete", "cocoonhibernation", "refused-0")
    cluster.kubectl("delete", "cset", "refused")
    Story(world, cluster.kubectl, OperatorAudit(cluster), View(), EXAMPLE, settle=0.2).tell()


def told(api: Api, reason: str) -> int:
    """How often an event was counted."""
    events = api.call("GET", "/api/v1/namespaces/default/events")["items"]
    return sum(event["count"] for event in events if event["reason"] == reason)


def until(holds: Callable[[], bool], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} seconds: {what}"
        time.sleep(0.05)


def run_helm_test(chart: Chart, url: str) -> subprocess.CompletedProcess[str]:
    """Run what the pod of ``helm test`` runs; there is no kubelet here to run the pod."""
    [container] = the(chart.render(VALUES), "Pod")["spec"]["containers"]
    assert container["command"] == ["python", "-c"]
    script, service = container["args"]
    assert service == f"http://{NAME}-metrics.{NAMESPACE}.svc:8080/metrics"
    return subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=90, check=False)


def test_w38_its_rights_are_enough_and_no_more(
    bare_cluster: ControlPlane, bare_nodes: AgentProcess, installed: Chart, registry: Registry, tmp_path: Path
) -> None:
    kubeconfig = bare_cluster.service_account_kubeconfig(NAMESPACE, NAME)
    with (
        proxied_api(bare_cluster) as api,
        OperatorProcess(kubeconfig, tmp_path, OperatorOptions(f"{registry.address}/{CHART_PREFIX}")) as operator,
    ):
        live_through_everything(bare_cluster, bare_nodes, api, f"{registry.url}/v2/{CHART_PREFIX}")
        tested = run_helm_test(installed, operator.metrics_url)
        assert (tested.returncode, tested.stderr) == (0, "")
    requests = [each for each in OperatorAudit(bare_cluster).requests() if each.object_ref.resource]
    assert {each.user.username for each in requests} == {OPERATOR_USER}
    assert [each.request_uri for each in requests if each.response_status.code in {401, 403}] == []
    called = {
        (ref.api_group, f"{ref.resource}/{ref.subresource}".rstrip("/"), each.verb)
        for each in requests
        for ref in [each.object_ref]
    }
    assert called <= granted(bare_cluster)
    assert granted(bare_cluster) - called == set(NOT_CALLED) - called
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


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"get", "list", "watch", "create", "update", "patch", "delete"}),
        ("admin", {"get", "list", "watch", "create", "update", "patch", "delete"}),
    ],
)
def test_people_may_do_to_sets_what_they_may_do_to_pods(
    bare_cluster: ControlPlane, installed: Chart, role: str, may: set[str]
) -> None:
    def rules() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for rule in bare_cluster.kubectl.get("clusterrole", role)["rules"]:
            for resource in rule["resources"] if keys.GROUP in rule["apiGroups"] else ():
                found.setdefault(resource, set()).update(rule["verbs"])
        return found

    kinds = {keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS}
    until(lambda: set(rules()) == kinds, f"the chart's rights are part of {role}")
    assert {frozenset(verbs - {"deletecollection"}) for verbs in rules().values()} == {frozenset(may)}
    subresources: dict[str, Any] = {each: verbs for each, verbs in rules().items() if "/" in each}
    assert subresources == {}


def test_the_script_of_helm_test_fails_when_nobody_answers(installed: Chart) -> None:
    script: Obj = the(installed.render(VALUES), "Pod")
    source = script["spec"]["containers"][0]["args"][0].replace("time.sleep(2)", "pass")
    failed = subprocess.run(
        [sys.executable, "-c", source, "http://127.0.0.1:9/metrics"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert failed.returncode == 1
    assert "Connection refused" in failed.stderr
