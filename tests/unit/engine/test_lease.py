"""Two candidates, one Lease: client-go's rules, on clocks that the test turns."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.engine.lease import Elector, Periods, new_identity
from tests.unit.kubernetes.kube_api_server import Fault, KubeApiServer
from tests.unit.kubernetes.waiting import until

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/system/leases/{keys.LEASE_NAME}"
QUICK = Periods(lease=0.6, renew_deadline=0.4, retry=0.05)


class Watch:
    """A wall clock, which may be wrong by ``ahead`` seconds, and a stop watch."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.passed = 0.0
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.passed + self._ahead)

    def timer(self) -> float:
        return self.passed


def elector(client: KubeClient, watch: Watch, identity: str) -> Elector:
    return Elector(client, watch, namespace="system", identity=identity, timer=watch.timer)


def spec(api: KubeApiServer) -> dict[str, Any]:
    value = api.objects[LEASE]["spec"]
    assert isinstance(value, dict)
    return value


def foreign(holder: str = "go", seconds: int = 15) -> dict[str, Any]:
    return {
        "metadata": {"name": keys.LEASE_NAME, "namespace": "system", "labels": {"kept": "yes"}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "acquireTime": "2020-01-01T00:00:00.000000Z",
            "renewTime": "2020-01-01T00:00:00.000000Z",
            "leaseTransitions": 4,
        },
    }


