"""The leader goes, killed or politely, in the middle of six transitions: the other one finishes each, once (S312, I9, W-42)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from cocoon_devkit.operatorprocess import UNDER_KOPF
from tests.e2e.ha.conftest import NewHome
from tests.e2e.ha.halfway import Halfway
from tests.e2e.ha.reigns import Reigns
from tests.e2e.ha.replicas import LEASE_SECONDS, TAKEN_OVER, Team
from tests.e2e.operator.seat import Seat, Surroundings

Seats = Callable[[str], Seat]
Tell = Callable[[str], None]


@pytest.fixture(scope="module")
def team(new_home: NewHome, surroundings: Surroundings) -> Iterator[Team]:
    team = Team(new_home(), surroundings, {})
    yield team
    team.stop()


def lease(team: Team) -> dict[str, object]:
    spec = json.loads(team.home.cluster.kubectl("get", "--raw", team.home.lease_path).stdout)["spec"]
    assert isinstance(spec, dict)
    return spec


def seconds(then: datetime, moment: datetime) -> str:
    return f"{(moment - then).total_seconds():.2f} s"


@pytest.mark.scenario("S312")
def test_killed_in_the_middle_of_everything_its_follower_ends_it(team: Team, seats: Seats, tell: Tell) -> None:
    leader = team.complete()
    follower = team.home.user(team.other(leader).name)
    halfway = Halfway(seats)
    halfway.prepare()
    mark = team.home.cluster.audit_mark()
    with halfway.held():
        killed = datetime.now(UTC)
        leader.kill()
    halfway.end()
    reigns = Reigns(team.home, mark)
    reigns.prove()
    halfway.check_costs(reigns.writes)
    taken, written = reigns.taking(follower), reigns.first_write_after(follower, killed)
    assert reigns.lists(follower, killed, written) == [], "its caches were warm"
    tell(
        f"leader killed, Lease of {LEASE_SECONDS:.0f} s: taken after {seconds(killed, taken.answered)}, "
        f"first write of its follower after {seconds(killed, written)}"
    )


@pytest.mark.scenario("S312")
def test_w42_stopped_in_the_middle_of_everything_the_lease_is_free_at_once(
    team: Team, seats: Seats, tell: Tell
) -> None:
    leader = team.complete()
    follower = team.home.user(team.other(leader).name)
    halfway = Halfway(seats)
    halfway.prepare()
    mark = team.home.cluster.audit_mark()
    with halfway.held():
        asked = datetime.now(UTC)
        assert leader.stop() == 0, leader.said()
        ended = datetime.now(UTC)
    halfway.end()
    reigns = Reigns(team.home, mark)
    reigns.prove()
    halfway.check_costs(reigns.writes)
    given_back = [term for term in reigns.terms if not term.holder]
    assert [term.user for term in given_back] == [team.home.user(leader.name)]
    taken = reigns.taking(follower)
    assert reigns.terms.index(taken) == reigns.terms.index(given_back[0]) + 1
    tell(
        f"leader stopped: ended after {seconds(asked, ended)}, Lease taken after {seconds(asked, taken.answered)}, "
        f"first write of its follower after {seconds(asked, reigns.first_write_after(follower, asked))}"
    )


def test_a_lease_that_a_person_deletes_stays_with_its_leader(team: Team, surroundings: Surroundings) -> None:
    leader = team.complete()
    before, deleted = lease(team), datetime.now(UTC)
    mark = team.home.cluster.audit_mark()
    team.home.cluster.kubectl("delete", "--raw", team.home.lease_path)
    seat = Seat(surroundings, team.home.namespace)
    seat.until(lambda: seat.api.find(team.home.lease_path) is not None, "the Lease is there again", TAKEN_OVER)
    assert lease(team)["holderIdentity"] == before["holderIdentity"]
    seat.until(lambda: lease(team).get("renewTime") != before["renewTime"], "it is renewed")
    assert team.leader is leader
    (user,) = {term.user for term in Reigns(team.home, mark).terms if term.received > deleted}
    assert user == team.home.user(leader.name)


@pytest.mark.scenario("S312")
def test_kopf_run_beside_a_deployment_watches_until_the_lease_is_free_and_goes_on(
    new_home: NewHome, seats: Seats
) -> None:
    home = new_home()
    deployment, laptop = home.replica("first"), home.replica("second", argv=UNDER_KOPF)
    seat = seats("demo")
    mark = home.cluster.audit_mark()
    with deployment:
        deployment.wait_leading()
        laptop.start(wait=False)
        try:
            seat.until(
                lambda: "leads; this replica only watches until the Lease is free" in laptop.said(), "it says so", 30
            )
            seat.up()
            assert Reigns(home, mark).by(home.user("second")) == []
            with seat.barrier("push.manifest") as held:
                seat.edit(suspend=True)
                held()
                assert deployment.stop() == 0, deployment.said()
                laptop.wait_leading()
            seat.until_suspended()
            assert seat.saved_work() == seat.written
        finally:
            assert laptop.stop() == 0, laptop.said()
    reigns = Reigns(home, mark)
    reigns.prove()
    assert reigns.by(home.user("second"))
    assert [term.holder for term in reigns.terms][-1] == "", "the laptop gave it back, too"
