"""One replica beside a holder of the Lease that is not ours, and what the probes say meanwhile (S312, W-42)."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_devkit.rawapi import Api
from tests.e2e.ha.conftest import NewHome
from tests.e2e.ha.holder import FOREIGN, FOREIGN_SECONDS, ForeignHolder
from tests.e2e.ha.reigns import Reigns
from tests.e2e.ha.replicas import PERIODS, TAKEN_OVER, Home, Team
from tests.e2e.ha.valve import Valve
from tests.e2e.operator.seat import Seat, Surroundings

RENEWALS: Final = 12
RENEW_EVERY: Final = 0.3
"""Seconds; all renewals together outlast the foreign Lease almost twice."""


def test_a_holder_is_judged_by_its_renewals_whatever_its_clock_says(
    new_home: NewHome, surroundings: Surroundings
) -> None:
    """A day behind, the Lease looks long over; a day ahead, as if it would never be."""
    offsets = (timedelta(days=-1), timedelta(days=1))
    holders = [ForeignHolder.take(surroundings.api, new_home(), ahead) for ahead in offsets]
    replicas = [
        each.home.replica("first", settings={**PERIODS, "WATCH_NAMESPACE": each.home.namespace}) for each in holders
    ]
    try:
        for replica in replicas:
            replica.start(wait=False)
        for replica in replicas:
            wait_says(replica, f"{FOREIGN} leads")
        for _ in range(RENEWALS):
            for holder in holders:
                holder.renew()
            time.sleep(RENEW_EVERY)
        assert [replica.leading for replica in replicas] == [False, False]
        for replica in replicas:
            replica.wait_leading()
    finally:
        for replica in replicas:
            replica.stop()
    for holder in holders:
        terms = Reigns(holder.home, holder.home.since).terms
        taken = next(number for number, term in enumerate(terms) if term.user == holder.home.user("first"))
        assert terms[taken].received - terms[taken - 1].answered >= timedelta(seconds=FOREIGN_SECONDS)
        assert terms[taken - 1].holder == FOREIGN


@pytest.fixture(scope="module")
def team(new_home: NewHome, surroundings: Surroundings, valve: Valve) -> Iterator[Team]:
    team = Team(new_home(), surroundings, {"first": valve.via})
    yield team
    team.stop()


@pytest.mark.scenario("S312")
def test_w42_ready_is_who_sees_the_cluster_whether_it_leads_or_not(
    team: Team, valve: Valve, surroundings: Surroundings
) -> None:
    blind, seeing = team.members["first"], team.members["second"]
    seat = Seat(surroundings, team.home.namespace)
    seeing.start()
    seeing.wait_leading()
    with valve.holding(rb"^GET /api/v1/pods\?"):
        blind.start(wait=False)
        seat.until(lambda: blind.probe("/healthz") == 200, "it runs", TAKEN_OVER)
        assert blind.probe("/readyz") == 503
        assert seeing.stop() == 0
        seat.until(lambda: _holder(surroundings.api, team.home) == "", "the Lease is free")
        seat.settle(1.0)
        assert not blind.leading, "who does not see the cluster does not lead"
        assert blind.probe("/readyz") == 503
    blind.wait_ready()
    blind.wait_leading()


@pytest.mark.scenario("S312")
def test_a_follower_is_ready_and_answers_and_writes_nothing(
    team: Team, namespace: str, surroundings: Surroundings
) -> None:
    leader = team.complete()
    follower = team.other(leader)
    mark = team.home.cluster.audit_mark()
    seat = Seat(surroundings, namespace)
    seat.up()
    assert (follower.probe("/readyz"), follower.probe("/healthz"), follower.probe("/livez")) == (200, 200, 200)
    assert [_leads_by_metrics(each.metrics_url) for each in (leader, follower)] == [1.0, 0.0]
    reigns = Reigns(team.home, mark)
    reigns.prove()
    assert reigns.by(team.home.user(leader.name))
    assert reigns.by(team.home.user(follower.name)) == []
    seat.delete()
    seat.until_gone()


def wait_says(replica: OperatorProcess, text: str) -> None:
    replica.process.wait_ready(lambda: text in replica.said(), TAKEN_OVER)


def _holder(api: Api, home: Home) -> str:
    return str(api.call("GET", home.lease_path)["spec"].get("holderIdentity") or "")


def _leads_by_metrics(url: str) -> float:
    with urllib.request.urlopen(url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith("leader_election_master_status{")]
    return float(value)
