"""Bring-up (contract, section 2): what is written in which order, and what refuses a boot."""

from __future__ import annotations

import pytest
from node_fleet import ID, IP, LIFECYCLE, MESSAGE, OBSERVED, SET, VM, Fleet, Obj, note, ready, running
from nodes import IMAGE


def lifecycle_of(writes: list[Obj]) -> list[str]:
    """Return the lifecycle states that were written, in order."""
    return [each["changes"][LIFECYCLE] for each in writes if each["op"] == "annotate" and LIFECYCLE in each["changes"]]


def status_text(pod: Obj) -> str:
    return f"{pod['status']['phase']}/{'ready' if ready(pod) else 'not ready'}"


@pytest.mark.scenario("N017", "N026", "N054", "N055")
def test_a_clone_is_reported_in_this_order(fleet: Fleet) -> None:
    asked = fleet.pod("demo-0", generation="7")
    with fleet.recording("demo-0") as seen:
        fleet.create(asked)
        pod = fleet.until_state("demo-0", "ready")
    writes = fleet.writes("demo-0")
    assert [each["op"] for each in writes] == ["annotate", "annotate", "status", "status", "annotate"]
    creating, runtime, first, second, last = writes
    assert creating["changes"] == {LIFECYCLE: "creating", OBSERVED: "7", MESSAGE: None}
    assert set(runtime["changes"]) == {ID, IP}
    assert (first["phase"], first["ready"]) == ("Running", "False")
    assert (second["phase"], second["ready"]) == ("Running", "True")
    assert last["changes"] == {LIFECYCLE: "ready", OBSERVED: "7", MESSAGE: None}
    for version in seen:
        assert not running(version) or note(version, ID)
        assert note(version, LIFECYCLE) != "ready" or ready(version)
        assert bool(note(version, LIFECYCLE)) == bool(note(version, OBSERVED))
        for key, value in asked["metadata"]["annotations"].items():
            assert note(version, key) == value
    assert f"{VM}vnc-port" not in pod["metadata"]["annotations"]


@pytest.mark.scenario("N018", "N020")
def test_run_is_ready_at_once_and_the_condition_follows_the_probe(fleet: Fleet) -> None:
    fault = fleet.agent.fault("n1", "probe", vm=fleet.vm("demo-box"))
    pod = fleet.boot("demo-box", mode="run", image="https://example.invalid/disk.img")
    assert running(pod)
    assert note(pod, ID)
    assert not ready(pod)
    fleet.agent.clear("n1", fault)
    fleet.until_pod("demo-box", ready, "the probe heals")


