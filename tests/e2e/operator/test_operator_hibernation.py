"""CocoonHibernations on the real control plane: one VM of a set that runs sleeps and wakes, and nothing is lost (contract 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import RUN_BOX, Fleet
from hold import Hold
from nodes import IMAGE, NODES
from seat import Seat, note

from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.scratch import Scratch
from cocoon_operator.api import keys

LIMITS = {"HIBERNATE_TIMEOUT": "8s", "WAKE_TIMEOUT": "8s"}


@pytest.fixture(scope="module")
def operator(node_agent: AgentProcess, snapshots: str, operator_kubeconfig: Path) -> Iterator[OperatorProcess]:
    """The operator with limits that a test can wait for."""
    with Scratch("operator") as scratch:
        process = OperatorProcess(operator_kubeconfig, scratch.path, OperatorOptions(snapshots, settings=LIMITS))
        process.start()
        process.wait_leading()
        yield process
        process.stop()


@pytest.fixture
def hold(seat: Seat) -> Hold:
    return Hold(seat)


def writes(seat: Seat, mark: int) -> list[str]:
    """The operator's writes to both kinds and to pods."""
    kinds = (keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS, "pods")
    return seat.audit.writes(mark, namespace=seat.namespace, name=seat.name, resources=kinds)


@pytest.mark.scenario("S262", "S273", "S276", "S286", "S293")
def test_one_vm_sleeps_and_wakes(seat: Seat, hold: Hold) -> None:
    """Every write and every question to the registry, counted; each event once."""
    seat.up()
    seat.rest()
    mark, asked = seat.audit.mark(), seat.registry.mark()
    hold.create()
    hold.until_phase("Hibernated")
    seat.rest()
    assert seat.homes() == []
    assert seat.saved_work() == seat.written
    assert writes(seat, mark) == [
        "patch cocoonhibernations demo-0",
        "patch pods demo-0",
        "patch cocoonsets/status demo",
        "patch cocoonhibernations/status demo-0",
        "patch cocoonsets/status demo",
        "patch cocoonhibernations/status demo-0",
    ]
    assert seat.asked(asked) == ["HEAD hibernate"]
    assert seat.condition("Ready")["reason"] == "HeldByHibernation"
    assert seat.condition("Progressing")["status"] == "False"
    assert seat.condition("SnapshotCurrent")["reason"] == "KeptAsleep"
    mark, asked = seat.audit.mark(), seat.registry.mark()
    hold.ask("Wake")
    hold.until_phase("Active")
    seat.until_running()
    seat.rest()
    seat.check_memory()
    assert seat.tag() is None
    assert writes(seat, mark) == [
        "patch pods demo-0",
        "patch cocoonsets/status demo",
        "patch cocoonhibernations/status demo-0",
        "patch cocoonsets/status demo",
        "patch cocoonhibernations/status demo-0",
    ]
    assert seat.asked(asked) == ["HEAD hibernate", "DELETE hibernate"]
    hold.until_told("WokenActive")
    assert hold.told() == [
        f"Hibernated: snapshot {seat.vm} pushed to the registry",
        f"WokenActive: pod {seat.namespace}/demo-0 is running",
    ]


def test_one_sub_agent_and_one_toolbox_sleep_and_the_rest_works_on(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, 2, "db", agent={"replicas": 2}, toolboxes=[RUN_BOX])
    sub, box = fleet.member(1), fleet.member("db")
    holds = [Hold(sub), Hold(box)]
    for hold in holds:
        hold.create()
    for hold in holds:
        hold.until_phase("Hibernated")
    assert (sub.homes(), box.homes()) == ([], [])
    fleet.main.check_memory()
    fleet.member(2).check_memory()
    seat.suspend()
    fleet.check_saved()
    seat.edit(suspend=False)
    seat.until(lambda: fleet.member(2).lives and seat.condition("SnapshotCurrent").get("reason") == "KeptAsleep", "up")
    assert (sub.homes(), box.homes()) == ([], [])
    holds[0].delete()
    holds[1].ask("Wake")
    holds[0].until_gone()
    holds[1].until_phase("Active")
    fleet.settled()


@pytest.mark.scenario("S266")
def test_a_released_seat_stays_free_while_it_is_held(seat: Seat, hold: Hold) -> None:
    """W-28: a wake of the set waits for the CocoonHibernation, and boots nothing only to put it to sleep again."""
    seat.up(hibernatePolicy="release")
    hold.create()
    hold.until_phase("Hibernated")
    seat.suspend()
    seat.until_no_pod()
    seat.edit(suspend=False)
    seat.until_condition("Ready", "HeldByHibernation")
    seat.rest()
    assert (seat.find_pod(), hold.phase) == (None, "Hibernated")
    assert seat.saved_work() == seat.written
    hold.ask("Wake")
    hold.until_phase("Active")
    seat.until_running()
    seat.check_memory()
    assert seat.note(keys.HINT_NODE) is None


@pytest.mark.scenario("S279", "S282", "S298")
def test_a_save_that_is_not_confirmed_fails_in_time_and_is_taken_when_it_comes(seat: Seat, hold: Hold) -> None:
    seat.up()
    with seat.fault("push", "503 from the registry"):
        hold.create()
        hold.until_phase("Failed")
        assert hold.ready["message"] == "hibernate not confirmed within 8s"
        seat.check_memory()
    hold.until_phase("Hibernated")
    assert seat.saved_work() == seat.written
    hold.delete()
    hold.until_gone()
    seat.until_running()
    seat.check_memory()
    hold.until_told("HibernateTimedOut")


