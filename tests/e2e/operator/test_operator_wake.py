"""Where and from what a VM wakes: near its cache, elsewhere, not yet, after a failure; and when its tag goes."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hold import Hold
from nodes import NODES
from seat import OTHER_IMAGE, Seat

from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys

_MERGE = "application/merge-patch+json"
WAKES = "cocoon_operator_slot_release_wake_total"
UNSCHEDULABLE = "cocoon_operator_slot_release_wake_unschedulable_total"


@contextmanager
def cordoned(seat: Seat, *nodes: str) -> Iterator[None]:
    """Nodes on which nothing new is scheduled until the end of the block."""
    for node in nodes:
        seat.api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, _MERGE)
    try:
        yield
    finally:
        for node in nodes:
            seat.api.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, _MERGE)


def released(seat: Seat, **spec: object) -> str:
    """A seat that worked and was released; returns the node that keeps its cache."""
    seat.up(hibernatePolicy="release", **spec)
    home = seat.node
    seat.suspend()
    seat.until_no_pod()
    assert seat.cached_on() == [home]
    assert seat.note(keys.HINT_NODE) == home
    return home


def other_than(node: str) -> str:
    (other,) = {*NODES} - {node}
    return other


def affinity(seat: Seat) -> Obj:
    return dict((seat.pod()["spec"].get("affinity") or {}).get("nodeAffinity") or {})


def in_hostname(node: str) -> Obj:
    return {"matchExpressions": [{"key": keys.NODE_HOSTNAME, "operator": "In", "values": [node]}]}


def counted(operator: OperatorProcess, series: str, seat: Seat, **labels: str) -> int:
    """A counter of a set; 0 when it has none yet."""
    with urllib.request.urlopen(operator.metrics_url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [f'namespace="{seat.namespace}"', *(f'{key}="{value}"' for key, value in labels.items())]
    return sum(
        int(float(line.split()[-1]))
        for line in lines
        if line.startswith(series + "{") and all(each in line for each in wanted)
    )


def pulls(seat: Seat, mark: int, layers: set[str]) -> set[str]:
    """Which of these layers an agent downloaded since a mark of the registry's log."""
    read = {request.path.rpartition("/")[2] for request in seat.registry.requests(mark) if request.method == "GET"}
    return layers & read


