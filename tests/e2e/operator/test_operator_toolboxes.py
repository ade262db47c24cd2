"""Toolboxes: run, cloned or static, under names that may collide; they sleep with their set and go with their tags."""

from __future__ import annotations

import json

import pytest
from fleet import RUN_BOX, RUN_IMAGE, STATIC_BOX, Fleet
from nodes import IMAGE
from older_api import older_api
from seat import Seat

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys

CLONE_BOX = {"name": "cl", "mode": "clone", "image": IMAGE}


def notes(seat: Seat) -> dict[str, str]:
    """The annotations of a member's pod."""
    return dict(seat.pod()["metadata"]["annotations"])


def foreign_pod(seat: Seat, name: str, labels: dict[str, str] | None = None) -> Obj:
    """A pod that no set made, and that no node takes."""
    spec = {"containers": [{"name": "x", "image": "x"}], "nodeSelector": {"nobody": "has-this"}}
    metadata = {"name": name, "labels": labels or {}}
    return dict(
        seat.api.call(
            "POST",
            f"/api/v1/namespaces/{seat.namespace}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
        )
    )


# -- modes -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S049", "S050", "S064")
def test_run_clone_and_static(seat: Seat) -> None:
    fleet = Fleet(seat)
    odd_run_box = {**RUN_BOX, "staticIP": "10.1.1.1", "staticVMID": "unused", "vncPort": 5900}
    fleet.up("db", "cl", toolboxes=[odd_run_box, CLONE_BOX, STATIC_BOX])
    db, cl, ext = fleet.member("db"), fleet.member("cl"), fleet.member("ext")
    assert db.the_vm()["image"] == RUN_IMAGE
    assert db.the_vm()["memory"]["history"] == [f"booted {RUN_IMAGE}"]
    assert cl.the_vm()["image"] == IMAGE
    assert cl.the_vm()["cloned_from"] == IMAGE
    assert notes(db)[keys.VM_ID] == db.the_vm()["id"]
    assert keys.VNC_PORT not in notes(db)
    assert ext.homes() == []
    static = notes(ext)
    assert keys.MANAGED not in static
    assert [static[key] for key in (keys.VM_ID, keys.VM_IP, keys.VNC_PORT)] == ["outside", "10.9.9.9", "5901"]
    boxes = {box["name"]: box for box in seat.status["toolboxes"]}
    assert list(boxes) == ["cl", "db", "ext"]
    assert (boxes["ext"]["vncPort"], boxes["ext"]["connType"], boxes["ext"]["vmID"]) == (5901, "vnc", "outside")
    assert (seat.status["desiredToolboxes"], seat.status["readyToolboxes"]) == (3, 3)
    fleet.settled()


