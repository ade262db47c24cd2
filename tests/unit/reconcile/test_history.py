"""What is remembered of rebuilds, as text and across slots (contract 2.6, 4.10.1)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from cocoon_operator.reconcile.history import Entry, read_history, write_history
from tests.model.world import World
from tests.unit.reconcile.histories import REBUILT, history, rebuild_events, remember
from tests.unit.reconcile.staging import (
    RUN_BOX,
    counters,
    heal,
    pod_fails,
    refuse,
    rest,
    roles_up,
)

MOMENT = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)


@pytest.mark.scenario("S221")
def test_a_history_is_read_back_as_it_was_written() -> None:
    stored = {"1": Entry(3, MOMENT), "2": Entry(1, MOMENT + timedelta(microseconds=5)), "12": Entry(4, MOMENT)}
    text = write_history(stored)
    assert read_history(text) == stored
    assert text is not None
    assert {slot: entry["count"] for slot, entry in json.loads(text).items()} == {"1": 3, "2": 1, "12": 4}


@pytest.mark.scenario("S224")
@pytest.mark.parametrize(
    "text", [None, "", "null", "{", "[]", "3", '"x"', '{"1": 3}', '{"1": {"count": "3"}}', '{"1": {"count": true}}']
)
def test_what_cannot_be_read_is_an_empty_history(text: str | None) -> None:
    assert read_history(text) == {}


@pytest.mark.scenario("S224")
def test_a_broken_entry_does_not_cost_the_others() -> None:
    text = '{"1": {"count": 2, "lastDeleted": "2026-11-30T10:00:00Z"}, "2": "x"}'
    assert read_history(text) == {"1": Entry(2, MOMENT)}


@pytest.mark.scenario("S234")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30T10:00:00.123456789Z", MOMENT + timedelta(microseconds=123456)),
        ("2026-11-30T12:00:00.5+02:00", MOMENT + timedelta(milliseconds=500)),
        ("2026-11-30T04:30:00-05:30", MOMENT),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_timestamps_of_the_go_operator_are_read(text: str, moment: datetime) -> None:
    assert read_history(json.dumps({"1": {"count": 2, "lastDeleted": text}})) == {"1": Entry(2, moment)}


@pytest.mark.scenario("S234")
@pytest.mark.parametrize("moment", [None, MOMENT, MOMENT + timedelta(microseconds=1234)])
def test_timestamps_written_here_are_rfc_3339(moment: datetime | None) -> None:
    text = write_history({"1": Entry(1, moment)})
    assert text is not None
    written = json.loads(text)["1"]["lastDeleted"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", written), written


@pytest.mark.scenario("S234")
@pytest.mark.asyncio
@pytest.mark.parametrize("last", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "x"])
async def test_a_timestamp_at_the_edge_of_time_holds_nothing_up(world: World, last: str) -> None:
    """The annotation is a user's to write: whatever is in it, a pass ends with a status, not with an exception."""
    await roles_up(world)
    world.annotate({keys.REBUILD_HISTORY: json.dumps({"1": {"count": 1, "lastDeleted": last}})})
    pod_fails(world, "demo-1")
    await world.run()
    assert world.phase == "Scaling"


@pytest.mark.scenario("S222")
@pytest.mark.asyncio
async def test_slots_that_the_spec_lacks_go_with_the_next_write(world: World) -> None:
    await roles_up(world, 2)
    remember(world, s1=1, s2=3, s3=4, s7=1, ago=20)
    pod_fails(world, "demo-1")
    await world.run()
    assert {slot: entry["count"] for slot, entry in history(world).items()} == {"1": 2, "2": 3}


@pytest.mark.scenario("S222")
@pytest.mark.asyncio
async def test_a_slot_that_was_scaled_away_comes_back_with_its_whole_budget(world: World) -> None:
    """The history goes with the slot (4.10): what was given up has nothing to do with what comes under its name later."""
    await roles_up(world, 2)
    remember(world, s2=4, ago=1)
    world.edit(agent={"replicas": 1})
    await rest(world)
    world.edit(agent={"replicas": 2})
    await rest(world)
    pod_fails(world, "demo-2")
    await world.run()
    assert rebuild_events(world) == [("Normal", "SubAgentRebuilding", "slot 2 attempt 1/4")]


@pytest.mark.scenario("S222", "S243")
@pytest.mark.asyncio
async def test_the_histories_of_agents_and_toolboxes_do_not_touch(world: World) -> None:
    await roles_up(world, 1, [RUN_BOX])
    remember(world, s1=2, ago=20)
    remember(world, keys.TOOLBOX_REBUILD_HISTORY, db=3, gone=1, ago=20)
    pod_fails(world, "demo-1")
    await world.run()
    assert {slot: entry["count"] for slot, entry in history(world).items()} == {"1": 3}
    stored = history(world, keys.TOOLBOX_REBUILD_HISTORY)
    assert {slot: entry["count"] for slot, entry in stored.items()} == {"db": 3, "gone": 1}


@pytest.mark.scenario("S228")
@pytest.mark.asyncio
async def test_a_history_that_cannot_be_written_deletes_nothing(world: World) -> None:
    await roles_up(world, 2)
    pod_fails(world, "demo-1")
    pod_fails(world, "demo-2")
    refuse(world, "patch demo", KubeError("etcd is gone", status=500))
    mark = world.mark
    outcome = await world.run()
    assert outcome.error is not None
    assert not any(write.startswith("delete") for write in world.writes(mark))
    assert counters(world) == {}
    assert rebuild_events(world) == []
    heal(world)
    await rest(world)
    assert world.phase == "Running"
    assert counters(world) == {REBUILT: 2}