@pytest.mark.scenario("S288", "S298")
def test_a_wake_that_does_not_come_fails_in_time_and_is_taken_when_it_comes(seat: Seat, hold: Hold) -> None:
    seat.up()
    hold.create()
    hold.until_phase("Hibernated")
    with seat.fault("vm.boot", "no memory left"):
        hold.ask("Wake")
        hold.until_phase("Failed")
        assert hold.ready["message"] == "wake timed out after 8s; vk-cocoon never reported the container running"
        assert seat.tag() is not None
    hold.until_phase("Active")
    seat.until_running()
    seat.check_memory()
    hold.until_told("WakeTimedOut")


@pytest.mark.scenario("S299", "S306")
def test_deleting_it_in_the_middle_of_a_save_loses_nothing(seat: Seat, hold: Hold) -> None:
    """W-07: the save goes to its end, then the VM comes back from it; the object is gone long before."""
    seat.up()
    with seat.barrier("push") as held:
        hold.create()
        held()
        hold.delete()
        hold.until_gone()
        seat.until_condition("Ready", "SaveInFlight")
    seat.until_running()
    seat.check_memory()
    assert seat.tag() is None


@pytest.mark.scenario("S281", "S291")
def test_a_desire_that_is_reversed_waits_for_the_transition_in_flight(seat: Seat, hold: Hold) -> None:
    seat.up()
    with seat.barrier("push") as held:
        hold.create()
        held()
        hold.ask("Wake")
        seat.until(lambda: hold.status.get("observedGeneration") == 2, "the edit was seen")
        seat.settle()
        assert note(seat.pod(), keys.HIBERNATE) == "true"
    hold.until_phase("Active")
    seat.until_running()
    seat.check_memory()


def test_the_registry_is_down_for_the_whole_transition(seat: Seat, hold: Hold) -> None:
    seat.up()
    seat.registry.stop()
    hold.create()
    hold.until_phase("Failed")
    seat.registry.start()
    hold.until_phase("Hibernated")
    seat.registry.stop()
    hold.ask("Wake")
    hold.until_phase("Failed")
    assert seat.homes() == []
    seat.registry.start()
    hold.until_phase("Active")
    seat.until_running()
    seat.check_memory()
    assert seat.tag() is None


def test_a_node_agent_that_dies_in_the_middle_of_a_save_finishes_it_when_it_is_back(seat: Seat, hold: Hold) -> None:
    seat.up()
    node = seat.node
    with seat.barrier("push.manifest", node) as held:
        hold.create()
        held()
        seat.agent.kill_node(node)
    seat.agent.start_node(node)
    hold.until_phase("Hibernated")
    assert seat.saved_work() == seat.written
    hold.ask("Wake")
    hold.until_phase("Active")
    seat.until_running()
    seat.check_memory()


@pytest.mark.scenario("S307")
def test_w45_the_oldest_of_two_decides(seat: Seat, hold: Hold) -> None:
    seat.up()
    hold.create("Hibernate")
    hold.until_phase("Hibernated")
    # Times of creation are in whole seconds.
    seat.settle(1.1)
    other = Hold(seat, name="another", pod=seat.pod_name)
    other.create("Wake")
    other.until_phase("Pending")
    assert other.ready["message"] == (
        f"CocoonHibernation demo-0, which is older, decides about pod {seat.namespace}/demo-0"
    )
    assert hold.phase == "Hibernated"
    hold.delete()
    other.until_phase("Active")
    seat.until_running()
    seat.check_memory()


def test_deleting_the_set_takes_what_is_held_along(seat: Seat, hold: Hold) -> None:
    seat.up()
    hold.create()
    hold.until_phase("Hibernated")
    seat.delete()
    seat.until_gone()
    assert seat.tag() is None
    hold.until_phase("Pending")
    hold.delete()
    hold.until_gone()


@pytest.mark.scenario("S264", "S271")
def test_a_pod_outside_every_set_sleeps_and_wakes(seat: Seat) -> None:
    """Nobody else wakes it, so its CocoonHibernation does; its pod is followed by name."""
    lone = Lone(seat)
    lone.hold.create()
    lone.hold.until_phase("Pending")
    assert lone.hold.ready["message"] == f"pod {seat.namespace}/solo not yet present"
    lone.create()
    lone.hold.until_phase("Hibernated")
    assert lone.homes() == []
    lone.hold.ask("Wake")
    lone.hold.until_phase("Active")
    lone.until_lifecycle("ready")
    assert lone.tag() is None
    lone.hold.ask("Hibernate")
    lone.hold.until_phase("Hibernated")
    lone.hold.delete()
    lone.hold.until_gone()
    lone.until_lifecycle("ready")
    assert lone.tag() is None
    lone.delete_pod()
    lone.until_no_pod()


class Lone(Seat):
    """A pod that somebody made by hand for a VM."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat.around, seat.namespace, "solo")
        self.pod_name = "solo"
        self.vm = f"vk-{seat.namespace}-solo"
        self.hold = Hold(self)

    def create(self, **_: object) -> None:  # type: ignore[override]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.pod_name,
                "namespace": self.namespace,
                "annotations": {
                    keys.VM_NAME: self.vm,
                    keys.IMAGE: IMAGE,
                    keys.MANAGED: "true",
                    keys.MODE: "clone",
                },
            },
            "spec": {
                "nodeName": NODES[0],
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "agent", "image": IMAGE}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        self.api.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", body)
