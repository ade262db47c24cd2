"""Leaders and API servers that stand still and go on: nobody writes without the Lease, and nothing is lost (I9, design 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import API_SERVER, ControlPlane
from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_operator.api import keys
from tests.e2e.ha.conftest import NewHome
from tests.e2e.ha.halfway import Halfway
from tests.e2e.ha.reigns import Reigns
from tests.e2e.ha.replicas import LEASE_SECONDS, RENEW_SECONDS, TAKEN_OVER, Team
from tests.e2e.ha.valve import Valve
from tests.e2e.operator.seat import Seat, Surroundings

Seats = Callable[[str], Seat]

LOST = "the Lease was lost"


@pytest.fixture(scope="module")
def team(new_home: NewHome, surroundings: Surroundings, valve: Valve) -> Iterator[Team]:
    """``first`` talks to the API server through the valve."""
    team = Team(new_home(), surroundings, {"first": valve.via})
    yield team
    team.stop()


def first_leads(team: Team) -> tuple[OperatorProcess, OperatorProcess]:
    """Let ``first`` lead and ``second`` watch; returns both."""
    if team.complete() is not team.members["first"]:
        team.leader.stop()
        team.members["first"].wait_leading()
        team.complete()
    return team.members["first"], team.members["second"]


@contextmanager
def paused_api_server(cluster: Cluster) -> Iterator[None]:
    """SIGSTOP for the length of the block: connections are taken, and nothing is answered."""
    assert isinstance(cluster, ControlPlane), "only the local control plane can be paused"
    cluster.component(API_SERVER).pause()
    try:
        yield
    finally:
        cluster.component(API_SERVER).resume()


def wait_leads(seat: Seat, replica: OperatorProcess) -> None:
    seat.until(lambda: replica.leading, f"{replica.name} leads", TAKEN_OVER)


def test_i9_a_leader_that_was_paused_in_the_middle_of_everything_writes_nothing_afterwards(
    team: Team, seats: Seats
) -> None:
    leader, follower = first_leads(team)
    halfway = Halfway(seats)
    halfway.prepare()
    mark = team.home.cluster.audit_mark()
    with halfway.held():
        leader.pause()
        wait_leads(halfway.seats["retain"], follower)
    halfway.end()
    resumed = datetime.now(UTC)
    leader.resume()
    assert leader.wait_ended() == 1, leader.said()
    assert LOST in leader.said()
    reigns = Reigns(team.home, mark)
    reigns.prove()
    halfway.check_costs(reigns.writes)
    assert reigns.by(team.home.user("second"))
    assert [event for event in reigns.by(team.home.user("first")) if event.stage_timestamp > _text(resumed)] == []


def test_i9_a_leader_that_was_paused_before_it_drops_a_tag_does_not_drop_the_next_one(
    team: Team, seats: Seats, valve: Valve
) -> None:
    """It has seen the VM awake, and is woken up when another leader has put it to sleep again: the tag is the only copy."""
    leader, follower = first_leads(team)
    seat = seats("demo")
    seat.up(hibernatePolicy="release")
    seat.suspend()
    seat.until_no_pod()
    with seat.barrier("lifecycle.ready") as held:
        seat.edit(suspend=False)
        held()
        look = f"^GET {seat.pod_path}[ ?]".encode()
        looked = valve.when(look, leader.pause)
    assert looked.wait(20), "it never looked at the pod before the drop"
    wait_leads(seat, follower)
    seat.until_running()
    seat.work("under the second leader")
    seat.suspend()
    seat.until_no_pod()
    saved, log = seat.tag(), seat.registry.mark()
    leader.resume()
    assert leader.wait_ended() == 1, leader.said()
    assert LOST in leader.said()
    assert seat.asked(log) == []
    assert seat.tag() == saved
    assert seat.saved_work() == seat.written
    seat.wake()
    seat.check_memory()


def test_i9_a_leader_that_is_cut_off_stops_before_another_can_win(team: Team, seats: Seats, valve: Valve) -> None:
    """Its process runs, and so does its way to the registry: only the API server cannot be reached.

    Nothing of it is on the wire then: what is, nobody can fence (docs/high-availability.md).
    """
    leader, follower = first_leads(team)
    halfway = Halfway(seats)
    halfway.prepare()
    mark = team.home.cluster.audit_mark()
    with halfway.held():
        halfway.seats["retain"].rest()
        log = halfway.seats["retain"].registry.mark()
        with valve.silent():
            assert leader.wait_ended() == 1, leader.said()
            stopped = datetime.now(UTC)
            assert not follower.leading
            wait_leads(halfway.seats["retain"], follower)
    halfway.end()
    assert LOST in leader.said()
    reigns = Reigns(team.home, mark)
    reigns.prove()
    halfway.check_costs(reigns.writes)
    assert stopped < reigns.taking(team.home.user("second")).received
    for name in ("waking", "unsuspended", "moving"):
        assert halfway.seats[name].asked(log).count(f"DELETE {keys.TAG_HIBERNATE}") == 1, name


def test_a_short_silence_of_the_api_server_costs_no_leadership(team: Team, seats: Seats, cluster: Cluster) -> None:
    leader = team.complete()
    before = Reigns(team.home, team.home.since).terms[-1].holder
    with paused_api_server(cluster):
        seats("demo").settle(RENEW_SECONDS / 2)
    seats("demo").up()
    assert team.leader is leader
    assert Reigns(team.home, team.home.since).terms[-1].holder == before


def test_i9_an_api_server_that_stands_still_ends_its_leader_and_the_other_one_goes_on(
    team: Team, seats: Seats, cluster: Cluster
) -> None:
    leader = team.complete()
    follower = team.other(leader)
    halfway = Halfway(seats)
    halfway.prepare()
    mark = team.home.cluster.audit_mark()
    with halfway.held():
        halfway.seats["retain"].rest()
        with paused_api_server(cluster):
            assert leader.wait_ended() == 1, leader.said()
            halfway.seats["retain"].settle(LEASE_SECONDS - RENEW_SECONDS)
            assert not follower.leading
        wait_leads(halfway.seats["retain"], follower)
    halfway.end()
    reigns = Reigns(team.home, mark)
    reigns.prove()
    halfway.check_costs(reigns.writes)
    taken = reigns.taking(team.home.user(follower.name))
    last = [term for term in reigns.terms if term.user == team.home.user(leader.name)][-1]
    assert taken.received - last.received >= timedelta(seconds=LEASE_SECONDS)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
