"""Whatever dies in the middle, operator, registry, API server or node agent: the VM's work is there at the end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from nodes import NODES
from seat import Seat, Surroundings
from stalledsave import StalledSave
from tollgate import Tollgate

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import API_SERVER, ControlPlane
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys

POLICIES: Final = ("retain", "release")


@pytest.fixture(scope="module")
def gate(operator_kubeconfig: Path) -> Iterator[Tollgate]:
    """What stands between this module's operator and the API server."""
    with Scratch("tollgate") as scratch, Tollgate(operator_kubeconfig, scratch.path) as gate:
        yield gate


@pytest.fixture(scope="module")
def operator(gate: Tollgate, surroundings: Surroundings, snapshots: str) -> Iterator[OperatorProcess]:
    """An operator without a Lease: its successor need not wait for the Lease of a dead one to run out."""
    assert surroundings.registry.running
    with Scratch("mortal") as scratch:
        options = OperatorOptions(snapshots, leader_elect=False)
        with OperatorProcess(gate.kubeconfig, scratch.path, options, name="mortal") as process:
            yield process


@pytest.fixture(scope="module", autouse=True)
def begin_stalled(stalled: StalledSave, operator: OperatorProcess) -> None:
    """What takes two minutes begins here; test_operator_stalled.py sees its end."""
    assert operator.running
    stalled.begin()


# -- the operator ------------------------------------------------------------------------------------------------------


@contextmanager
def dies_at(writes: Mapping[str, int], seat: Seat, operator: OperatorProcess, gate: Tollgate) -> Iterator[None]:
    """The operator dies with the n-th write of each of these sets carried out and not answered. Another one starts."""
    record = operator.process.record
    gate.demand(writes, seat.namespace, lambda: record.signal(signal.SIGKILL))
    yield
    assert gate.paid.wait(20), f"not all of {writes} were seen: {gate.left}"
    operator.kill()
    operator.start(wait=False)


def awake(seat: Seat) -> None:
    """It runs with everything that was ever written, and nothing of the sleep is left."""
    seat.until_running()
    seat.check_memory()
    assert keys.TAG_HIBERNATE not in seat.tags()
    assert seat.note(keys.HINT_NODE) is None
    assert seat.note(keys.SNAPSHOT_DIGESTS) is None


def asleep(seat: Seat, policy: str) -> None:
    seat.until_suspended()
    if policy == "release":
        seat.until_no_pod()
    assert seat.homes() == []
    assert seat.saved_work() == seat.written


LIVES: Final = (("a", "retain"), ("b", "retain"), ("c", "release"), ("d", "release"))
DEATHS: Final = (
    ("create", (1, 2, 3, 4)),
    ("suspend", (1, 2, 3, 4)),
    ("wake", (1, 2, 1, 2)),
    ("suspend", (3, 2, 5, 6)),
    ("wake", (3, 1, 3, 4)),
    ("delete", (1, 2, 1, 2)),
)
"""At which write of each of the four sets the operator dies: together every write of every transition."""


@pytest.mark.scenario("S108", "S142", "S148", "S153", "S155", "S161", "S163", "S165", "S182", "S183", "S192", "S256")
def test_killed_at_every_write_of_a_life(seat: Seat, operator: OperatorProcess, gate: Tollgate) -> None:
    seats = {name: (seat.neighbour(name), policy) for name, policy in LIVES}
    for transition, points in DEATHS:
        with dies_at(dict(zip(seats, points, strict=True)), seat, operator, gate):
            for each, policy in seats.values():
                BEGIN[transition](each, policy)
        for each, policy in seats.values():
            END[transition](each, policy)


def _awake_and_at_work(seat: Seat, policy: str) -> None:
    awake(seat)
    seat.work(f"line {len(seat.written)} under {policy}")


def _gone(seat: Seat, _: str) -> None:
    seat.until_gone()
    assert seat.tags() == {keys.TAG_LATEST}
    assert seat.saved_work(keys.TAG_LATEST) == seat.written