@pytest.mark.asyncio
async def test_a_lease_that_nobody_made_is_made(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one = elector(client, watch, "one")
    assert await one._try()
    assert spec(api) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert one.remaining() == 10.0


@pytest.mark.asyncio
async def test_a_renewal_is_one_write_and_moves_only_the_renew_time(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one = elector(client, watch, "one")
    await one._try()
    api.requests.clear()
    watch.passed = 2.000001
    assert await one._try()
    assert api.requests == [("PUT", LEASE)]
    assert spec(api)["renewTime"] == "2026-01-01T00:00:02.000001Z"
    assert spec(api)["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert spec(api)["leaseTransitions"] == 0


@pytest.mark.asyncio
async def test_another_holder_is_judged_by_our_own_watch_not_by_its_clock(
    api: KubeApiServer, client: KubeClient
) -> None:
    api.put(LEASE, foreign())
    watch = Watch()
    one = elector(client, watch, "one")
    assert not await one._try()
    watch.passed = 14.9
    assert not await one._try()
    watch.passed = 15.0
    assert await one._try()
    assert spec(api)["holderIdentity"] == "one"
    assert spec(api)["leaseTransitions"] == 5
    assert spec(api)["acquireTime"] == "2026-01-01T00:00:15.000000Z"
    assert api.objects[LEASE]["metadata"]["labels"] == {"kept": "yes"}


@pytest.mark.asyncio
@pytest.mark.parametrize("ahead", [-86_400.0, -30.0, 30.0, 86_400.0])
async def test_wall_clocks_that_differ_let_nobody_win_early_or_late(
    api: KubeApiServer, client: KubeClient, ahead: float
) -> None:
    right, wrong = Watch(), Watch(ahead)
    one, two = elector(client, right, "one"), elector(client, wrong, "two")
    await one._try()
    for seconds in (0.0, 2.0, 4.0):
        right.passed = wrong.passed = seconds
        assert await one._try()
        assert not await two._try()
    right.passed = wrong.passed = 18.9
    assert not await two._try()
    right.passed = wrong.passed = 19.0
    assert await two._try()
    assert not await one._try()


@pytest.mark.asyncio
async def test_a_holder_that_renews_is_waited_for(api: KubeApiServer, client: KubeClient) -> None:
    api.put(LEASE, foreign())
    watch = Watch()
    one = elector(client, watch, "one")
    for _ in range(4):
        watch.passed += 10
        api.patch(LEASE, {"spec": {"renewTime": f"2020-01-01T00:00:{watch.passed:09.6f}Z"}})
        assert not await one._try()


@pytest.mark.asyncio
async def test_a_label_on_the_lease_is_no_renewal(api: KubeApiServer, client: KubeClient) -> None:
    api.put(LEASE, foreign())
    watch = Watch()
    one = elector(client, watch, "one")
    assert not await one._try()
    watch.passed = 10
    api.patch(LEASE, {"metadata": {"labels": {"new": "label"}}})
    assert not await one._try()
    watch.passed = 15
    assert await one._try()


@pytest.mark.asyncio
async def test_a_released_lease_is_taken_at_once(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one, two = elector(client, watch, "one"), elector(client, watch, "two")
    await one._try()
    assert not await two._try()
    await one.release()
    assert not one.leading
    assert spec(api)["holderIdentity"] == ""
    assert await two._try()
    assert spec(api)["leaseTransitions"] == 1


@pytest.mark.asyncio
async def test_an_acquisition_that_was_cancelled_on_the_wire_is_given_back(
    api: KubeApiServer, client: KubeClient
) -> None:
    one = elector(client, Watch(), "one")
    api.faults.append(Fault("hang", method="POST"))
    acquiring = asyncio.create_task(one.acquire())
    await until(lambda: LEASE in api.objects)
    acquiring.cancel()
    await asyncio.gather(acquiring, return_exceptions=True)
    await one.release()
    assert spec(api)["holderIdentity"] == ""


@pytest.mark.asyncio
async def test_a_candidate_that_never_led_leaves_the_lease_of_another_alone(
    api: KubeApiServer, client: KubeClient
) -> None:
    api.put(LEASE, foreign())
    one = elector(client, Watch(), "one")
    assert not await one._try()
    await one.release()
    assert api.count("PUT") == 0


@pytest.mark.asyncio
async def test_a_lease_that_was_lost_is_left_to_run_out(api: KubeApiServer, client: KubeClient) -> None:
    """What was cut off may still arrive: nobody shall win before the Lease's whole time is over."""
    one = Elector(client, Watch(), namespace="system", identity="one", periods=QUICK)
    await one.acquire()
    api.faults += [Fault("hang", method="PUT") for _ in range(20)]
    async with asyncio.timeout(3):
        await one.hold()
    api.faults.clear()
    await one.release()
    assert spec(api)["holderIdentity"] == "one"


@pytest.mark.asyncio
async def test_a_leader_makes_a_lease_again_that_somebody_deleted(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one = elector(client, watch, "one")
    await one._try()
    api.remove(LEASE)
    watch.passed = 2.0
    assert await one._try()
    assert spec(api)["holderIdentity"] == "one"
    assert one.remaining() == 10.0


@pytest.mark.asyncio
async def test_i9_a_deleted_lease_lets_nobody_win_who_has_seen_its_leader(
    api: KubeApiServer, client: KubeClient
) -> None:
    watch = Watch()
    one, two = elector(client, watch, "one"), elector(client, watch, "two")
    await one._try()
    assert not await two._try()
    api.remove(LEASE)
    watch.passed = 14.9
    assert not await two._try()
    assert LEASE not in api.objects
    watch.passed = 15.0
    assert not one.leading
    assert await two._try()


@pytest.mark.asyncio
async def test_i9_a_leader_whose_lease_was_deleted_and_made_by_another_has_lost_it(
    api: KubeApiServer, client: KubeClient
) -> None:
    """The Go operator makes a Lease that is not there at once."""
    one = Elector(client, Watch(), namespace="system", identity="one", periods=QUICK)
    await one.acquire()
    api.remove(LEASE)
    api.put(LEASE, foreign())
    async with asyncio.timeout(3):
        await one.hold()
    assert spec(api)["holderIdentity"] == "go"


@pytest.mark.asyncio
async def test_others_are_told_whole_seconds_never_less_than_the_lease_lasts(
    api: KubeApiServer, client: KubeClient
) -> None:
    periods = Periods(lease=2.5, renew_deadline=1.5, retry=0.5)
    one = Elector(client, Watch(), namespace="system", identity="one", periods=periods)
    await one._try()
    assert spec(api)["leaseDurationSeconds"] == 3


@pytest.mark.asyncio
async def test_of_two_that_try_at_once_one_wins(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    api.put(LEASE, foreign(holder=""))
    one, two = elector(client, watch, "one"), elector(client, watch, "two")
    taken = await asyncio.gather(one._try(), two._try())
    assert sorted(taken) == [False, True]
    assert spec(api)["holderIdentity"] == ("one" if taken[0] else "two")


@pytest.mark.asyncio
async def test_i9_the_leader_ends_before_another_can_win(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one, two = elector(client, watch, "one"), elector(client, watch, "two")
    await one._try()
    await two._try()
    watch.passed = 9.9
    assert one.leading
    assert not await two._try()
    watch.passed = 10.0
    assert not one.leading
    assert not await two._try()
    watch.passed = 15.0
    assert await two._try()
    assert not await one._try()


@pytest.mark.asyncio
async def test_a_renewal_counts_from_its_start_not_from_its_answer(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one = elector(client, watch, "one")
    await one._try()

    def slow(_: object) -> None:
        watch.passed += 5

    api.on_request = slow
    watch.passed = 1.0
    assert await one._try()
    assert one.remaining() == 10.0 - 5


@pytest.mark.asyncio
async def test_a_lost_answer_of_a_renewal_is_no_loss_of_the_lease(api: KubeApiServer, client: KubeClient) -> None:
    watch = Watch()
    one = elector(client, watch, "one")
    await one._try()
    api.faults.append(Fault("lose", method="PUT"))
    watch.passed = 2.0
    assert await one._try()
    assert one.remaining() == 10.0


@pytest.mark.asyncio
async def test_holding_ends_when_another_took_over(api: KubeApiServer, client: KubeClient) -> None:
    one = Elector(client, Watch(), namespace="system", identity="one", periods=QUICK)
    await one.acquire()
    api.put(LEASE, foreign("thief"))
    async with asyncio.timeout(3):
        await one.hold()
    assert not one.leading
    assert spec(api)["holderIdentity"] == "thief"


@pytest.mark.asyncio
async def test_holding_ends_when_the_server_stays_silent(api: KubeApiServer, client: KubeClient) -> None:
    one = Elector(client, Watch(), namespace="system", identity="one", periods=QUICK)
    await one.acquire()
    api.faults += [Fault("hang", method="PUT") for _ in range(20)]
    async with asyncio.timeout(3):
        await one.hold()
    assert not one.leading


@pytest.mark.asyncio
async def test_holding_survives_a_short_outage(api: KubeApiServer, client: KubeClient) -> None:
    one = Elector(client, Watch(), namespace="system", identity="one", periods=QUICK)
    await one.acquire()
    api.faults += [Fault("status", 500, method="PUT") for _ in range(2)]
    holding = asyncio.create_task(one.hold())
    await asyncio.sleep(3 * QUICK.renew_deadline)
    assert not holding.done()
    assert one.leading
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await one.release()
    assert spec(api)["holderIdentity"] == ""


def test_periods_that_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="outlast"):
        Periods(lease=10, renew_deadline=10)


def test_every_start_is_another_candidate() -> None:
    assert new_identity() != new_identity()
