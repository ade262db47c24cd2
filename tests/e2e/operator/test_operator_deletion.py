"""A deleted set: what goes, what the policy keeps, what is somebody else's, and what an outage of the registry does to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from seat import Seat, Surroundings

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_operator.api import keys


@pytest.fixture
def impatient(
    operator: OperatorProcess, snapshots: str, operator_kubeconfig: Path, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """An operator in the place of the others' that waits for a registry for two seconds only."""
    operator.stop()
    options = OperatorOptions(snapshots, leader_elect=False, settings={"TAG_COLLECTION_TIMEOUT": "2s"})
    with OperatorProcess(operator_kubeconfig, tmp_path, options) as process:
        yield process
    operator.start()


# -- tags --------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S250", "S251", "S252", "S253")
@pytest.mark.parametrize(("policy", "left"), [("always", {"latest"}), ("main-only", {"latest"}), ("never", set())])
def test_the_policy_says_which_tags_stay(seat: Seat, policy: str, left: set[str]) -> None:
    seat.up(snapshotPolicy=policy)
    log = seat.registry.mark()
    seat.delete()
    seat.until_gone()
    assert seat.tags() == left
    drops = [line for line in seat.asked(log) if line.startswith("DELETE")]
    assert drops == (["DELETE hibernate"] if left else ["DELETE hibernate", "DELETE latest"])
    if left:
        assert seat.saved_work("latest") == seat.written


@pytest.mark.scenario("S250", "S254", "S258")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_deleted_while_it_sleeps(seat: Seat, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    if policy == "release":
        seat.until_no_pod()
    assert seat.tag() is not None
    seat.delete()
    seat.until_gone()
    assert seat.tags() == set()
    assert seat.cached_on() == [] or policy == "release", (
        "the agent keeps the copy of a released seat until its own time"
    )


@pytest.mark.scenario("S255")
def test_w63_a_listed_name_of_another_set_is_reported_and_not_touched(seat: Seat) -> None:
    other = seat.neighbour("other")
    seat.up()
    other.up()
    other.suspend()
    listed = f" vk-{seat.namespace}-demo-9 , ,{other.vm}"
    log = seat.registry.mark()
    seat.api.call(
        "PATCH",
        seat.path,
        {"metadata": {"annotations": {keys.DELETE_VM_NAMES: listed}}},
        "application/merge-patch+json",
    )
    seat.delete()
    seat.until_gone()
    assert other.vm in seat.until_event("ForeignVMName")["message"]
    dropped = {request.path for request in seat.registry.requests(log) if request.user_agent == keys.EVENT_COMPONENT}
    assert f"/v2/cocoon/vk-{seat.namespace}-demo-9/manifests/hibernate" in dropped
    assert seat.tag() is None
    assert other.saved_work() == other.written
    other.wake()
    other.check_memory()


# -- objects -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S090", "S091", "S256")
def test_a_pod_that_only_carries_the_label_stays(seat: Seat) -> None:
    seat.up()
    stranger = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "stranger",
            "labels": {keys.LABEL_SET: "demo", keys.LABEL_ROLE: "main", keys.LABEL_SLOT: "0"},
        },
        "spec": {"containers": [{"name": "c", "image": "example.com/none:1"}], "nodeSelector": {"nowhere": "true"}},
    }
    path = f"/api/v1/namespaces/{seat.namespace}/pods"
    seat.api.call("POST", path, stranger)
    seat.suspend()
    seat.wake()
    with seat.barrier("delete") as held:
        seat.delete()
        held()
        seat.settle()
        assert seat.get()["metadata"]["finalizers"] == [keys.SET_FINALIZER]
    seat.until_gone()
    left = seat.api.call("GET", f"{path}/stranger")
    assert "deletionTimestamp" not in left["metadata"]
    assert "annotations" not in left["metadata"], "it was not even stamped"


@pytest.mark.scenario("S256", "S258")
def test_a_foreground_deletion_ends_the_same(seat: Seat, cluster: Cluster) -> None:
    """The garbage collector deletes the pod then, under the operator's hands, and has a finalizer of its own."""
    seat.up(snapshotPolicy="never")
    seat.suspend()
    cluster.kubectl(
        "delete", "cset", "demo", "--namespace", seat.namespace, "--cascade=foreground", "--timeout=30s", timeout=40
    )
    seat.until_gone()
    assert seat.tags() == set()


@pytest.mark.scenario("S260")
def test_a_deletion_does_not_wait_for_what_the_spec_says(seat: Seat) -> None:
    """A name that no label can hold: nothing could be made of this set, and nothing keeps it."""
    long = seat.neighbour("x" * 64)
    long.create(suspend=True)
    long.until_condition("Ready", "InvalidSpec")
    long.delete()
    long.until(lambda: long.find() is None, "it is gone")


# -- outages -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S257")
def test_it_waits_for_a_registry_that_is_down(seat: Seat) -> None:
    seat.up(hibernatePolicy="release")
    seat.suspend()
    seat.until_no_pod()
    seat.registry.stop()
    seat.delete()
    waiting = seat.until_condition("TagsCollected", "RegistryUnreachable")
    assert waiting["status"] == "False"
    assert f"{seat.vm}:hibernate" in waiting["message"]
    assert seat.condition("Ready")["status"] == "Unknown"
    seat.settle(2)
    assert f"{seat.vm}:hibernate" in seat.until_event("TagCollectionDelayed")["message"]
    seat.registry.start()
    seat.until_gone()
    assert seat.tags() == set()
    assert seat.events("TagsNotCollected") == []


@pytest.mark.scenario("S257")
def test_after_the_limit_it_lets_go_and_names_the_tags(
    surroundings: Surroundings, impatient: OperatorProcess, namespace: str
) -> None:
    """The limit counts from a time that is stored, so that a crash does not begin it anew."""
    seat = Seat(surroundings, namespace)
    seat.up(snapshotPolicy="never")
    seat.registry.stop()
    try:
        seat.delete()
        seat.until_condition("TagsCollected", "RegistryUnreachable")
        assert seat.find_pod() is None
        assert seat.get()["metadata"]["finalizers"] == [keys.SET_FINALIZER]
        impatient.crash()
        seat.until(lambda: seat.find() is None, "it is let go")
        told = seat.until_event("TagsNotCollected")
    finally:
        seat.registry.start()
    assert told["type"] == "Warning"
    assert f"{seat.vm}:hibernate, {seat.vm}:latest" in told["message"]
    assert seat.events("TagCollectionDelayed")