Act: TypeAlias = Callable[[Seat, str], None]
BEGIN: Final[dict[str, Act]] = {
    "create": lambda seat, policy: seat.create(hibernatePolicy=policy),
    "suspend": lambda seat, _: seat.edit(suspend=True),
    "wake": lambda seat, _: seat.edit(suspend=False),
    "delete": lambda seat, _: seat.delete(),
}
END: Final[dict[str, Act]] = {
    "create": _awake_and_at_work,
    "suspend": asleep,
    "wake": _awake_and_at_work,
    "delete": _gone,
}


@pytest.mark.scenario("S103", "S107", "S114")
def test_a_crash_changes_nothing_about_sets_at_rest(seat: Seat, operator: OperatorProcess) -> None:
    other, released = seat.neighbour("other"), seat.neighbour("released")
    for each, policy in ((seat, "retain"), (other, "retain"), (released, "release")):
        each.up(hibernatePolicy=policy)
    other.suspend()
    released.suspend()
    released.until_no_pod()
    seat.rest()
    mark = seat.audit.mark()
    operator.crash()
    seat.rest()
    assert seat.audit.writes(mark, namespace=seat.namespace, resources=("cocoonsets", "pods", "events")) == []
    seat.check_memory()
    for each in (other, released):
        assert each.saved_work() == each.written


# -- the registry ------------------------------------------------------------------------------------------------------


@contextmanager
def without_registry(seat: Seat) -> Iterator[None]:
    seat.registry.stop()
    try:
        yield
    finally:
        seat.registry.start()


@pytest.mark.scenario("S138", "S139", "S147", "S148")
def test_without_a_registry_nothing_falls_asleep(seat: Seat, operator: OperatorProcess) -> None:
    """The agent cannot save: the VMs live on, and so does the work that goes on in them."""
    seats = {name: seat.neighbour(name) for name in ("retain", "release", "called-off")}
    for name, each in seats.items():
        each.up(hibernatePolicy="release" if name == "release" else "retain")
    with without_registry(seat):
        for each in seats.values():
            each.edit(suspend=True)
        for each in seats.values():
            each.until_condition("Ready", "HibernateFailed")
            each.work("while the registry is down")
        seats["called-off"].edit(suspend=False)
        seats["called-off"].until_lifecycle("ready")
        operator.crash()
        seat.settle(1.0)
        for each in seats.values():
            each.check_memory()
        for name in POLICIES:
            assert seats[name].phase == "Suspending"
            assert seats[name].condition("SnapshotCurrent")["reason"] == "Saving"
    awake(seats["called-off"])
    for name in POLICIES:
        asleep(seats[name], name)
        seats[name].wake()
        awake(seats[name])


@pytest.mark.scenario("S132", "S138", "S142", "S169")
def test_without_a_registry_nothing_wakes(seat: Seat, operator: OperatorProcess) -> None:
    """Nobody can say what the VMs would have to be made from: neither pods nor flags are touched (I6)."""
    seats = {name: seat.neighbour(name) for name in ("retain", "release", "called-off")}
    for name, each in seats.items():
        each.up(hibernatePolicy="retain" if name == "retain" else "release")
        each.suspend()
    for name in ("release", "called-off"):
        seats[name].until_no_pod()
    with without_registry(seat):
        for each in seats.values():
            each.edit(suspend=False)
        for each in seats.values():
            assert each.until_condition("Ready", "RegistryUnreachable")["status"] == "Unknown"
        seats["called-off"].edit(suspend=True)
        operator.crash()
        seat.settle(1.0)
        assert seats["retain"].pod()["metadata"]["annotations"][keys.HIBERNATE] == "true"
        assert [seats[name].find_pod() for name in ("release", "called-off")] == [None, None]
    asleep(seats["called-off"], "release")
    for name in POLICIES:
        awake(seats[name])


