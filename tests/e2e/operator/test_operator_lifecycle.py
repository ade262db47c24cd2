"""A main agent's plain life: what a new set looks like to everybody, what edits of a running VM cost, and how failures end."""

from __future__ import annotations

import time
import urllib.request

import pytest
from nodes import IMAGE
from seat import OTHER_IMAGE, REST, Seat, note

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys

_MERGE = "application/merge-patch+json"
FAILED_LIFECYCLES = "cocoon_operator_lifecycle_state_failed_observed_total"


@pytest.mark.scenario("S015", "S016", "S045", "S047", "S051", "S052", "S055", "S056", "S057", "S062", "S065")
@pytest.mark.scenario("S094", "S098", "S099", "S101", "S104", "S261")
def test_a_new_set_as_everybody_sees_it(seat: Seat, cluster: Cluster) -> None:
    seat.create(agent={"storage": "1024Gi", "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}})
    seat.until_running()
    target = seat.get()
    assert target["metadata"]["generation"] == 1
    assert target["metadata"]["finalizers"] == [keys.SET_FINALIZER]
    assert target["metadata"]["annotations"] == {keys.DELETE_VM_NAMES: seat.vm}
    assert target["spec"]["agent"] == {
        "backend": "cloud-hypervisor",
        "image": IMAGE,
        "mode": "clone",
        "os": "linux",
        "replicas": 0,
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}},
        "storage": "1024Gi",
    }

    vm, pod = seat.the_vm(), seat.pod()
    seat.until(lambda: bool(seat.status["agents"][0].get("ip")), "the status has caught up")
    status = seat.status
    conditions = {each["type"]: each for each in status.pop("conditions")}
    assert status == {
        "observedGeneration": 1,
        "phase": "Running",
        "readyAgents": 1,
        "desiredAgents": 1,
        "readyToolboxes": 0,
        "desiredToolboxes": 0,
        "agents": [
            {
                "slot": 0,
                "role": "main",
                "podName": "demo-0",
                "vmName": seat.vm,
                "vmID": vm["id"],
                "ip": vm["ip"],
                "phase": "Running",
            }
        ],
    }
    told = {kind: (each["status"], each["reason"], each["message"]) for kind, each in conditions.items()}
    assert told == {
        "Ready": ("True", "AllAgentsReady", "1/1 agents ready, 0/0 toolboxes ready"),
        "Progressing": ("False", "Stable", "Running"),
        "SnapshotCurrent": ("True", "NoSnapshot", ""),
    }
    assert {each["observedGeneration"] for each in conditions.values()} == {1}
    assert seat.events() == []
    _is_the_pod_of(seat, pod)

    header, row = (line.split() for line in _kubectl_get(cluster, seat))
    assert header == ["NAME", "PHASE", "READY", "DESIRED", "AGE"]
    assert row[:4] == ["demo", "Running", "1", "1"]


def _kubectl_get(cluster: Cluster, seat: Seat) -> list[str]:
    return cluster.kubectl("get", "cset", "demo", "--namespace", seat.namespace).stdout.strip().splitlines()


