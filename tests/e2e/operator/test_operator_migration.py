"""``spec.nodeName`` moves the main agent with its work, whatever happens on the way; its sub-agents and toolboxes stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from fleet import RUN_BOX, Fleet, other_node
from seat import Seat

from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_operator.api import keys

RESTORE_POINTS: Final = ("vm.boot", "lifecycle.ready")
NOWHERE: Final = "no-such-node"


def arrived(seat: Seat, node: str) -> None:
    """Main runs on the node, nothing that was ever written is missing, and no tag or record lags behind."""
    seat.until_running()
    seat.check_memory()
    assert seat.node == node
    assert seat.pod()["spec"]["nodeName"] == node
    assert keys.TAG_HIBERNATE not in seat.tags()
    assert seat.note(keys.HINT_NODE) is None
    assert seat.note(keys.SNAPSHOT_DIGESTS) is None


def pinned(seat: Seat) -> tuple[str, str]:
    """A running set with work in it, pinned to the node that it is on; that node and the other one."""
    seat.up()
    source = seat.node
    seat.edit(nodeName=source)
    seat.until_observed()
    return source, other_node(source)


def retarget(seat: Seat, node: str | None) -> None:
    seat.edit(nodeName=node)
    seat.until_observed()


# -- the plain way ---------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S196", "S197", "S198", "S199", "S201", "S202")
def test_main_moves_with_its_work_and_the_others_stay(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, 2, "db", agent={"replicas": 2}, toolboxes=[RUN_BOX])
    others = [fleet.member(slot) for slot in (1, 2, "db")]
    before = [(other.uid, other.node, other.the_vm()["id"]) for other in others]
    source = seat.node
    seat.edit(nodeName=other_node(source))
    seat.until(lambda: seat.homes() == [other_node(source)], "main has moved")
    fleet.settled()
    arrived(seat, other_node(source))
    assert [(other.uid, other.node, other.the_vm()["id"]) for other in others] == before
    assert seat.until_event("MigrationStarted")["type"] == "Normal"
    seat.until_event("Migrated")

    fleet.work("second", 1, 2, "db")
    seat.edit(nodeName=source)
    seat.until(lambda: seat.homes() == [source], "main is back")
    fleet.settled()
    arrived(seat, source)
    assert [(other.uid, other.node, other.the_vm()["id"]) for other in others] == before


@pytest.mark.scenario("S194", "S195", "S085")
def test_a_pin_to_where_it_is_costs_a_stamp(seat: Seat) -> None:
    seat.up()
    seat.rest()
    uid, mark, asked = seat.pod()["metadata"]["uid"], seat.audit.mark(), seat.registry.mark()
    seat.edit(nodeName=seat.node)
    seat.until_observed()
    seat.edit(nodeName=None)
    seat.until_observed()
    seat.rest()
    assert seat.writes(mark) == ["patch pods demo-0", "patch cocoonsets/status demo"] * 2
    assert seat.asked(asked) == []
    assert seat.pod()["metadata"]["uid"] == uid
    arrived(seat, seat.node)


@pytest.mark.scenario("S046", "S060")
def test_w29_a_new_sub_agent_is_forked_where_main_is_now(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, agent={"replicas": 1})
    source, first = seat.node, fleet.member(1)
    target = other_node(source)
    seat.edit(nodeName=target)
    seat.until(lambda: seat.homes() == [target], "main has moved")
    fleet.settled()
    uid = first.uid
    fleet.scale(2)
    fleet.member(2).until_lives()
    fleet.settled()
    assert (first.node, first.uid) == (source, uid)
    assert fleet.member(2).node == target
    assert fleet.member(2).the_vm()["memory"]["work"] == seat.written


# -- another edit on the way -----------------------------------------------------------------------------------------


@pytest.mark.scenario("S206")
@pytest.mark.parametrize("point", ["push.manifest", "lifecycle.hibernated"])
def test_called_back_while_it_is_saved(seat: Seat, point: str) -> None:
    source, target = pinned(seat)
    with seat.barrier(point) as held:
        seat.edit(nodeName=target)
        held()
        retarget(seat, source)
        seat.settle(0.2)
    arrived(seat, source)


@pytest.mark.scenario("S213", "S200", "S203")
@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_w01_another_target_while_it_is_restored(seat: Seat, point: str) -> None:
    source, target = pinned(seat)
    with seat.barrier(point, target) as held:
        seat.edit(nodeName=target)
        held()
        saved = seat.tag()
        retarget(seat, source)
        seat.settle()
        assert seat.tag() == saved is not None, "the only copy was dropped"
    seat.until(lambda: seat.homes() == [source], "main is back")
    arrived(seat, source)


@pytest.mark.scenario("S211")
@pytest.mark.parametrize("point", ["snapshot.save", "lifecycle.hibernated"])
def test_the_pin_is_taken_away_while_it_is_saved(seat: Seat, point: str) -> None:
    source, target = pinned(seat)
    with seat.barrier(point) as held:
        seat.edit(nodeName=target)
        held()
        retarget(seat, None)
        seat.settle(0.2)
    arrived(seat, source)


@pytest.mark.scenario("S200")
@pytest.mark.parametrize("point", RESTORE_POINTS)
def test_the_pin_is_taken_away_while_it_is_restored(seat: Seat, point: str) -> None:
    _, target = pinned(seat)
    with seat.barrier(point, target) as held:
        seat.edit(nodeName=target)
        held()
        retarget(seat, None)
        seat.settle()
        assert seat.tag() is not None
    arrived(seat, target)


@pytest.mark.parametrize(
    ("point", "policy"),
    [("snapshot.save", "release"), ("push.manifest", "retain"), ("lifecycle.hibernated", "release")],
)
def test_suspended_while_it_is_saved_for_the_move(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    target = other_node(seat.node)
    with seat.barrier(point) as held:
        seat.edit(nodeName=target)
        held()
        seat.edit(suspend=True)
        seat.until_observed()
    seat.until_suspended()
    assert seat.saved_work() == seat.written
    seat.edit(suspend=False)
    seat.until(lambda: seat.homes() == [target], "it woke where it is wanted")
    arrived(seat, target)


@pytest.mark.parametrize("policy", ["retain", "release"])
def test_suspended_while_it_is_restored_elsewhere(seat: Seat, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    target = other_node(seat.node)
    with seat.barrier("vm.boot", target) as held:
        seat.edit(nodeName=target)
        held()
        seat.edit(suspend=True)
        seat.until_observed()
        seat.settle(0.2)
        assert seat.saved_work() == seat.written
    seat.until_suspended()
    assert seat.saved_work() == seat.written
    seat.wake()
    arrived(seat, target)


@pytest.mark.scenario("S214")
@pytest.mark.parametrize("policy", ["retain", "release"])
def test_w01_another_target_while_it_wakes(seat: Seat, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    source = seat.node
    seat.suspend()
    with seat.barrier("vm.boot", source) as held:
        seat.edit(suspend=False)
        held()
        retarget(seat, other_node(source))
        seat.settle()
        assert seat.tag() is not None
    seat.until(lambda: seat.homes() == [other_node(source)], "main has moved")
    arrived(seat, other_node(source))


@pytest.mark.parametrize(("point", "where"), [("push.manifest", "source"), ("vm.boot", "target")])
def test_deleted_on_the_way(seat: Seat, point: str, where: str) -> None:
    source, target = pinned(seat)
    with seat.barrier(point, {"source": source, "target": target}[where]) as held:
        seat.edit(nodeName=target)
        held()
        seat.delete()
        seat.until(lambda: "deletionTimestamp" in seat.get()["metadata"], "the set is deleted")
    seat.until_gone()
    assert keys.TAG_HIBERNATE not in seat.tags()


@pytest.mark.scenario("S215")
def test_w05_an_older_tag_is_no_proof(seat: Seat) -> None:
    """A tag of an earlier sleep lies there while the VM is saved: the pod goes only for the save of this generation."""
    source, target = pinned(seat)
    seat.suspend()
    older = seat.manifest()
    assert older is not None
    seat.wake()
    seat.work("second")
    uid = seat.pod()["metadata"]["uid"]
    with seat.barrier("snapshot.save") as held:
        seat.edit(nodeName=target)
        held()
        seat.put_manifest(keys.TAG_HIBERNATE, older)
        seat.annotate_pod({"example.com/note": "so that the operator looks"})
        seat.settle()
        assert (seat.homes(), seat.pod()["metadata"]["uid"]) == ([source], uid)
    seat.until(lambda: seat.homes() == [target], "main has moved")
    arrived(seat, target)


# -- something breaks on the way -------------------------------------------------------------------------------------


@pytest.mark.scenario("S204")
def test_the_registry_goes_away_when_it_is_saved(seat: Seat) -> None:
    _, target = pinned(seat)
    uid = seat.pod()["metadata"]["uid"]
    with seat.barrier("vm.remove") as held:
        seat.edit(nodeName=target)
        held()
        seat.registry.stop()
    message = seat.until_condition("Ready", "RegistryUnreachable")
    assert message["status"] == "Unknown"
    seat.settle()
    assert (seat.pod()["metadata"]["uid"], seat.phase) == (uid, "Migrating")
    seat.registry.start()
    seat.until(lambda: seat.homes() == [target], "main has moved")
    arrived(seat, target)


@pytest.mark.scenario("S204", "S212")
def test_the_registry_goes_away_when_it_is_restored(seat: Seat) -> None:
    _, target = pinned(seat)
    with seat.barrier("lifecycle.ready", target) as held:
        seat.edit(nodeName=target)
        held()
        seat.registry.stop()
    owed = seat.until_condition("SnapshotCurrent", "TagDropPending")
    assert owed["message"].startswith(f"{seat.vm}: ")
    seat.check_memory()
    seat.registry.start()
    arrived(seat, target)


@pytest.mark.scenario("S204")
def test_a_save_that_the_registry_refuses_moves_nothing(seat: Seat) -> None:
    _, target = pinned(seat)
    uid = seat.pod()["metadata"]["uid"]
    with seat.fault("push", "503 from the registry"):
        seat.edit(nodeName=target)
        seat.until_condition("Ready", "HibernateFailed")
        seat.settle()
        assert seat.pod()["metadata"]["uid"] == uid
        seat.check_memory()
    seat.until(lambda: seat.homes() == [target], "main has moved")
    arrived(seat, target)


@pytest.mark.scenario("S198", "S199", "S201")
def test_the_operator_is_killed_on_the_way(seat: Seat, operator: OperatorProcess) -> None:
    """Killed while the VM is saved, ended while it is restored: each time the next one knows only what is stored."""
    _, target = pinned(seat)
    with seat.barrier("push.manifest") as held:
        seat.edit(nodeName=target)
        held()
        operator.kill()
    seat.until_lifecycle("hibernated")
    with seat.barrier("vm.boot", target) as held:
        operator.start()
        operator.wait_leading()
        held()
        operator.stop()
        assert seat.saved_work() == seat.written
    operator.start()
    operator.wait_leading()
    arrived(seat, target)


@pytest.mark.scenario("S198")
def test_the_agent_of_the_source_is_killed_while_it_saves(seat: Seat) -> None:
    source, target = pinned(seat)
    with seat.barrier("snapshot.save", source) as held:
        seat.edit(nodeName=target)
        held()
        seat.agent.kill_node(source)
        seat.settle()
        assert seat.homes() == [source], "the VM that was never saved is gone"
    seat.agent.start_node(source)
    seat.until(lambda: seat.homes() == [target], "main has moved")
    arrived(seat, target)


@pytest.mark.scenario("S199")
def test_the_agent_of_the_target_is_killed_while_it_restores(seat: Seat) -> None:
    _, target = pinned(seat)
    with seat.barrier("vm.boot", target) as held:
        seat.edit(nodeName=target)
        held()
        seat.agent.kill_node(target)
        seat.settle()
        assert seat.saved_work() == seat.written
    seat.agent.start_node(target)
    arrived(seat, target)


# -- no way ----------------------------------------------------------------------------------------------------------


Change = Callable[[Seat, str], str]


def _back(seat: Seat, source: str) -> str:
    seat.edit(nodeName=source)
    return source


def _on(seat: Seat, source: str) -> str:
    seat.edit(nodeName=other_node(source))
    return other_node(source)


@pytest.mark.scenario("S203")
@pytest.mark.parametrize("change", [_back, _on])
def test_a_target_that_nobody_has_and_then_another(seat: Seat, change: Change) -> None:
    source, _ = pinned(seat)
    seat.edit(nodeName=NOWHERE)
    seat.until(lambda: "nodeName" not in (seat.find_pod() or {"spec": {"nodeName": ""}})["spec"], "it cannot be placed")
    seat.until_condition("Ready", "WakeNoCapacity")
    uid = seat.pod()["metadata"]["uid"]
    seat.settle(1.0)
    assert (seat.phase, seat.pod()["metadata"]["uid"]) == ("Migrating", uid)
    assert seat.saved_work() == seat.written
    end = change(seat, source)
    seat.until(lambda: seat.homes() == [end], "it found a node")
    arrived(seat, end)


@pytest.mark.scenario("S208")
def test_a_target_that_nobody_has_and_then_none(seat: Seat) -> None:
    pinned(seat)
    seat.edit(nodeName=NOWHERE)
    seat.until_condition("Ready", "WakeNoCapacity")
    seat.edit(nodeName=None)
    seat.until_running()
    arrived(seat, seat.node)
    assert "nodeAffinity" not in seat.pod()["spec"].get("affinity", {})
    assert seat.pod()["metadata"]["annotations"][keys.RESTORE] == "true"


@pytest.mark.parametrize("policy", ["retain", "release"])
def test_suspended_while_nobody_has_its_target(seat: Seat, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    source = seat.node
    seat.edit(nodeName=NOWHERE)
    seat.until_condition("Ready", "WakeNoCapacity")
    seat.edit(suspend=True)
    seat.until_observed()
    seat.settle()
    assert seat.saved_work() == seat.written
    seat.edit(nodeName=source, suspend=False)
    seat.until(lambda: seat.homes() == [source], "it found a node")
    arrived(seat, source)


@pytest.mark.scenario("S058", "S217")
def test_born_with_a_target_that_nobody_has(seat: Seat) -> None:
    seat.create(nodeName=NOWHERE)
    seat.until(lambda: seat.find_pod() is not None, "the pod is made")
    seat.settle()
    assert seat.phase == "Pending"
    seat.edit(nodeName="n1")
    seat.until_running()
    seat.work("first")
    arrived(seat, "n1")