@pytest.mark.scenario("S170", "S181")
def test_a_tag_that_cannot_be_dropped_is_owed_and_no_sleep_begins_before(seat: Seat, operator: OperatorProcess) -> None:
    """Otherwise the drop, carried out late, would take the next save away."""
    seat.up(hibernatePolicy="release")
    seat.suspend()
    with seat.barrier("lifecycle.ready") as held:
        seat.edit(suspend=False)
        held()
        seat.registry.stop()
    seat.until_phase("Running")
    owed = seat.until_condition("SnapshotCurrent", "TagDropPending")
    assert owed["message"].startswith(f"{seat.vm}: ")
    assert seat.note(keys.HINT_NODE) is None
    seat.work("second")
    seat.edit(suspend=True)
    seat.until_observed()
    operator.crash()
    seat.settle(1.0)
    assert keys.HIBERNATE not in seat.pod()["metadata"]["annotations"]
    seat.check_memory()
    seat.registry.start()
    asleep(seat, "release")
    assert seat.until_event("TagDropPending")["type"] == "Warning"
    seat.wake()
    awake(seat)


@pytest.mark.scenario("S119")
def test_a_registry_that_hangs_holds_up_only_those_who_ask_it(seat: Seat) -> None:
    asking, going = seat.neighbour("asking"), seat.neighbour("going")
    going.up()
    asking.up(hibernatePolicy="release")
    asking.suspend()
    asking.until_no_pod()
    log = seat.registry.mark()
    seat.registry.process.pause()
    try:
        asking.edit(suspend=False)
        asking.settle()
        going.edit(agent={"connType": "vnc"})
        going.until_running()
        assert asking.status["observedGeneration"] < asking.get()["metadata"]["generation"], "it was not asking"
    finally:
        seat.registry.process.resume()
    awake(asking)
    assert asking.asked(log)[0] == "GET hibernate"


# -- the API server ----------------------------------------------------------------------------------------------------


@contextmanager
def without_api_server(cluster: Cluster) -> Iterator[None]:
    assert isinstance(cluster, ControlPlane), "only the local control plane can be stopped in parts"
    cluster.kill_component(API_SERVER)
    yield
    cluster.start_component(API_SERVER)


@pytest.mark.scenario("S155", "S166")
def test_the_api_server_dies_in_the_middle_of_a_release_and_of_a_wake(seat: Seat, cluster: Cluster) -> None:
    waking, booting = seat.neighbour("waking"), seat.neighbour("booting")
    for each in (seat, waking):
        each.up(hibernatePolicy="release")
    waking.suspend()
    with (
        seat.barrier("push.manifest") as saves,
        waking.barrier("vm.boot") as wakes,
        booting.barrier("vm.boot") as boots,
    ):
        seat.edit(suspend=True)
        waking.edit(suspend=False)
        booting.create()
        for held in (saves, wakes, boots):
            held()
        with without_api_server(cluster):
            for node in NODES:
                seat.agent.clear(node)
            seat.settle(1.0)
    asleep(seat, "release")
    awake(waking)
    booting.until_running()


# -- the node agent ----------------------------------------------------------------------------------------------------


def _agent_dies_at(seat: Seat, point: str, begin: Callable[[], None]) -> None:
    """Kill the agent of the VM's node at a point, and start it again on what its disk and the API say."""
    with seat.barrier(point) as held:
        begin()
        held()
        (node,) = [each for each in NODES if any(fault["waiting"] for fault in seat.agent.faults(each))]
        seat.agent.kill_node(node)
    seat.agent.start_node(node)


@pytest.mark.scenario("S139", "S142")
@pytest.mark.parametrize(
    ("point", "policy"), [("snapshot.save", "retain"), ("push.manifest", "release"), ("vm.remove", "retain")]
)
def test_the_agent_dies_in_the_middle_of_a_save(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    _agent_dies_at(seat, point, lambda: seat.edit(suspend=True))
    asleep(seat, policy)
    seat.wake()
    awake(seat)


@pytest.mark.scenario("S170", "S176")
@pytest.mark.parametrize(
    ("point", "policy"), [("vm.boot", "retain"), ("vm.boot", "release"), ("lifecycle.ready", "release")]
)
def test_the_agent_dies_in_the_middle_of_a_wake(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    seat.until(lambda: (seat.find_pod() is None) == (policy == "release"), "the seat is settled")
    _agent_dies_at(seat, point, lambda: seat.edit(suspend=False))
    awake(seat)
