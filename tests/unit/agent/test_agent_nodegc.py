"""The node's garbage collection (R4.11): limits, their union, and who is spared."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cocoon_devkit.agent import nodegc
from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.journal import Journal, NodeJournal
from cocoon_devkit.agent.records import Memory, SnapshotRecord
from cocoon_devkit.agent.settings import Speeds

GI = 1 << 30
DAY = 86_400.0


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """Snapshots a, b and c of 4 Gi each; a was used least recently."""
    engine = Engine(tmp_path, Speeds(), Faults(), NodeJournal(Journal(), "n1"))
    for name, days in (("a", 8), ("b", 2), ("c", 1)):
        snapshot = SnapshotRecord(
            name=name,
            id="",
            origin="",
            size=4 * GI,
            created_at=0,
            last_accessed_at=0,
            hypervisor="",
            image="",
            cpu=1,
            memory_bytes=0,
            storage_bytes=0,
            memory=Memory(),
        )
        engine.import_snapshot(snapshot)
        engine.change_snapshot(name, last_accessed_at=time.time() - days * DAY)
    return engine


@pytest.mark.scenario("N117", "N118", "N119")
@pytest.mark.parametrize(
    ("limits", "victims"),
    [
        ({"size": 8 * GI}, ["a"]),
        ({"size": 12 * GI}, []),
        ({"age": 7 * DAY}, ["a"]),
        ({"keep": 1}, ["a", "b"]),
        ({"keep": 0}, ["a", "b", "c"]),
        ({"age": 7 * DAY, "size": 4 * GI}, ["a", "b"]),
        ({"age": 1.5 * DAY, "size": 8 * GI}, ["a", "b"]),
        ({}, ["a", "b", "c"]),
    ],
)
def test_limits_evict_the_least_recently_used(engine: Engine, limits: dict[str, Any], victims: list[str]) -> None:
    assert nodegc.collect(engine, **limits) == victims
    assert {each.name for each in engine.snapshots()} == {"a", "b", "c"} - set(victims)


@pytest.mark.scenario("N118")
def test_an_unknown_access_time_is_the_oldest(engine: Engine) -> None:
    engine.change_snapshot("c", last_accessed_at=0)
    assert nodegc.collect(engine, size=8 * GI) == ["c"]


@pytest.mark.scenario("N121")
def test_what_is_leased_or_pending_is_spared(engine: Engine) -> None:
    engine.change_snapshot("a", leased=True)
    engine.change_snapshot("b", pending=True)
    assert nodegc.collect(engine) == ["c"]


@pytest.mark.scenario("N122")
def test_a_dry_run_only_tells(engine: Engine) -> None:
    assert nodegc.collect(engine, size=8 * GI, dry_run=True) == ["a"]
    assert len(engine.snapshots()) == 3


@pytest.mark.scenario("N122")
@pytest.mark.parametrize("limits", [{"snapshot": False, "size": 1}, {"size": -1}, {"keep": -1}, {"age": -1.0}])
def test_limits_that_make_no_sense_are_errors(engine: Engine, limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limit on snapshots"):
        nodegc.collect(engine, **limits)
    assert nodegc.collect(engine, snapshot=False) == []