@pytest.mark.scenario("N021")
def test_a_clone_with_guest_work_is_not_ready_before_it_is_done(fleet: Fleet) -> None:
    barrier = fleet.agent.barrier("n1", "postclone", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0", os="windows")
    fleet.agent.wait_at_barrier("n1", barrier)
    fleet.settle()
    pod = fleet.the_pod("demo-0")
    assert running(pod)
    assert not ready(pod)
    assert note(pod, f"{VM}post-clone-state") == "running"
    fleet.agent.release("n1", barrier)
    pod = fleet.until_state("demo-0", "ready")
    assert note(pod, f"{VM}post-clone-state") == "done"
    assert ready(pod)


@pytest.mark.scenario("N073")
def test_guest_work_that_fails_stays_failed_without_the_hibernate_prefix(fleet: Fleet) -> None:
    fleet.agent.fault("n1", "postclone", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0", os="windows")
    fleet.until_state("demo-0", "failed")
    fleet.annotate("demo-0", hibernate=None, network="other")
    fleet.settle()
    pod = fleet.the_pod("demo-0")
    assert note(pod, LIFECYCLE) == "failed"
    assert note(pod, f"{VM}post-clone-state") == "failed"
    assert not note(pod, MESSAGE).startswith("hibernate: ")
    assert fleet.find_vm("demo-0") is not None


@pytest.mark.scenario("N022")
def test_ready_is_withheld_until_the_status_is_persisted(fleet: Fleet) -> None:
    barrier = fleet.agent.barrier("n1", "ip", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    fleet.until_pod("demo-0", running, "it runs")
    fault = fleet.agent.fault("n1", "patch.status", vm=fleet.vm("demo-0"))
    fleet.agent.clear("n1", barrier)
    fleet.agent.wait_for_hit("n1", fault, hits=3)
    fleet.settle()
    assert note(fleet.the_pod("demo-0"), LIFECYCLE) == "creating"
    fleet.agent.clear("n1", fault)
    fleet.until_state("demo-0", "ready")
    writes = fleet.writes("demo-0")
    good = next(place for place, each in enumerate(writes) if each["op"] == "status" and each["ready"] == "True")
    said = next(place for place, each in enumerate(writes) if each.get("changes", {}).get(LIFECYCLE) == "ready")
    assert good < said


@pytest.mark.scenario("N023", "N025")
def test_no_address_fails_the_pod_but_keeps_the_vm(fleet: Fleet) -> None:
    fleet.agent.fault("n1", "ip", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    pod = fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "PostCloneIPWaitTimeout")
    runtime = next(each["changes"] for each in fleet.writes("demo-0") if ID in each.get("changes", {}))
    assert runtime[IP] == ""
    assert note(pod, ID) == fleet.the_vm("demo-0")["id"]
    assert not ready(pod)


@pytest.mark.scenario("N024")
def test_an_address_that_comes_late_reaches_status_and_annotation(fleet: Fleet) -> None:
    fault = fleet.agent.fault("n1", "ip", vm=fleet.vm("demo-0"))
    fleet.begin("demo-0")
    fleet.until_pod("demo-0", running, "it runs")
    fleet.agent.clear("n1", fault)
    pod = fleet.until_state("demo-0", "ready")
    address = fleet.the_vm("demo-0")["ip"]
    assert address
    assert note(pod, IP) == address
    assert pod["status"]["podIP"] == address


@pytest.mark.scenario("N015")
def test_a_pod_without_a_vm_name_fails_to_create_and_is_not_written_to(fleet: Fleet) -> None:
    fleet.begin("demo-0", name=None)
    pod = fleet.until_pod("demo-0", lambda pod: pod["status"].get("reason") == "ProviderFailed", "it is refused")
    assert pod["status"]["phase"] == "Pending"
    fleet.until_event("demo-0", "ProviderCreateFailed")
    assert not any(each["op"] == "annotate" for each in fleet.writes("demo-0"))


@pytest.mark.scenario("N016")
def test_a_terminal_pod_is_not_touched(fleet: Fleet) -> None:
    pod = fleet.pod("demo-0", name=None)
    pod["spec"]["restartPolicy"] = "Never"
    fleet.create(pod)
    fleet.until_pod("demo-0", lambda pod: pod["status"]["phase"] == "Failed", "it failed for good")
    fleet.settle()
    since = fleet.agent.mark()
    labels = {"metadata": {"labels": {"colour": "blue"}}}
    fleet.api.call("PATCH", fleet.path("demo-0"), labels, "application/merge-patch+json")
    fleet.settle()
    assert fleet.calls("demo-0", since) == []


@pytest.mark.scenario("N027")
def test_a_failed_bring_up_is_told_and_tried_again(fleet: Fleet) -> None:
    fleet.agent.fault("n1", "vm.boot", vm=fleet.vm("demo-0"), message="no more memory", times=1)
    with fleet.recording("demo-0") as seen:
        fleet.begin("demo-0")
        fleet.until_state("demo-0", "ready")
    assert lifecycle_of(fleet.writes("demo-0")) == ["creating", "failed", "creating", "ready"]
    failed = next(version for version in seen if version["status"].get("reason") == "ProviderFailed")
    assert failed["status"]["phase"] == "Pending"
    assert note(failed, MESSAGE) == "no more memory"
    fleet.until_event("demo-0", "CreateBringUpFailed", "ProviderCreateFailed", "ProviderCreateSuccess")
    assert not fleet.the_pod("demo-0")["status"].get("reason")


@pytest.mark.scenario("N029", "N030", "N031")
def test_an_unknown_mode_clones_and_images_are_pulled_once(fleet: Fleet) -> None:
    tagged, plain = f"team/{fleet.prefix}:v2", f"team/{fleet.prefix}"
    fleet.agent.publish_image(tagged)
    fleet.agent.publish_image(plain)
    fleet.boot("demo-0", mode="weird", image=tagged)
    fleet.boot("demo-1", image=f"{plain}:latest")
    names = set(fleet.agent.snapshots("n1"))
    assert {tagged, plain} <= names
    since = fleet.agent.mark()
    for name in ("demo-2", "demo-3"):
        fleet.begin(name, image=plain)
    for name in ("demo-2", "demo-3"):
        fleet.until_state(name, "ready")
    assert [each for each in fleet.journal("registry", since=since) if f"/{plain}/" in each["path"]] == []
    assert fleet.the_vm("demo-2")["cloned_from"] == plain


@pytest.mark.scenario("N032", "N033", "N034")
def test_what_does_not_fit_is_refused(fleet: Fleet) -> None:
    fire, os_image = f"fire/{fleet.prefix}", f"os/{fleet.prefix}:24.04"
    fleet.agent.publish_image(fire, hypervisor="firecracker")
    fleet.agent.publish_image(os_image, kind="os")
    fleet.begin("demo-0", image=fire)
    fleet.begin("demo-1", mode="run", image=IMAGE)
    fleet.begin("demo-2", image=os_image)
    fleet.boot("demo-3", mode="run", image=os_image)
    for name in ("demo-0", "demo-1", "demo-2"):
        fleet.until_event(name, "CreateBringUpFailed")
        assert fleet.find_vm(name) is None


@pytest.mark.scenario("N035")
def test_a_vm_of_that_name_is_adopted(fleet: Fleet) -> None:
    planted = fleet.agent.plant_vm("n1", fleet.vm("demo-0"))
    pod = fleet.boot("demo-0")
    assert note(pod, ID) == planted["id"]
    assert fleet.engine("boot", "demo-0") == []


@pytest.mark.scenario("N036", "N037", "N038", "N180")
def test_forks_share_one_save_of_a_running_main_agent(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.work("demo-0", "shared start")
    base = f"fork-{fleet.vm('demo-0')}"
    for name in ("demo-1", "demo-2"):
        fleet.begin(name, fork_from=fleet.vm("demo-0"))
    for name in ("demo-1", "demo-2"):
        fleet.until_state(name, "ready")
        assert fleet.the_vm(name)["memory"]["work"] == ["shared start"]
        assert fleet.the_vm(name)["cloned_from"] == base
    fleet.boot("demo-3", fork_from=fleet.vm("demo-0"))
    saves = fleet.engine("save", "demo-0")
    assert [each["snapshot"] for each in saves] == [base]
    assert not any(each["op"] == "PUT" for each in fleet.journal("registry"))
    fleet.delete("demo-3")
    assert base in fleet.agent.snapshots("n1")
    # A fresh boot of the main agent begins another lineage.
    fleet.annotate("demo-0", keep_snapshot_on_delete="true")
    fleet.delete("demo-0")
    assert base in fleet.agent.snapshots("n1")
    fleet.boot("demo-0")
    assert base not in fleet.agent.snapshots("n1")
    fleet.boot("demo-4", fork_from=fleet.vm("demo-0"))
    assert len(fleet.engine("save", "demo-0")) == 2


@pytest.mark.scenario("N039")
def test_a_fork_base_survives_a_verified_wake(fleet: Fleet) -> None:
    fleet.boot("demo-0")
    fleet.boot("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.hibernate("demo-0")
    fleet.wake("demo-0")
    assert f"fork-{fleet.vm('demo-0')}" in fleet.agent.snapshots("n1")


@pytest.mark.scenario("N040")
def test_a_fork_without_a_source_fails(fleet: Fleet) -> None:
    fleet.begin("demo-1", fork_from=fleet.vm("demo-0"))
    fleet.until_event("demo-1", "CreateBringUpFailed")
    assert fleet.find_vm("demo-1") is None


@pytest.mark.scenario("N041", "N043", "N054", "N172")
def test_a_static_toolbox_is_only_reported(fleet: Fleet) -> None:
    own = {"managed": None, "mode": "static", "id": "foreign-7", "ip": "192.0.2.7", "vnc_port": "5901"}
    pod = fleet.boot("demo-desk", snapshot_policy="always", **own)
    assert ready(pod)
    assert pod["status"]["podIP"] == "192.0.2.7"
    since = fleet.agent.mark()
    fleet.annotate("demo-desk", hibernate="true")
    fleet.settle()
    assert fleet.writes("demo-desk", since) == []
    pod = fleet.the_pod("demo-desk")
    assert (note(pod, ID), note(pod, IP), note(pod, f"{VM}vnc-port")) == ("foreign-7", "192.0.2.7", "5901")
    fleet.delete("demo-desk")
    touched = [each for each in fleet.journal() if each["kind"] in {"engine", "registry"}]
    assert not any(fleet.full("demo-desk") in str(each) for each in touched)


@pytest.mark.scenario("N042")
@pytest.mark.parametrize("missing", ["id", "ip"])
def test_a_static_toolbox_without_id_or_address_fails(fleet: Fleet, missing: str) -> None:
    own: dict[str, str | None] = {"managed": None, "id": "foreign-7", "ip": "192.0.2.7"}
    fleet.begin("demo-desk", **{**own, missing: None})
    fleet.until_event("demo-desk", "CreateBringUpFailed")


@pytest.mark.scenario("N044")
def test_clone_from_a_directory_takes_a_clean_absolute_path_alone(fleet: Fleet) -> None:
    fleet.boot("demo-0", clone_from_dir="/srv/vm")
    bad: list[dict[str, str | None]] = [
        {"clone_from_dir": "srv/vm"},
        {"clone_from_dir": "/srv/../vm"},
        {"clone_from_dir": "/srv/vm", "mode": "run"},
        {"clone_from_dir": "/srv/vm", "fork_from": fleet.vm("demo-0")},
    ]
    for number, changes in enumerate(bad, start=1):
        fleet.begin(f"demo-{number}", **changes)
    for number in range(1, len(bad) + 1):
        fleet.until_event(f"demo-{number}", "CreateBringUpFailed")
        assert fleet.find_vm(f"demo-{number}") is None


def leave_saved(fleet: Fleet, name: str, **changes: str | None) -> None:
    """Hibernate a VM and let its pod and its local copy go: only the tag is left."""
    fleet.boot(name, **changes)
    fleet.work(name, "precious")
    fleet.hibernate(name)
    fleet.delete(name)


@pytest.mark.scenario("N046", "N109")
def test_a_restore_without_a_tag_never_boots_fresh(fleet: Fleet) -> None:
    fleet.begin("demo-0", restore_from_hibernate="true")
    pod = fleet.until_state("demo-0", "failed")
    assert note(pod, ID) == ""
    assert fleet.engine("boot", "demo-0") == []


@pytest.mark.scenario("N047")
def test_a_leftover_tag_is_evidence_and_restores(fleet: Fleet) -> None:
    leave_saved(fleet, "demo-0")
    pod = fleet.boot("demo-0")
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]
    assert f"{VM}restore-from-hibernate" not in pod["metadata"]["annotations"]
    fleet.until_event("demo-0", "HibernateSnapshotExists")
    assert fleet.has_tag("demo-0")


@pytest.mark.scenario("N048", "N050")
def test_evidence_that_contradicts_the_pod_refuses_the_boot(fleet: Fleet) -> None:
    other = f"other/{fleet.prefix}"
    fleet.agent.publish_image(other)
    leave_saved(fleet, "demo-0")
    fleet.boot("demo-1")
    for changes in ({"image": other}, {"fork_from": fleet.vm("demo-1")}):
        fleet.begin("demo-0", **changes)
        fleet.until_state("demo-0", "failed")
        fleet.until_event("demo-0", "HibernateEvidenceFailed")
        assert fleet.find_vm("demo-0") is None
        assert fleet.has_tag("demo-0")
        fleet.delete("demo-0")


@pytest.mark.scenario("N049")
def test_a_legacy_manifest_without_a_base_image_restores(fleet: Fleet) -> None:
    leave_saved(fleet, "demo-0")
    manifest = fleet.the_manifest("demo-0")
    del manifest["annotations"]["cocoonstack.snapshot.baseimage"]
    fleet.put_manifest(fleet.vm("demo-0"), "hibernate", manifest)
    other = f"other/{fleet.prefix}"
    fleet.agent.publish_image(other)
    fleet.boot("demo-0", image=other)
    assert fleet.the_vm("demo-0")["memory"]["work"] == ["precious"]


@pytest.mark.scenario("N051")
def test_no_answer_about_evidence_is_no_boot(fleet: Fleet) -> None:
    fault = fleet.agent.fault("n1", "registry.get.manifest", message="503")
    fleet.begin("demo-0")
    fleet.until_state("demo-0", "failed")
    fleet.until_event("demo-0", "HibernateEvidenceUnavailable", "HibernateEvidenceFailed")
    assert fleet.engine("boot", "demo-0") == []
    fleet.agent.clear("n1", fault)
    fleet.until_state("demo-0", "ready")
    assert fleet.the_vm("demo-0")["restored_from"] == ""


@pytest.mark.scenario("N053", "N173")
def test_a_namesake_gets_its_own_create_and_no_writes_of_its_predecessor(fleet: Fleet) -> None:
    first = str(fleet.boot("demo-0")["metadata"]["uid"])
    fleet.agent.pause_informer("n1", paused=True)
    fleet.ask_delete("demo-0", force=True)
    second = fleet.begin("demo-0")
    fleet.agent.pause_informer("n1", paused=False)
    pod = fleet.until_state("demo-0", "ready")
    assert pod["metadata"]["uid"] == second
    assert {each["uid"] for each in fleet.writes("demo-0")} == {first, second}
    later = [each for each in fleet.writes("demo-0") if each["uid"] == second]
    assert lifecycle_of(later) == ["creating", "ready"]


@pytest.mark.scenario("N197")
def test_a_pod_without_a_stamp_is_observed_as_generation_zero(fleet: Fleet) -> None:
    pod = fleet.boot("demo-0", generation=None)
    assert note(pod, OBSERVED) == "0"
    assert f"{SET}generation" not in pod["metadata"]["annotations"]