@pytest.mark.scenario("S076", "S085")
def test_an_edited_toolbox_is_made_again_and_no_other(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("db", toolboxes=[RUN_BOX, STATIC_BOX])
    db, ext = fleet.member("db"), fleet.member("ext")
    kept, uid = db.uid, ext.uid
    seat.edit(toolboxes=[RUN_BOX, {**STATIC_BOX, "vncPort": 5902}])
    ext.until_other_pod(uid)
    ext.until_lives()
    assert notes(ext)[keys.VNC_PORT] == "5902"
    assert db.uid == kept
    fleet.settled()


# -- sleep -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S134", "S135", "S136")
def test_a_static_toolbox_takes_no_part_in_sleep(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("db", "cl", toolboxes=[RUN_BOX, CLONE_BOX, STATIC_BOX])
    ext = fleet.member("ext")
    uid = ext.uid
    seat.suspend()
    fleet.asleep()
    assert notes(ext)[keys.HIBERNATE] == "true"
    assert ext.lives
    assert notes(ext)[keys.LIFECYCLE_STATE] == "ready"
    assert ext.tags() == set()
    seat.wake()
    fleet.settled()
    assert ext.uid == uid
    assert keys.HIBERNATE not in notes(ext)


@pytest.mark.scenario("S244")
def test_w29_one_that_vanished_in_its_sleep_comes_back_with_its_work(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("db", "cl", toolboxes=[RUN_BOX, CLONE_BOX])
    seat.suspend()
    for name in ("db", "cl"):
        fleet.member(name).delete_pod()
        fleet.member(name).until_no_pod()
    fleet.check_saved()
    seat.wake()
    fleet.settled()
    assert notes(fleet.member("db"))[keys.RESTORE] == "true"


@pytest.mark.scenario("S137", "S239")
def test_w62_one_that_could_not_be_saved_is_alive(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("db", toolboxes=[RUN_BOX])
    db = fleet.member("db")
    uid = db.uid
    with db.fault("snapshot.save", "no space"):
        seat.edit(suspend=True)
        db.until_lifecycle("failed")
        seat.settle()
        assert (db.uid, seat.phase) == (uid, "Suspending")
        db.check_memory()
    fleet.asleep()
    assert seat.events("ToolboxRebuilding") == []
    seat.wake()
    fleet.settled()
    assert db.uid == uid


# -- failure ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S239", "S243")
def test_w30_one_that_does_not_boot_is_made_again_under_a_budget(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("cl", toolboxes=[CLONE_BOX], agent={"replicas": 0})
    db = fleet.member("db")
    with db.fault("vm.boot", "it would not boot"):
        seat.edit(toolboxes=[RUN_BOX, CLONE_BOX], agent={"replicas": 1})
        fleet.member(1).until_lives()
        seat.until(
            lambda: json.loads(seat.note(keys.TOOLBOX_REBUILD_HISTORY) or "{}").get("db", {}).get("count") == 2,
            "the second attempt",
        )
        told = [f"toolbox db attempt {attempt}/4" for attempt in (1, 2)]
        seat.until(lambda: fleet.told("ToolboxRebuilding") == told, "each attempt is told")
    db.until_lives()
    fleet.settled()
    assert seat.note(keys.REBUILD_HISTORY) is None


def test_a_lost_vm_is_made_again_and_the_others_stay(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("cl", toolboxes=[RUN_BOX, CLONE_BOX])
    db, kept = fleet.member("db"), fleet.member("cl").uid
    uid = db.uid
    db.lose_vm()
    db.until_other_pod(uid)
    db.until_lives()
    fleet.settled()
    assert fleet.member("cl").uid == kept


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S235", "S236", "S237", "S242")
@pytest.mark.parametrize(
    ("boxes", "why"),
    [
        ([{**RUN_BOX, "name": "0"}], "spec.toolboxes[0].name: '0' is a number"),
        ([RUN_BOX, {**RUN_BOX, "name": "007"}], "spec.toolboxes[1].name: '007' is a number"),
        ([RUN_BOX, CLONE_BOX, RUN_BOX], "name 'db' is given more than once"),
    ],
    ids=["main's", "a slot's", "twice"],
)
def test_names_that_cannot_work_stop_the_toolboxes_only(
    cluster: Cluster, seat: Seat, boxes: list[Obj], why: str
) -> None:
    """W-23, W-50: the status says so, agents are seen to, and nothing that exists is touched.

    The CRD refuses such names; an older one let them in.
    """
    fleet = Fleet(seat)
    fleet.up("cl", toolboxes=[CLONE_BOX])
    uid = fleet.member("cl").uid
    with older_api(cluster):
        seat.edit(toolboxes=[*boxes, *([] if CLONE_BOX in boxes else [CLONE_BOX])], agent={"replicas": 1})
    found = seat.until_condition("Ready", "InvalidSpec")
    assert why in found["message"]
    seat.until_event("InvalidSpec")
    fleet.member(1).until_lives()
    seat.settle()
    assert fleet.pod_names() == {"demo-0", "demo-1", "demo-cl"}
    assert fleet.member("cl").uid == uid
    fleet.check()
    seat.edit(toolboxes=[RUN_BOX, CLONE_BOX])
    fleet.member("db").until_lives()
    fleet.settled()
    assert fleet.member("cl").uid == uid


@pytest.mark.scenario("S240")
def test_the_name_of_somebody_elses_pod(seat: Seat) -> None:
    """It is never taken over, written to or deleted; the agents do not notice (I7, W-25)."""
    fleet = Fleet(seat)
    stranger = foreign_pod(seat, "demo-db")
    seat.create(agent={"replicas": 1}, toolboxes=[RUN_BOX, CLONE_BOX])
    found = seat.until_condition("Ready", "PodNameCollision")
    assert found["message"].startswith("pod demo-db exists and is controlled by nobody")
    seat.until_event("PodNameCollision")
    for slot in (1, "cl"):
        fleet.member(slot).until_lives()
    fleet.work("first", 1, "cl")
    seat.suspend()
    seat.edit(suspend=False)
    seat.until(lambda: fleet.member("cl").lives and fleet.member(1).lives, "they are awake")
    left = seat.api.call("GET", f"/api/v1/namespaces/{seat.namespace}/pods/demo-db")["metadata"]
    assert (left["uid"], left.get("annotations")) == (stranger["metadata"]["uid"], None)
    fleet.check()


@pytest.mark.scenario("S240")
def test_the_name_of_a_pod_that_bears_the_sets_labels(seat: Seat) -> None:
    """Labels alone make no pod the set's own; once it is gone, the toolbox is made."""
    fleet = Fleet(seat)
    labels = {keys.LABEL_SET: "demo", keys.LABEL_ROLE: "toolbox", keys.LABEL_SLOT: "db"}
    stranger = foreign_pod(seat, "demo-db", labels)
    seat.create(toolboxes=[RUN_BOX])
    seat.until_condition("Ready", "PodNameCollision")
    left = seat.api.call("GET", f"/api/v1/namespaces/{seat.namespace}/pods/demo-db")["metadata"]
    assert (left["uid"], left.get("annotations")) == (stranger["metadata"]["uid"], None)
    seat.work("first")
    fleet.member("db").delete_pod()
    fleet.member("db").until_lives()
    fleet.settled()


# -- removal ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S143", "S241")
@pytest.mark.parametrize("policy", ["always", "never"])
def test_w16_a_removed_toolbox_takes_its_tags_along(seat: Seat, policy: str) -> None:
    fleet = Fleet(seat)
    fleet.up("db", "cl", snapshotPolicy=policy, toolboxes=[RUN_BOX, CLONE_BOX])
    seat.suspend()
    db = fleet.member("db")
    uid = db.uid
    seat.edit(toolboxes=[CLONE_BOX])
    seat.until_suspended()
    assert db.uid == uid
    fleet.check_saved()
    seat.edit(suspend=False)
    seat.until(lambda: "demo-db" not in fleet.pod_names(), "the pod is gone")
    fleet.forget("db")
    fleet.settled()
    assert fleet.listed() == {"demo-0", "demo-cl"}
    assert (db.homes(), db.tags()) == ([], set())


@pytest.mark.scenario("S241")
def test_w16_a_toolbox_that_comes_back_is_another_one(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("db", toolboxes=[RUN_BOX])
    seat.suspend()
    db = fleet.member("db")
    uid = db.uid
    with db.barrier("delete") as held:
        seat.edit(suspend=False, toolboxes=[])
        held()
        seat.edit(toolboxes=[RUN_BOX])
        seat.until_observed()
    db.until_other_pod(uid)
    db.until_lives()
    fleet.forget("db")
    fleet.settled()
    assert db.the_vm()["memory"]["work"] == []
    assert keys.TAG_HIBERNATE not in db.tags()


@pytest.mark.scenario("S241")
def test_what_a_removed_awake_toolbox_kept_as_latest_follows_the_policy(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up("db", snapshotPolicy="always", toolboxes=[RUN_BOX])
    db = fleet.member("db")
    seat.edit(toolboxes=[])
    seat.until(lambda: fleet.listed() == {"demo-0"}, "it is gone")
    assert db.tags() == {keys.TAG_LATEST}
    assert db.saved_work(keys.TAG_LATEST) == db.written
    fleet.forget("db")
    fleet.settled()
