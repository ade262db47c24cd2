"""Whatever the policies say: what has lost its owner is collected, and a namespace can always be deleted."""

from __future__ import annotations

import pytest
from asking import Asking, create, delete, patch, path_of
from candidates import TOLERATION, Obj, cocoon_set, owner, pod
from inforce import Standing, until

from cocoon_devkit.chart import OPERATOR_USER
from cocoon_devkit.rawapi import Api
from cocoon_operator.api import keys


def owned_pod(alice: Asking, namespace: str, name: str) -> tuple[Obj, Obj]:
    """A stored set and a stored pod of its VM."""
    stored = alice.allows(create(cocoon_set(namespace, name=name)).stored())
    made = pod(namespace, TOLERATION, owner=owner(name, stored["metadata"]["uid"]), name=f"{name}-0")
    alice.as_user(OPERATOR_USER).allows(create(made).stored())
    return stored, made


@pytest.mark.scenario("PO-8")
def test_the_garbage_collector_does_its_work(alice: Asking, api: Api, standing: Standing) -> None:
    collected_set, collected = owned_pod(alice, standing.namespace, "collected")
    orphaned_set, orphaned = owned_pod(alice, standing.namespace, "orphaned")
    alice.allows(delete(collected_set).stored())
    alice.allows(delete(orphaned_set, "Orphan").stored())
    until(lambda: api.find(path_of(collected)) is None, "the pod went with its set")
    until(lambda: api.find(path_of(orphaned_set)) is None, "the set went without its pod")
    left = api.call("GET", path_of(orphaned))
    assert "ownerReferences" not in left["metadata"]
    alice.allows(delete(orphaned).stored())


@pytest.mark.scenario("CS-1", "CH-1", "WL-1")
def test_a_namespace_goes_with_all_that_is_in_it(alice: Asking, api: Api, standing: Standing) -> None:
    """Workloads and pods of VMs, objects that an older CRD let in, and sets that the operator frees from its finalizer."""
    held, _ = owned_pod(alice, standing.namespace, "held")
    operator = alice.as_user(OPERATOR_USER)
    operator.allows(patch(held, {"metadata": {"finalizers": [keys.SET_FINALIZER]}}).stored())
    api.call("DELETE", f"/api/v1/namespaces/{standing.namespace}")
    finalized = [held, *standing.without_spec()]
    until(lambda: all(_is_going(api, each) for each in finalized), "all of it is being deleted")
    for each in finalized:
        operator.allows(patch(each, {"metadata": {"finalizers": None}}).stored())
    until(lambda: api.find(f"/api/v1/namespaces/{standing.namespace}") is None, "the namespace is gone")


def _is_going(api: Api, obj: Obj) -> bool:
    return "deletionTimestamp" in api.call("GET", path_of(obj))["metadata"]