# -- where -------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S054", "S149", "S151", "S153", "S157", "S159", "S172", "S179", "S184")
def test_a_wake_on_the_node_of_its_cache_pulls_nothing(seat: Seat, operator: OperatorProcess) -> None:
    mark = seat.audit.mark()
    home = released(seat)
    writes = seat.audit.write_requests(mark, namespace=seat.namespace)
    (deleted,) = [index for index, each in enumerate(writes) if each.verb == "delete"]
    assert writes[deleted - 1].request_object["metadata"]["annotations"] == {keys.KEEP_SNAPSHOT: "true"}
    noted = writes[deleted - 2].request_object["metadata"]["annotations"]
    assert set(noted) == {keys.HINT_NODE, keys.SNAPSHOT_DIGESTS}
    digest, layers, log = seat.tag(), seat.layers(), seat.registry.mark()
    assert digest in noted[keys.SNAPSHOT_DIGESTS]

    with seat.barrier("vm.boot") as held:
        seat.edit(suspend=False, hibernatePolicy="retain")
        held()
        assert seat.phase == "Waking"
        assert seat.tag() == digest
        assert seat.pod()["metadata"]["annotations"][keys.RESTORE] == "true"
        preferred = [{"weight": 100, "preference": in_hostname(home)}]
        assert affinity(seat) == {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    seat.until_running()
    seat.check_memory()
    vm = seat.the_vm()
    assert (seat.node, vm["restored_via"], vm["restored_digest"]) == (home, "local", digest)
    assert pulls(seat, log, layers) == set()
    assert seat.note(keys.HINT_NODE) is None
    assert counted(operator, WAKES, seat, placement="hint-node") == 1
    assert counted(operator, WAKES, seat) == 1
    assert counted(operator, "cocoon_operator_slot_release_pods_deleted_total", seat) == 1


@pytest.mark.scenario("S180")
def test_a_wake_elsewhere_pulls(seat: Seat, operator: OperatorProcess) -> None:
    home = released(seat)
    layers, log = seat.layers(), seat.registry.mark()
    with cordoned(seat, home):
        seat.wake()
    seat.check_memory()
    assert (seat.node, seat.the_vm()["restored_via"]) == (other_than(home), "pull")
    assert pulls(seat, log, layers) == layers
    assert counted(operator, WAKES, seat, placement="pool") == 1
    seat.work("second")
    seat.suspend()
    seat.until_no_pod()
    assert seat.note(keys.HINT_NODE) == other_than(home)
    seat.wake()
    seat.check_memory()


@pytest.mark.scenario("S170", "S171")
def test_a_wake_without_room_waits_for_it(seat: Seat, operator: OperatorProcess) -> None:
    released(seat)
    digest = seat.tag()
    with cordoned(seat, *NODES):
        seat.edit(suspend=False)
        ready = seat.until_condition("Ready", "WakeNoCapacity")
        assert ready["status"] == "False"
        assert "main pod demo-0 unschedulable: 0/" in ready["message"]
        seat.settle()
        assert seat.phase == "Waking"
        assert seat.tag() == digest
        assert seat.until_event("WakeNoCapacity")["message"] == ready["message"]
        assert counted(operator, UNSCHEDULABLE, seat) == 1
    seat.until_running()
    seat.check_memory()


@pytest.mark.scenario("S156", "S171", "S176")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_a_wake_without_room_can_be_called_off(seat: Seat, policy: str) -> None:
    home = released(seat)
    digest = seat.tag()
    with cordoned(seat, *NODES):
        seat.edit(suspend=False)
        seat.until_condition("Ready", "WakeNoCapacity")
        seat.edit(suspend=True, hibernatePolicy=policy)
        if policy == "release":
            seat.until_suspended()
            seat.until_no_pod()
            assert seat.note(keys.HINT_NODE) == home
        else:
            seat.until_observed()
            assert seat.phase == "Suspending"
        assert seat.tag() == digest
    seat.until_suspended()
    assert seat.saved_work() == seat.written
    seat.wake()
    seat.check_memory()


@pytest.mark.scenario("S058", "S059", "S160", "S217")
def test_a_pinned_set_wakes_where_it_is_pinned_to(seat: Seat) -> None:
    home = released(seat)
    assert affinity(seat.neighbour_up("plain")) == {}
    pin = other_than(home)
    seat.edit(nodeName=pin)
    seat.wake()
    seat.check_memory()
    assert seat.node == pin
    required = {"nodeSelectorTerms": [in_hostname(pin)]}
    assert affinity(seat) == {"requiredDuringSchedulingIgnoredDuringExecution": required}


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S170")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_a_failed_wake_is_the_agents_to_try_again(seat: Seat, policy: str) -> None:
    """W-62: there is no VM, but its state is safe; the pod is not made again, the set has not failed."""
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    digest = seat.tag()
    with seat.fault("vm.boot", "no room in the inn"):
        seat.edit(suspend=False)
        seat.until_event_seen("WakeFailed")
        uid = seat.pod()["metadata"]["uid"]
        seat.settle(2.0)
        assert seat.phase == {"retain": "Pending", "release": "Waking"}[policy]
        assert seat.tag() == digest
    seat.until_running()
    seat.check_memory()
    assert seat.pod()["metadata"]["uid"] == uid
    assert "no room in the inn; the node agent retries" in seat.until_event("WakeFailed")["message"]


@pytest.mark.scenario("S174", "S187")
def test_w02_a_pod_deleted_after_a_failed_wake_is_restored_all_the_same(seat: Seat) -> None:
    released(seat)
    with seat.fault("vm.boot", "no room in the inn"):
        seat.edit(suspend=False)
        seat.until_event_seen("WakeFailed")
        uid = seat.pod()["metadata"]["uid"]
        seat.delete_pod()
        seat.until_another_pod(uid)
    seat.until_running()
    seat.check_memory()


# -- the tag -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S172", "S192", "S193")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_w58_a_vm_that_is_there_but_not_ready_keeps_its_tag(seat: Seat, policy: str) -> None:
    """It has an id and a running container, which is not enough: its agent has not said ``ready``."""
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    digest = seat.tag()
    with seat.barrier("lifecycle.ready") as held:
        seat.edit(suspend=False)
        held()
        seat.until(lambda: keys.VM_ID in seat.pod()["metadata"]["annotations"], "the VM has an id")
        seat.work("while it gets ready")
        mark, log = seat.audit.mark(), seat.registry.mark()
        seat.settle()
        assert seat.tag() == digest
        assert seat.asked(log) == []
    seat.until_running()
    assert seat.tag() is None
    looked = [
        each.object_ref.name for each in seat.audit.requests(mark, namespace=seat.namespace) if each.verb == "get"
    ]
    assert looked == ["demo-0"], "one live look before the tag goes"
    seat.check_memory()


# -- what was edited meanwhile -----------------------------------------------------------------------------------------


@pytest.mark.scenario("S186")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_resized_while_it_sleeps_it_wakes_with_its_memory(seat: Seat, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    seat.edit(suspend=False, agent={"network": "other", "resources": {"limits": {"cpu": "2", "memory": "2Gi"}}})
    seat.until_running()
    seat.check_memory()
    assert seat.pod()["metadata"]["annotations"][keys.NETWORK] == "other"
    assert seat.pod()["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}
    assert seat.tags() == set()


@pytest.mark.scenario("S143", "S185", "S248")
def test_a_sleeping_pod_that_vanished_is_made_at_the_wake(seat: Seat) -> None:
    """Nothing is booted only to be put to sleep again: the one good snapshot is not risked."""
    seat.up()
    seat.suspend()
    digest, mark = seat.tag(), seat.audit.mark()
    seat.delete_pod()
    seat.until_no_pod()
    seat.settle(1.0)
    assert seat.phase == "Suspended"
    assert [line for line in seat.writes(mark) if "status" not in line] == []
    seat.edit(suspend=False)
    seat.until_running()
    assert seat.the_vm()["restored_digest"] == digest
    seat.check_memory()


@pytest.mark.scenario("S190", "S249")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_w03_a_vm_held_by_a_hibernation_loses_nothing(seat: Seat, policy: str) -> None:
    """Not by being woken, not by an edit of its image, and not by the end of the hold."""
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    seat.until(lambda: (seat.find_pod() is None) == (policy == "release"), "the seat is settled")
    digest = seat.tag()
    hold = Hold(seat)
    hold.create()
    hold.until_phase("Hibernated")
    seat.edit(suspend=False)
    assert "held" in seat.until_condition("Ready", "HeldByHibernation")["message"]
    seat.edit(agent={"network": "other"})
    seat.until_observed()
    seat.settle()
    assert seat.homes() == []
    assert (seat.find_pod() is None) == (policy == "release")
    assert seat.tag() == digest
    hold.delete()
    seat.until_running()
    seat.check_memory()


@pytest.mark.scenario("S186")
def test_w13_old_memory_does_not_come_up_under_another_image(seat: Seat) -> None:
    """Of a released seat: there is no pod that could tell; the snapshot itself does."""
    released(seat)
    seat.edit(suspend=False, agent={"image": OTHER_IMAGE})
    seat.until_running()
    assert seat.orphaned_work() == seat.written
    vm = seat.the_vm()
    assert (vm["image"], vm["memory"]["work"]) == (OTHER_IMAGE, [])
    assert "boots fresh" in seat.until_event("SnapshotMovedAside")["message"]
