"""What stands in a set's way: a condition with a reason and an event say so, nothing is touched, and it goes on afterwards."""

from __future__ import annotations

import urllib.error
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import PREFIX
from seat import OTHER_IMAGE, Seat, Surroundings

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.rawapi import Obj
from cocoon_devkit.registry import Registry
from cocoon_operator.api import keys


def held_up(seat: Seat, reason: str) -> str:
    """``Ready`` is false for a reason, one event says the same, and there is no VM; returns the message."""
    ready = seat.until_condition("Ready", reason)
    assert ready["status"] == "False"
    event = seat.until_event(reason)
    assert (event["type"], event["message"]) == ("Warning", ready["message"])
    assert event["source"]["component"] == keys.EVENT_COMPONENT
    assert event["involvedObject"]["uid"] == seat.get()["metadata"]["uid"]
    assert seat.homes() == []
    return str(ready["message"])


# -- names -------------------------------------------------------------------------------------------------------------


def _stranger(seat: Seat) -> Obj:
    """A pod of nobody that has the name of the main agent's and, so that its end is seen at once, the set's label."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": seat.pod_name, "labels": {keys.LABEL_SET: seat.name}},
        "spec": {
            "containers": [{"name": "c", "image": "example.com/none:1"}],
            "nodeSelector": {"nowhere": "true"},
            "terminationGracePeriodSeconds": 0,
        },
    }


@pytest.mark.scenario("S090", "S316")
def test_w25_a_pod_of_that_name_is_somebody_elses(seat: Seat) -> None:
    before = seat.api.call("POST", f"/api/v1/namespaces/{seat.namespace}/pods", _stranger(seat))["metadata"]
    seat.create()
    assert "demo-0 exists and is controlled by nobody" in held_up(seat, "PodNameCollision")
    seat.settle()
    after = seat.pod()["metadata"]
    assert (after["uid"], after.get("annotations")) == (before["uid"], None)
    seat.delete_pod()
    seat.until_running()


@pytest.fixture
def neighbouring(surroundings: Surroundings, seat: Seat) -> Iterator[str]:
    """A namespace whose name goes on where that of the seat ends."""
    name = f"{seat.namespace}-b"
    api = surroundings.api
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    seat.until(lambda: api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default") is not None, "an account")
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")


def _claimed_twice(older: Seat, neighbouring: str) -> Seat:
    """A younger set of another namespace whose VM would have the same name."""
    younger = Seat(older.around, neighbouring, "c")
    assert younger.vm == older.vm
    # Creation times have a resolution of one second.
    older.settle(1.1)
    younger.create()
    told = younger.until_condition("Ready", "NameCollision")
    assert f"{older.vm} is claimed by CocoonSet {older.namespace}/{older.name}" in told["message"]
    assert younger.until_event("NameCollision")["message"] == told["message"]
    return younger


@pytest.mark.scenario("S018")
def test_w25_one_vm_name_from_two_namespaces_is_the_older_sets(seat: Seat, neighbouring: str) -> None:
    """Whatever becomes of the younger set, the older one's VM and its saved state are not touched."""
    older = seat.neighbour("b-c")
    older.up(hibernatePolicy="release")
    older.suspend()
    older.until_no_pod()
    digest = older.tag()
    younger = _claimed_twice(older, neighbouring)
    younger.settle()
    assert younger.find_pod() is None
    younger.edit(suspend=True)
    younger.until_observed()
    younger.delete()
    younger.until(lambda: younger.find() is None, "it is gone")
    assert older.tag() == digest
    older.wake()
    older.check_memory()


@pytest.mark.scenario("S018")
def test_w25_the_younger_set_goes_on_when_the_name_is_free(seat: Seat, neighbouring: str) -> None:
    older = seat.neighbour("b-c")
    older.up()
    younger = _claimed_twice(older, neighbouring)
    older.delete()
    older.until(lambda: older.find() is None, "it is gone")
    younger.until_running()
    assert younger.the_vm()["memory"]["work"] == []


def test_a_name_too_long_for_a_label_is_told(seat: Seat) -> None:
    long = seat.neighbour("x" * 64)
    mark = seat.audit.mark()
    long.create()
    assert held_up(long, "InvalidSpec").startswith("metadata.name: 64 characters")
    long.settle()
    assert not [line for line in long.writes(mark) if line.startswith("create")]


