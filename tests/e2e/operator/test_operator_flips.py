"""An edit in the middle of every transition ends where the last edit says, and the VM's work is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from seat import OTHER_IMAGE, Seat

from cocoon_operator.api import keys

Flip: TypeAlias = Callable[[Seat], None]

POLICIES: Final = ("retain", "release")
SAVES: Final = (
    ("snapshot.save", "retain"),
    ("push.manifest", "release"),
    ("vm.remove", "retain"),
    ("lifecycle.hibernated", "release"),
)
"""Where the agent is in a save, each with one of the policies: what they differ in comes after the save."""
LATE_SAVES: Final = (("push.manifest", "retain"), ("lifecycle.hibernated", "release"))
WAKES: Final = (("vm.boot", "retain"), ("lifecycle.ready", "release"))
EVERY_WAKE: Final = (*WAKES, ("vm.boot", "release"), ("lifecycle.ready", "retain"))
"""A wake in place is an update to the agent, one of a released seat is a create."""


def awake(seat: Seat) -> None:
    """It runs, nothing that was ever written is missing, and no tag lags behind the VM."""
    seat.until_running()
    seat.check_memory()
    assert keys.TAG_HIBERNATE not in seat.tags()
    assert seat.note(keys.HINT_NODE) is None
    assert seat.note(keys.SNAPSHOT_DIGESTS) is None


def asleep(seat: Seat, *, released: bool) -> None:
    """It sleeps, its last work is saved, its seat is taken or free, and it wakes with everything."""
    seat.until_suspended()
    if released:
        seat.until_no_pod()
    else:
        assert seat.pod()["metadata"]["annotations"][keys.HIBERNATE] == "true"
        assert seat.homes() == []
    assert seat.saved_work() == seat.written
    seat.wake()
    awake(seat)


def gone(seat: Seat) -> None:
    """Nothing is left: no object, no VM, no saved memory."""
    seat.until_gone()
    assert keys.TAG_HIBERNATE not in seat.tags()


# -- before the node agent has looked -----------------------------------------------------------------------------


@pytest.mark.scenario("S131")
@pytest.mark.parametrize("policy", POLICIES)
def test_suspended_before_the_node_agent_has_looked(seat: Seat, policy: str) -> None:
    """The agent acts on a *change* of the flag: one that a pod is born with for it is never acted on (R2.18, R3.1)."""
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    if policy == "retain":
        seat.delete_pod()
        seat.until_no_pod()
    with seat.blind_agents():
        seat.edit(suspend=False)
        seat.until(lambda: "nodeName" in (seat.find_pod() or {}).get("spec", {}), "the pod has a node")
        seat.edit(suspend=True)
        seat.until_observed()
        seat.settle()
    asleep(seat, released=policy == "release")


# -- while it boots --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S108", "S131")
def test_suspended_while_it_boots(seat: Seat) -> None:
    with seat.barrier("vm.boot") as held:
        seat.create(hibernatePolicy="release")
        held()
        seat.edit(suspend=True)
        seat.until_observed()
    seat.until_suspended()
    seat.wake()
    seat.work("first")
    seat.suspend()
    asleep(seat, released=True)


@pytest.mark.scenario("S110")
def test_suspended_and_woken_while_it_boots(seat: Seat) -> None:
    with seat.barrier("vm.boot") as held:
        seat.create()
        held()
        seat.edit(suspend=True)
        seat.until_observed()
        seat.edit(suspend=False)
        seat.until_observed()
    seat.until_running()
    seat.work("first")
    awake(seat)


@pytest.mark.scenario("S116")
def test_another_image_while_it_boots(seat: Seat) -> None:
    with seat.barrier("vm.boot") as held:
        seat.create()
        held()
        seat.edit(agent={"image": OTHER_IMAGE})
        seat.until_observed()
    # The first machine comes up before it is replaced: there are never two of one name (I3).
    seat.until(lambda: (seat.find_vm() or {}).get("image") == OTHER_IMAGE, "the new machine is there")
    seat.until_running()


@pytest.mark.scenario("S256")
def test_deleted_while_it_boots(seat: Seat) -> None:
    with seat.barrier("vm.boot") as held:
        seat.create()
        held()
        seat.delete()
        seat.until(lambda: "deletionTimestamp" in seat.pod()["metadata"], "the pod is deleted")
        assert seat.get()["metadata"]["finalizers"] == [keys.SET_FINALIZER]
    gone(seat)


# -- while it falls asleep -------------------------------------------------------------------------------------------


def _unsuspend(seat: Seat) -> None:
    seat.edit(suspend=False)
    seat.until_observed()


def _change_mind_twice(seat: Seat) -> None:
    _unsuspend(seat)
    seat.edit(suspend=True)
    seat.until_observed()


def _switch_policy(seat: Seat) -> None:
    other = {"retain": "release", "release": "retain"}[seat.get()["spec"]["hibernatePolicy"]]
    seat.edit(hibernatePolicy=other)
    seat.until_observed()


@pytest.mark.scenario("S148", "S161", "S165", "S188")
@pytest.mark.parametrize(("point", "policy"), SAVES)
def test_woken_while_it_falls_asleep(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    with seat.barrier(point) as held:
        seat.edit(suspend=True)
        held()
        _unsuspend(seat)
    awake(seat)


@pytest.mark.scenario("S139", "S142")
@pytest.mark.parametrize(("point", "policy"), SAVES)
def test_woken_and_suspended_while_it_falls_asleep(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    with seat.barrier(point) as held:
        seat.edit(suspend=True)
        held()
        _change_mind_twice(seat)
    asleep(seat, released=policy == "release")


@pytest.mark.scenario("S184")
@pytest.mark.parametrize(("point", "policy"), LATE_SAVES)
def test_another_policy_while_it_falls_asleep(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    with seat.barrier(point) as held:
        seat.edit(suspend=True)
        held()
        _switch_policy(seat)
    asleep(seat, released=policy == "retain")


@pytest.mark.scenario("S186")
@pytest.mark.parametrize(("point", "policy"), LATE_SAVES)
def test_another_image_while_it_falls_asleep(seat: Seat, point: str, policy: str) -> None:
    """The sleeping VM is not edited: at its wake the old memory is put aside, and the new machine boots fresh."""
    seat.up(hibernatePolicy=policy)
    with seat.barrier(point) as held:
        seat.edit(suspend=True)
        held()
        seat.edit(agent={"image": OTHER_IMAGE})
        seat.until_observed()
    seat.until_suspended()
    assert seat.saved_work() == seat.written
    seat.wake()
    assert seat.orphaned_work() == seat.written
    vm = seat.the_vm()
    assert (vm["image"], vm["memory"]["work"]) == (OTHER_IMAGE, [])
    assert keys.TAG_HIBERNATE not in seat.tags()


@pytest.mark.scenario("S256")
@pytest.mark.parametrize(("point", "policy"), LATE_SAVES)
def test_deleted_while_it_falls_asleep(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    with seat.barrier(point) as held:
        seat.edit(suspend=True)
        held()
        seat.delete()
        seat.until(lambda: "deletionTimestamp" in seat.get()["metadata"], "the set is deleted")
        seat.settle()
    gone(seat)


# -- while its seat is freed -----------------------------------------------------------------------------------------


@pytest.mark.scenario("S161", "S163", "S164", "S167")
def test_woken_while_its_pod_goes(seat: Seat) -> None:
    seat.up(hibernatePolicy="release")
    with seat.barrier("delete") as held:
        seat.edit(suspend=True)
        held()
        seat.edit(suspend=False)
        seat.settle()
    awake(seat)


@pytest.mark.scenario("S163")
def test_woken_and_suspended_while_its_pod_goes(seat: Seat) -> None:
    seat.up(hibernatePolicy="release")
    with seat.barrier("delete") as held:
        seat.edit(suspend=True)
        held()
        _change_mind_twice(seat)
    asleep(seat, released=True)


# -- while it wakes --------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S170", "S176")
@pytest.mark.parametrize(("point", "policy"), EVERY_WAKE)
def test_suspended_while_it_wakes(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    with seat.barrier(point) as held:
        seat.edit(suspend=False)
        held()
        assert seat.tag() is not None
        seat.edit(suspend=True)
        seat.until_observed()
        seat.settle(0.2)
        assert seat.saved_work() == seat.written
    asleep(seat, released=policy == "release")


@pytest.mark.scenario("S170", "S176")
@pytest.mark.parametrize(("point", "policy"), WAKES)
def test_suspended_and_woken_while_it_wakes(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    with seat.barrier(point) as held:
        seat.edit(suspend=False)
        held()
        seat.edit(suspend=True)
        seat.until_observed()
        _unsuspend(seat)
    awake(seat)
    seat.work("second")
    seat.suspend()
    asleep(seat, released=policy == "release")


@pytest.mark.scenario("S172", "S184")
@pytest.mark.parametrize(("point", "policy"), WAKES)
def test_another_policy_while_it_wakes(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    with seat.barrier(point) as held:
        seat.edit(suspend=False)
        held()
        _switch_policy(seat)
    awake(seat)
    seat.suspend()
    asleep(seat, released=policy == "retain")


@pytest.mark.scenario("S186")
@pytest.mark.parametrize("policy", POLICIES)
def test_another_image_while_it_wakes(seat: Seat, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    with seat.barrier("vm.boot") as held:
        seat.edit(suspend=False)
        held()
        seat.edit(agent={"image": OTHER_IMAGE})
        seat.until_observed()
    seat.until(lambda: (seat.find_vm() or {}).get("image") == OTHER_IMAGE, "the new machine is there")
    seat.until_running()
    assert seat.the_vm()["memory"]["work"] == []
    assert keys.TAG_HIBERNATE not in seat.tags()


@pytest.mark.scenario("S256")
@pytest.mark.parametrize(("point", "policy"), WAKES)
def test_deleted_while_it_wakes(seat: Seat, point: str, policy: str) -> None:
    seat.up(hibernatePolicy=policy)
    seat.suspend()
    with seat.barrier(point) as held:
        seat.edit(suspend=False)
        held()
        seat.delete()
        seat.until(lambda: "deletionTimestamp" in seat.get()["metadata"], "the set is deleted")
        seat.settle()
        assert seat.tag() is not None, "a tag was collected while the pod was still there"
    gone(seat)
