"""Sub-agents: forked from main, scaled in any order of edits, rebuilt when they fail, and never at the price of their work."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from fleet import Fleet
from seat import OTHER_IMAGE, Seat

from cocoon_operator.api import keys

LOST = "the VM would not boot"


def note_of(seat: Seat, key: str) -> str | None:
    """An annotation of a member's pod."""
    return (seat.pod()["metadata"].get("annotations") or {}).get(key)


def write_history(seat: Seat, text: str) -> None:
    """Put a rebuild history on the set, as another operator may have left it."""
    seat.api.call(
        "PATCH",
        seat.path,
        {"metadata": {"annotations": {keys.REBUILD_HISTORY: text}}},
        "application/merge-patch+json",
    )


# -- fork ------------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S046", "S060", "S095")
def test_forked_from_the_memory_of_main_and_bound_to_its_node(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up()
    fleet.scale(2)
    seat.until_observed()
    seat.until_running()
    for slot in (1, 2):
        sub = fleet.member(slot)
        assert sub.the_vm()["memory"]["work"] == seat.written
        assert sub.pod()["spec"]["nodeName"] == sub.node == seat.node
        assert "affinity" not in sub.pod()["spec"] or "nodeAffinity" not in sub.pod()["spec"]["affinity"]
        assert note_of(sub, keys.FORK_FROM) == seat.vm
        sub.written = list(seat.written)
    agents = seat.status["agents"]
    assert [(each["slot"], each["role"], each.get("forkedFrom")) for each in agents] == [
        (0, "main", None),
        (1, "sub-agent", seat.vm),
        (2, "sub-agent", seat.vm),
    ]
    assert (seat.status["desiredAgents"], seat.status["readyAgents"]) == (3, 3)
    fleet.work("apart", 1, 2)
    fleet.settled()


# -- scale -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S229")
@pytest.mark.parametrize("order", [(0, 3, 1), (1, 2, 0, 1)], ids=str)
def test_scaled_in_any_order_of_edits(seat: Seat, order: tuple[int, ...]) -> None:
    """However fast the edits follow on one another: the last one counts, and what no edit gave up keeps its work."""
    fleet = Fleet(seat)
    fleet.up(1, 2, agent={"replicas": 2})
    for replicas in order:
        fleet.scale(replicas)
    for slot in (1, 2):
        if slot > min(order):
            fleet.forget(slot)
    seat.until_observed()
    wanted = {f"demo-{slot}" for slot in range(order[-1] + 1)}
    seat.until(lambda: fleet.pod_names() == fleet.listed() == wanted, "the pods of the last edit")
    fleet.settled()
    for slot in (1, 2, 3):
        if f"demo-{slot}" not in wanted:
            assert fleet.member(slot).homes() == []
            assert keys.TAG_HIBERNATE not in fleet.member(slot).tags()


@pytest.mark.scenario("S229", "S231")
def test_w16_a_slot_is_fresh_when_it_was_given_up_for_a_second(seat: Seat) -> None:
    """The pod goes, then the tag, then the slot is used again: it has the memory that main was forked with, and no more."""
    fleet = Fleet(seat)
    fleet.up()
    fleet.scale(2)
    seat.until_observed()
    seat.until_running()
    first, second = fleet.member(1), fleet.member(2)
    forked = list(seat.written)
    first.written = list(forked)
    fleet.work("apart", 1)
    second.work("given up")
    seat.suspend()
    saved = second.tag()
    assert saved is not None
    uid = second.uid
    with second.kept_terminating():
        seat.edit(suspend=False, agent={"replicas": 1})
        seat.until(lambda: "deletionTimestamp" in second.pod()["metadata"], "the pod is on its way out")
        fleet.scale(2)
        seat.until_observed()
        seat.settle()
        assert second.uid == uid
    second.until_other_pod(uid)
    second.until_lives()
    second.written = list(forked)
    fleet.settled()
    assert keys.RESTORE not in second.pod()["metadata"]["annotations"]
    assert fleet.listed() == {"demo-0", "demo-1", "demo-2"}


@pytest.mark.scenario("S229", "S231")
def test_w16_no_slot_is_used_again_before_its_tag_is_gone(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, agent={"replicas": 1})
    seat.suspend()
    sub = fleet.member(1)
    assert sub.tag() is not None
    with sub.barrier("delete") as held:
        seat.edit(suspend=False, agent={"replicas": 0})
        held()
        seat.until(lambda: bool(seat.homes()) and seat.tag() is None, "main is awake")
        seat.registry.stop()
    seat.until(lambda: sub.uid == "", "the pod is gone")
    fleet.scale(1)
    seat.until_observed()
    seat.settle()
    assert sub.uid == ""
    seat.registry.start()
    sub.until_lives()
    sub.written = []
    fleet.settled()
    assert "first in demo-1" not in sub.the_vm()["memory"]["work"]
    assert keys.TAG_HIBERNATE not in sub.tags()


@pytest.mark.scenario("S143")
def test_scaled_down_and_up_in_its_sleep_it_keeps_its_work(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, 2, agent={"replicas": 2})
    seat.suspend()
    fleet.scale(0)
    seat.until_observed()
    assert fleet.pod_names() == {"demo-0", "demo-1", "demo-2"}
    fleet.scale(2)
    seat.until_suspended()
    fleet.check_saved()
    seat.wake()
    fleet.settled()


# -- rebuild ---------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S219", "S221", "S225", "S226")
def test_one_that_does_not_boot_is_made_again_later_each_time(seat: Seat) -> None:
    """Three rungs of the ladder; the others, and main, do not notice (W-50)."""
    fleet = Fleet(seat)
    fleet.up()
    sub = fleet.member(1)
    seen: dict[int, datetime] = {}

    def attempts() -> int:
        entry = json.loads(seat.note(keys.REBUILD_HISTORY) or "{}").get("1")
        if entry is not None:
            seen[entry["count"]] = datetime.fromisoformat(entry["lastDeleted"])
        return 0 if entry is None else int(entry["count"])

    with sub.fault("vm.boot", LOST):
        fleet.scale(2)
        fleet.member(2).until_lives()
        fleet.work("second", 2)
        fleet.member(2).written = fleet.member(2).the_vm()["memory"]["work"]
        seat.until(lambda: attempts() == 3, "the third attempt")
        # It is written down before the delete, which spares a VM that comes up after all.
        told = [f"slot 1 attempt {attempt}/4" for attempt in (1, 2, 3)]
        seat.until(lambda: fleet.told("SubAgentRebuilding") == told, "each attempt is told")
    sub.until_lives()
    sub.written = ["first in demo-0"]
    fleet.settled()
    assert sorted(seen) == [1, 2, 3]
    assert seen[2] - seen[1] >= timedelta(seconds=1)
    assert seen[3] - seen[2] >= timedelta(seconds=5)
    assert fleet.told("SubAgentRebuilding") == told
    assert seat.events("SubAgentDeadLetter") == []


@pytest.mark.scenario("S220", "S227", "S234")
def test_a_dead_letter_is_left_alone_until_the_spec_is_edited(seat: Seat) -> None:
    """The history is one that the Go operator left: nanoseconds, and an offset."""
    fleet = Fleet(seat)
    fleet.up()
    sub = fleet.member(1)
    write_history(seat, '{"1":{"count":4,"lastDeleted":"2026-01-02T03:04:05.123456789+02:00"}}')
    with sub.fault("vm.boot", LOST):
        fleet.scale(1)
        seat.until_event("SubAgentDeadLetter")
        uid = sub.uid
        assert seat.events("SubAgentDeadLetter")[0]["message"] == (
            "slot 1 exhausted 4 rebuilds; pod demo-1 left in dead-letter"
        )
        assert note_of(sub, keys.DEAD_LETTER) == "true"
        seat.settle(1.0)
        assert (sub.uid, seat.phase) == (uid, "Scaling")
    seat.check_memory()
    seat.edit(agent={"image": OTHER_IMAGE})
    sub.until_other_pod(uid)
    seat.until_running()
    assert seat.note(keys.REBUILD_HISTORY) is None
    assert keys.DEAD_LETTER not in sub.pod()["metadata"]["annotations"]


def test_w51_a_dead_letter_gives_its_seat_up_where_the_set_says_so(seat: Seat) -> None:
    """Its pod goes, what was said of the failure stays, and a fresh start makes it once more."""
    fleet = Fleet(seat)
    fleet.up()
    sub = fleet.member(1)
    seat.annotate(dead_letter_policy="release")
    write_history(seat, '{"1":{"count":4,"lastDeleted":"2026-01-02T03:04:05Z"}}')
    with sub.fault("vm.boot", LOST):
        fleet.scale(1)
        seat.until_event("DeadLetterReleased")
        seat.until(lambda: sub.find_pod() is None, "the seat is free")
    seat.until_condition("Ready", "SubAgentDeadLetter")
    # The words follow the reason by up to ten seconds: a message is no edge.
    seat.until(lambda: LOST in seat.condition("Ready")["message"], "what was said of the failure stays")
    seat.settle(1.0)
    assert (sub.find_pod(), seat.phase) == (None, "Scaling")
    seat.check_memory()
    seat.annotate(start_fresh=sub.vm)
    sub.until_lives()
    seat.until_running()
    assert seat.note(keys.START_FRESH) is None


def test_a_lost_vm_is_forked_again_and_the_others_stay(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(2, agent={"replicas": 2})
    sub, other = fleet.member(1), fleet.member(2)
    uid, kept = sub.uid, other.uid
    sub.lose_vm()
    sub.until_other_pod(uid)
    sub.until_lives()
    fleet.settled()
    assert other.uid == kept
    assert sub.node == seat.node


def test_a_vm_that_stops_is_started_in_place_with_its_work(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, agent={"replicas": 1})
    sub = fleet.member(1)
    uid = sub.uid
    sub.lose_vm("stopped")
    seat.until(lambda: (sub.find_vm() or {}).get("state") == "running", "it is started again")
    fleet.settled()
    assert sub.uid == uid
    assert seat.events("SubAgentRebuilding") == []


# -- sleep -----------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S137", "S219")
@pytest.mark.parametrize("end", ["the save works later", "the user wakes it", "the user edits the image"])
def test_w62_one_that_could_not_be_saved_is_alive(seat: Seat, end: str) -> None:
    fleet = Fleet(seat)
    fleet.up(1, 2, agent={"replicas": 2})
    sub = fleet.member(1)
    uid = sub.uid
    with sub.fault("push", "503 from the registry"):
        seat.edit(suspend=True)
        sub.until_lifecycle("failed")
        seat.until(lambda: fleet.member(2).homes() == [] and seat.homes() == [], "the others sleep")
        seat.settle()
        assert seat.phase == "Suspending"
        assert sub.uid == uid
        sub.check_memory()
        if end == "the user wakes it":
            seat.wake()
            fleet.settled()
        if end == "the user edits the image":
            seat.edit(agent={"image": OTHER_IMAGE})
            seat.until_observed()
            seat.settle()
            assert sub.uid == uid
            sub.check_memory()
    if end != "the user wakes it":
        fleet.asleep()
    assert sub.uid == uid
    assert seat.events("SubAgentRebuilding") == []
    assert seat.note(keys.REBUILD_HISTORY) is None


@pytest.mark.scenario("S244")
@pytest.mark.parametrize("gone", [("0", "1"), ("1", "2")], ids=str)
def test_w29_one_that_vanished_in_its_sleep_comes_back_with_its_work(seat: Seat, gone: tuple[str, ...]) -> None:
    fleet = Fleet(seat)
    fleet.up(1, 2, agent={"replicas": 2})
    seat.suspend()
    for slot in gone:
        (fleet.member(slot) if slot != "0" else seat).delete_pod()
    for slot in gone:
        (fleet.member(slot) if slot != "0" else seat).settle(0.1)
    fleet.check_saved()
    seat.wake()
    fleet.settled()


@pytest.mark.scenario("S244")
def test_w29_one_that_vanished_in_its_sleep_waits_for_the_registry(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up(1, agent={"replicas": 1})
    sub = fleet.member(1)
    seat.suspend()
    sub.delete_pod()
    seat.until(lambda: sub.uid == "", "the pod is gone")
    with seat.barrier("vm.boot") as held:
        seat.edit(suspend=False)
        held()
        seat.registry.stop()
    seat.until(lambda: seat.find_vm() is not None, "main is awake")
    seat.until_condition("Ready", "RegistryUnreachable")
    seat.settle()
    assert sub.uid == ""
    seat.registry.start()
    sub.until_lives()
    fleet.settled()


@pytest.mark.scenario("S135")
def test_suspended_while_one_is_forked(seat: Seat) -> None:
    fleet = Fleet(seat)
    fleet.up()
    second = fleet.member(2)
    with second.barrier("vm.boot") as held:
        fleet.scale(2)
        held()
        seat.edit(suspend=True)
        seat.until_observed()
    fleet.asleep()
    assert second.tag() is not None
    seat.wake()
    fleet.settled()
    assert second.the_vm()["memory"]["work"] == seat.written


def test_w17_no_tag_stays_behind_one_that_slept_twice_in_one_wake(seat: Seat) -> None:
    """Its tag was dropped once in this wake already: it is saved again before main is awake, and the user changes his mind."""
    fleet = Fleet(seat)
    fleet.up(1, agent={"replicas": 1})
    sub = fleet.member(1)
    seat.suspend()
    with seat.barrier("vm.boot") as held:
        seat.edit(suspend=False)
        held()
        seat.until(lambda: sub.find_vm() is not None and sub.tag() is None, "the sub-agent is awake")
        sub.work("second")
        seat.edit(suspend=True)
        sub.until_lifecycle("hibernated")
        assert sub.saved_work() == sub.written
        seat.edit(suspend=False)
        sub.until_lifecycle("ready")
    fleet.settled()