@pytest.mark.scenario("S011", "S014")
def test_what_can_never_work_is_refused_with_the_field(seat: Seat) -> None:
    """And an edit that is refused leaves the set as it is."""
    seat.up()
    wrong: list[tuple[Obj, str]] = [
        ({"agent": {"image": ""}}, "spec.agent.image"),
        ({"agent": {"probePort": 70000}}, "spec.agent.probePort"),
        ({"hibernatePolicy": "relase"}, "spec.hibernatePolicy"),
        ({"hibernatePolicy": "release", "agent": {"replicas": 1}}, "hibernatePolicy=release requires agent.replicas=0"),
    ]
    for spec, field in wrong:
        with pytest.raises(urllib.error.HTTPError) as refused:
            seat.edit(**spec)
        assert refused.value.code == 422
        assert field in refused.value.read().decode()
    assert seat.get()["metadata"]["generation"] == 1
    seat.check_memory()


# -- a pod that is refused ---------------------------------------------------------------------------------------------


def test_a_pod_that_the_api_server_refuses_is_tried_again(seat: Seat) -> None:
    quotas = f"/api/v1/namespaces/{seat.namespace}/resourcequotas"
    seat.api.call("POST", quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    seat.until(lambda: "hard" in (seat.api.find(f"{quotas}/none") or {}).get("status", {}), "the quota is counted")
    seat.create()
    ready = seat.until_condition("Ready", "APIError")
    assert "exceeded quota: none" in ready["message"]
    seat.settle(2.0)
    assert "exceeded quota: none" in seat.until_event("CreateFailed")["message"]
    seat.api.call("DELETE", f"{quotas}/none")
    seat.until_running()


# -- snapshots ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S132", "S216")
@pytest.mark.parametrize("spec", [{}, {"nodeName": "n2"}, {"suspend": True}], ids=["plain", "pinned", "suspended"])
def test_w06_what_a_namesake_left_behind_is_put_aside(seat: Seat, spec: Obj) -> None:
    """Neither resurrected nor destroyed. With the finalizer taken away by hand the earlier set leaves its tag."""
    seat.up(hibernatePolicy="release")
    seat.suspend()
    seat.until_no_pod()
    left = seat.manifest()
    assert left is not None
    seat.delete()
    seat.until_gone()
    seat.put_manifest(keys.TAG_HIBERNATE, left)
    old, seat.written = seat.written, []

    seat.create(**spec)
    if spec.get("suspend"):
        seat.until_suspended()
        seat.wake()
    seat.until_running()
    assert seat.orphaned_work() == old
    assert seat.the_vm()["memory"]["work"] == []
    told = seat.until_event("LeftoverSnapshotMoved")["message"]
    assert told.startswith(f"{seat.vm}:hibernate was left by an earlier set of this name; it is now {seat.vm}:orphan-")
    assert seat.tag() is None


def _asleep(seat: Seat, policy: str) -> str:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    seat.until(lambda: (seat.find_pod() is None) == (policy == "release"), "the seat is settled")
    digest = seat.tag()
    assert digest is not None
    return digest


@pytest.mark.scenario("S168")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_a_tag_that_vanished_is_put_back_on_the_digest_on_record(seat: Seat, policy: str) -> None:
    digest = _asleep(seat, policy)
    seat.drop_tag()
    assert seat.tag() is None
    seat.wake()
    seat.check_memory()
    assert seat.the_vm()["restored_digest"] == digest
    assert digest in seat.until_event("SnapshotTagRestored")["message"]


@pytest.mark.scenario("S168", "S174")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_a_snapshot_that_is_missing_is_waited_for(seat: Seat, policy: str) -> None:
    """Never a fresh boot, and the agent's own copy stays: the flag that keeps it is not touched."""
    digest = _asleep(seat, policy)
    manifest = seat.manifest()
    assert manifest is not None
    seat.drop_tag(digest)
    seat.edit(suspend=False)
    assert digest in held_up(seat, "SnapshotMissing")
    seat.settle()
    assert len(seat.cached_on()) == 1
    if policy == "release":
        assert seat.find_pod() is None
    else:
        assert seat.pod()["metadata"]["annotations"][keys.HIBERNATE] == "true"
    seat.put_manifest(keys.TAG_HIBERNATE, manifest)
    seat.until_running()
    seat.check_memory()


@pytest.mark.scenario("S168", "S187")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_saved_state_can_be_given_up_by_name(seat: Seat, policy: str) -> None:
    digest = _asleep(seat, policy)
    seat.drop_tag(digest)
    seat.edit(suspend=False)
    held_up(seat, "SnapshotMissing")
    seat.annotate(start_fresh="vk-somebody-else-0")
    assert "vk-somebody-else-0 is no VM of this set" in seat.until_event("StartFreshRefused")["message"]
    seat.until(lambda: seat.note(keys.START_FRESH) is None, "the wrong name is taken out")
    assert seat.condition("Ready")["reason"] == "SnapshotMissing"
    seat.annotate(start_fresh=seat.vm)
    seat.until_running()
    assert seat.the_vm()["memory"]["work"] == []
    assert seat.note(keys.START_FRESH) is None
    seat.written = []
    seat.work("anew")
    seat.suspend()
    seat.wake()
    seat.check_memory()


@pytest.mark.parametrize("asleep", [False, True], ids=["awake", "asleep"])
def test_a_fresh_start_keeps_what_was_saved(seat: Seat, *, asleep: bool) -> None:
    """Of a sleeping set at its wake; of a VM that runs there is nothing saved but its ``latest``."""
    seat.up(hibernatePolicy="release")
    if asleep:
        seat.suspend()
        seat.until_no_pod()
    boot = None if asleep else seat.the_vm()["boot_id"]
    seat.annotate(start_fresh=seat.vm)
    if asleep:
        seat.settle()
        assert seat.phase == "Suspended"
        seat.edit(suspend=False)
    seat.until(lambda: (seat.find_vm() or {"boot_id": boot})["boot_id"] != boot, "a fresh VM")
    seat.until_running()
    assert seat.the_vm()["memory"]["work"] == []
    assert seat.note(keys.START_FRESH) is None
    if asleep:
        assert seat.orphaned_work() == seat.written
    else:
        assert seat.saved_work(keys.TAG_LATEST) == seat.written


@pytest.mark.scenario("S186")
def test_w13_a_snapshot_of_another_machine_is_put_aside_and_can_be_taken_back(seat: Seat) -> None:
    """The way back that the documentation tells: suspended and released, the orphan under ``hibernate``, the old image."""
    _asleep(seat, "release")
    seat.edit(suspend=False, agent={"image": OTHER_IMAGE})
    seat.until_running()
    (orphan,) = [tag for tag in seat.tags() if tag.startswith("orphan-")]
    old = seat.manifest(orphan)
    assert old is not None
    seat.suspend()
    seat.until_no_pod()
    seat.put_manifest(keys.TAG_HIBERNATE, old)
    seat.edit(suspend=False, agent={"image": "base"})
    seat.until_running()
    seat.check_memory()


# -- another registry --------------------------------------------------------------------------------------------------


@pytest.fixture
def misled(
    cluster: Cluster, operator: OperatorProcess, operator_kubeconfig: Path, tmp_path: Path
) -> Iterator[OperatorProcess]:
    """An operator whose OCI_REGISTRY is an empty registry that nobody pushes to."""
    with Registry(cluster.tools, tmp_path / "empty", name="empty") as empty:
        operator.stop()
        options = OperatorOptions(f"{empty.address}/{PREFIX}", leader_elect=False)
        with OperatorProcess(operator_kubeconfig, tmp_path, options, name="misled") as process:
            yield process


@pytest.mark.scenario("S168")
def test_a_wrong_registry_does_not_look_like_an_empty_one(
    seat: Seat, operator: OperatorProcess, request: pytest.FixtureRequest
) -> None:
    other = seat.neighbour(f"demo-{uuid.uuid4().hex[:4]}")
    for each, policy in ((seat, "release"), (other, "retain")):
        _asleep(each, policy)
    request.getfixturevalue("misled")
    for each in (seat, other):
        each.edit(suspend=False)
        held_up(each, "SnapshotMissing")
    misled: OperatorProcess = request.getfixturevalue("misled")
    misled.stop()
    operator.start()
    for each in (seat, other):
        each.until_running()
        each.check_memory()
