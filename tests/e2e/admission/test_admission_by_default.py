"""The policies by the chart's own values, on a cluster of their own: none is doubtful, /scale is watched, life goes on.

A cluster of its own, because an API server reads no workloads for policies any more once it has lost the last policy that
asks for them (kubernetes/kubernetes#130887): a second installation in the cluster of the run would judge by old ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import Asking, Request, create, delete, patch, path_of
from candidates import TOLERATION, Obj, cocoon_set, hibernation, owner, pod, workload
from inforce import denied, scaled_down, until

from cocoon_devkit import checkout
from cocoon_devkit.chart import NAME, OPERATOR_USER, Chart
from cocoon_devkit.controlplane import CONTROLLERS, ControlPlane, ControlPlaneOptions
from cocoon_devkit.rawapi import Api, proxied_api
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys

WORKLOADS = ("Deployment", "StatefulSet")
KINDS = pytest.mark.parametrize("kind", WORKLOADS)


@pytest.fixture(scope="module")
def guarded(tools: Path) -> Iterator[ControlPlane]:
    """A cluster whose controller manager checks the types of policies, with the chart by its own values."""
    controllers = (*CONTROLLERS, "validatingadmissionpolicy-status-controller")
    options = ControlPlaneOptions(crds=checkout.CRDS, controllers=controllers)
    with Scratch("guarded-cluster") as scratch, ControlPlane(tools, scratch.path, options) as cluster:
        values = {"registry": "registry.example.com/cocoon", "replicaCount": 0, "crds": {"install": False}}
        Chart.on(cluster).install(values)
        yield cluster


@pytest.fixture(scope="module")
def guarded_api(guarded: ControlPlane) -> Iterator[Api]:
    with proxied_api(guarded) as api:
        yield api


@pytest.fixture(scope="module")
def user(guarded_api: Api) -> Asking:
    """An administrator, for whom the policies count as for everybody; workloads are there, and their scale is watched."""
    user = Asking(guarded_api)
    for kind in WORKLOADS:
        user.allows(create(workload("default", kind, TOLERATION)).stored())
        user.allows(create(workload("default", kind, name="plain")).stored())
    until(lambda: all("must not" in user.says(scale(kind, 1)) for kind in WORKLOADS), "all scales are watched")
    return user


def scale(kind: str, replicas: int, name: str = "vms") -> Request:
    """As `kubectl scale` and autoscalers ask for it."""
    return patch(workload("default", kind, name=name), {"spec": {"replicas": replicas}}, "scale")


@pytest.mark.scenario("WL-5", "V16", "V17")
@KINDS
def test_a_workload_of_vms_does_not_shrink_through_scale_either(user: Asking, kind: str) -> None:
    for replicas in (3, 4):
        user.allows(scale(kind, replicas))
    for replicas in (2, 0):
        denied(user.refuses(scale(kind, replicas)), f"{kind.lower()}s-scale", scaled_down(kind, "default", 3, replicas))


@pytest.mark.scenario("WL-5", "V18")
@KINDS
def test_another_workload_shrinks_through_scale(user: Asking, kind: str) -> None:
    """Although one of VMs is beside it, in the same namespace."""
    user.allows(scale(kind, 0, "plain"))


@pytest.mark.scenario("WL-6", "V19")
@KINDS
def test_the_scale_of_a_workload_that_is_gone_is_not_found(user: Asking, kind: str) -> None:
    assert user.refuses(scale(kind, 0, "gone")).reason == "NotFound"


@pytest.mark.scenario("WL-6", "CH-6", "V20", "V76")
def test_what_cannot_be_judged_is_refused(guarded: ControlPlane) -> None:
    """A policy whose parameters have not been read refuses; where there are none, there is nothing to judge."""
    policies, bindings = stored(guarded, "policies"), stored(guarded, "policybindings")
    assert {each["spec"]["failurePolicy"] for each in policies} == {"Fail"}
    asking = {each["metadata"]["name"] for each in policies if "paramKind" in each["spec"]}
    assert asking == {f"{NAME}-{rule}" for rule in ("deployments-scale", "statefulsets-scale", "hibernation-one")}
    references = {name: each["spec"].get("paramRef") for each in bindings for name in [each["spec"]["policyName"]]}
    everything = {"selector": {}, "parameterNotFoundAction": "Allow"}
    assert references == {name: everything if name in asking else None for name in references}


def test_the_api_server_finds_no_doubtful_expression(guarded: ControlPlane) -> None:
    def checked() -> list[Obj]:
        statuses = [each.get("status", {}) for each in stored(guarded, "policies")]
        return [status["typeChecking"] for status in statuses if "typeChecking" in status]

    until(lambda: len(checked()) == 7, "the expressions of all policies are checked")
    assert checked() == [{}] * 7


def stored(cluster: ControlPlane, what: str) -> list[Obj]:
    listed: list[Obj] = cluster.kubectl.get(f"validatingadmission{what}")["items"]
    return listed


# -- life goes on ------------------------------------------------------------------------------------------------------


def owned_pod(user: Asking, namespace: str, name: str) -> tuple[Obj, Obj]:
    """A stored set and a stored pod of its VM, which the operator made."""
    stored_set = user.allows(create(cocoon_set(namespace, name=name)).stored())
    made = pod(namespace, TOLERATION, owner=owner(name, stored_set["metadata"]["uid"]), name=f"{name}-0")
    user.as_user(OPERATOR_USER, "system:masters").allows(create(made).stored())
    return stored_set, made


@pytest.mark.scenario("PO-5", "PO-8")
def test_the_garbage_collector_does_its_work(user: Asking, guarded_api: Api) -> None:
    collected_set, collected = owned_pod(user, "default", "collected")
    orphaned_set, orphaned = owned_pod(user, "default", "orphaned")
    user.allows(delete(collected_set).stored())
    user.allows(delete(orphaned_set, "Orphan").stored())
    until(lambda: guarded_api.find(path_of(collected)) is None, "the pod went with its set")
    until(lambda: guarded_api.find(path_of(orphaned_set)) is None, "the set went without its pod")
    assert "ownerReferences" not in guarded_api.call("GET", path_of(orphaned))["metadata"]
    user.allows(delete(orphaned).stored())


@pytest.mark.scenario("CS-1", "CH-1", "WL-1", "PO-8")
def test_a_namespace_goes_with_all_that_is_in_it(user: Asking, guarded: ControlPlane, guarded_api: Api) -> None:
    guarded.kubectl("create", "namespace", "doomed")
    account = "/api/v1/namespaces/doomed/serviceaccounts/default"
    until(lambda: guarded_api.find(account) is not None, "the namespace has its ServiceAccount")
    held, _ = owned_pod(user, "doomed", "held")
    for each in (*(workload("doomed", kind, TOLERATION) for kind in WORKLOADS), hibernation("doomed", "held-0")):
        user.allows(create(each).stored())
    operator = user.as_user(OPERATOR_USER, "system:masters")
    operator.allows(patch(held, {"metadata": {"finalizers": [keys.SET_FINALIZER]}}).stored())
    guarded_api.call("DELETE", "/api/v1/namespaces/doomed")
    # By hand, since the namespace's controller begins after 5 seconds, and comes back for what had a finalizer after 8 more.
    user.allows(delete(held).stored())
    operator.allows(patch(held, {"metadata": {"finalizers": None}}).stored())
    until(lambda: guarded_api.find("/api/v1/namespaces/doomed") is None, "the namespace is gone")