def _is_the_pod_of(seat: Seat, pod: Obj) -> None:
    """What the API server made of the template of contract 3.2."""
    labels = {keys.LABEL_SET: "demo", keys.LABEL_ROLE: "main", keys.LABEL_SLOT: "0", "app.kubernetes.io/name": "demo"}
    assert pod["metadata"]["labels"] == labels
    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": keys.API_VERSION,
        "kind": "CocoonSet",
        "name": "demo",
        "uid": seat.get()["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    notes = pod["metadata"]["annotations"]
    assert (notes[keys.GENERATION], notes[keys.VM_NAME], notes[keys.STORAGE]) == ("1", seat.vm, "1Ti")
    assert (notes[keys.MODE], notes[keys.OS], notes[keys.MANAGED]) == ("clone", "linux", "true")
    assert pod["spec"]["nodeSelector"] == {keys.NODE_POOL: "default"}
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1
    (container,) = pod["spec"]["containers"]
    wanted = {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "1Ti"}
    assert container["resources"] == {"limits": wanted, "requests": wanted}
    tolerations = [
        {key: value for key, value in each.items() if key != "operator"} for each in pod["spec"]["tolerations"]
    ]
    assert {"key": "virtual-kubelet.io/provider"} in tolerations
    for taint in ("not-ready", "unreachable"):
        assert {"key": f"node.kubernetes.io/{taint}", "effect": "NoExecute"} in tolerations


@pytest.mark.scenario("S102")
def test_a_condition_of_somebody_else_stays(seat: Seat) -> None:
    seat.up()
    foreign = {
        "type": "example.com/Audited",
        "status": "True",
        "reason": "Seen",
        "message": "by somebody else",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    conditions = [*seat.status["conditions"], foreign]
    seat.api.call("PATCH", f"{seat.path}/status", {"status": {"conditions": conditions}}, _MERGE)
    seat.suspend()
    seat.wake()
    assert seat.condition("example.com/Audited") == foreign
    seat.check_memory()


# -- edits of a running VM -----------------------------------------------------------------------------------------


@pytest.mark.scenario("S077", "S084", "S085")
def test_what_the_agent_reads_later_is_patched_and_what_it_never_reads_is_not(seat: Seat) -> None:
    seat.up()
    seat.rest()
    before, mark = seat.the_vm()["id"], seat.audit.mark()
    seat.edit(snapshotPolicy="never", agent={"connType": "vnc", "forcePull": True})
    seat.until_running()
    notes = seat.pod()["metadata"]["annotations"]
    assert (notes[keys.SNAPSHOT_POLICY], notes[keys.CONN_TYPE], notes[keys.FORCE_PULL]) == ("never", "vnc", "true")
    seat.edit(nodeName=seat.node, hibernatePolicy="release")
    seat.until_running()
    seat.rest()
    assert seat.writes(mark) == ["patch pods demo-0", "patch cocoonsets/status demo"] * 2
    assert seat.the_vm()["id"] == before
    seat.check_memory()


@pytest.mark.scenario("S067", "S092", "S112", "S116")
def test_another_image_is_another_machine(seat: Seat) -> None:
    seat.up()
    old, mark = seat.pod()["metadata"]["uid"], seat.audit.mark()
    seat.edit(agent={"image": OTHER_IMAGE})
    seat.until_running()
    assert seat.pod()["metadata"]["uid"] != old
    vm = seat.the_vm()
    assert (vm["image"], vm["memory"]["work"]) == (OTHER_IMAGE, [])
    writes = [line for line in seat.writes(mark) if "status" not in line]
    assert writes == ["delete pods demo-0", "create pods demo-0"]


@pytest.mark.scenario("S069", "S079", "S080", "S082", "S083")
def test_w10_what_the_api_server_fills_in_is_no_edit(seat: Seat) -> None:
    """A request of one resource and a limit of two; a namespace with limits of its own; then a real edit of each."""
    limits = {"type": "Container", "default": {"cpu": "3", "memory": "5Gi"}, "defaultRequest": {"cpu": "1"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "odd"}, "spec": {"limits": [limits]}}
    seat.api.call("POST", f"/api/v1/namespaces/{seat.namespace}/limitranges", body)
    plain = seat.neighbour("plain")
    mark = seat.audit.mark()
    seat.create(agent={"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "4Gi"}}})
    plain.create()
    for each in (seat, plain):
        each.until_running()
    seat.rest()
    for each in (seat, plain):
        assert [line for line in each.writes(mark) if line.split()[0] in ("create", "delete")] == [
            f"create pods {each.pod_name}"
        ]
    assert plain.pod()["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "3", "the LimitRange had no effect"
    for each in (seat, plain):
        old = each.pod()["metadata"]["uid"]
        each.edit(agent={"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "3Gi"}}})
        each.until_another_pod(old)
        each.until_running()


def test_a_live_snapshot_is_between_the_user_and_the_agent(seat: Seat) -> None:
    seat.up()
    seat.rest()
    mark = seat.audit.mark()
    seat.annotate_pod({keys.SNAPSHOT_REQUEST: "live/demo:one"})
    seat.until(lambda: note(seat.pod(), keys.SNAPSHOT_STATUS) is not None, "the agent has answered")
    answer = note(seat.pod(), keys.SNAPSHOT_STATUS)
    seat.rest()
    assert seat.writes(mark) == []
    seat.suspend()
    seat.wake()
    seat.check_memory()
    assert note(seat.pod(), keys.SNAPSHOT_REQUEST) == "live/demo:one"
    assert note(seat.pod(), keys.SNAPSHOT_STATUS) == answer


# -- failure ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S120", "S121", "S124", "S126", "S127", "S130")
def test_a_boot_that_fails_is_told_once_and_recovers_by_itself(seat: Seat, operator: OperatorProcess) -> None:
    before = _metric(operator, FAILED_LIFECYCLES)
    with seat.fault("vm.boot", "no room in the inn"):
        seat.create()
        seat.until_phase("Failed")
        uid = seat.pod()["metadata"]["uid"]
        told = f"main pod {seat.namespace}/demo-0: no room in the inn"
        assert seat.condition("Ready")["reason"] == "PodLifecycleFailed"
        assert seat.condition("Ready")["message"] == told
        assert seat.condition("Progressing")["status"] == "False"
        seat.settle(REST)
        assert seat.until_event("PodLifecycleFailed")["message"] == told
        assert _metric(operator, FAILED_LIFECYCLES) == before + 1
    seat.until_running()
    assert seat.until_event("RecoveredFromFailure")["type"] == "Normal"
    assert seat.pod()["metadata"]["uid"] == uid, "a failed main agent is not made again by itself"


@pytest.mark.scenario("S122", "S123")
def test_an_edit_makes_a_failed_main_agent_again(seat: Seat) -> None:
    seat.create(agent={"image": "not-published"})
    seat.until_phase("Failed")
    seat.edit(agent={"image": IMAGE})
    seat.until_running()
    seat.work("first")
    seat.check_memory()
    assert seat.events("RecoveredFromFailure") == [], "another pod is no recovery"


@pytest.mark.scenario("S106", "S120", "S125", "S126", "S127", "S128", "S130")
def test_a_pod_that_failed_is_parked_until_it_is_ready_again(seat: Seat, operator: OperatorProcess) -> None:
    seat.up()
    before = _metric(operator, FAILED_LIFECYCLES)
    old = seat.pod()["metadata"]["uid"]
    with seat.without_agent():
        seat.api.call("PATCH", f"{seat.pod_path}/status", {"status": {"phase": "Failed"}}, _MERGE)
        seat.until_phase("Failed")
        told = f"main pod {seat.namespace}/demo-0: Failed"
        ready = seat.condition("Ready")
        assert (ready["status"], ready["reason"], ready["message"]) == ("False", "MainAgentFailed", told)
        assert seat.until_event("MainAgentFailed")["message"] == told
        seat.edit(suspend=True)
        seat.until_observed()
        assert seat.phase == "Failed"
        assert keys.HIBERNATE not in seat.pod()["metadata"]["annotations"]
        seat.edit(suspend=False)
        seat.until_observed()
        seat.api.call("PATCH", f"{seat.pod_path}/status", {"status": {"phase": "Running"}}, _MERGE)
        seat.until_running()
        told = f"main pod {seat.namespace}/demo-0 is Ready again"
        assert seat.until_event("RecoveredFromFailure")["message"] == told
        assert seat.until_event("MainAgentFailed")
        assert _metric(operator, FAILED_LIFECYCLES) == before
        assert seat.pod()["metadata"]["uid"] == old
    seat.check_memory()


def _metric(operator: OperatorProcess, series: str) -> float:
    with urllib.request.urlopen(operator.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(series))


# -- born suspended --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S131", "S141", "S192")
def test_born_suspended_with_retain_it_boots_to_be_saved(seat: Seat) -> None:
    seat.create(suspend=True)
    phases = set()
    end = time.monotonic() + 20
    while "Suspended" not in phases:
        assert time.monotonic() < end, seat.describe()
        phases.add(seat.phase)
    assert phases <= {"", "Suspending", "Suspended"}
    seat.until_suspended()
    assert seat.homes() == []
    assert seat.saved_work() == []
    digest = seat.tag()
    assert seat.status["agents"][0]["snapshotDigest"] == digest
    seat.wake()
    assert seat.the_vm()["restored_digest"] == digest
    assert seat.tag() is None


@pytest.mark.scenario("S145", "S146", "S168")
def test_born_suspended_with_release_it_never_boots(seat: Seat) -> None:
    mark = seat.audit.mark()
    seat.create(suspend=True, hibernatePolicy="release")
    seat.until_phase("Suspended")
    assert seat.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
    seat.rest()
    assert seat.writes(mark) == ["patch cocoonsets demo", "patch cocoonsets/status demo"]
    seat.wake()
    vm = seat.the_vm()
    assert (vm["image"], vm.get("restored_from") or "") == (IMAGE, "")
