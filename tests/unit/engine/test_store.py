"""The newest version wins, whatever order news comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocoon_operator.engine.store import Change, Identity, Key, Store


@dataclass(frozen=True)
class Thing:
    name: str
    uid: str
    version: int
    team: str = ""


def identify(thing: Thing) -> Identity:
    return Identity(Key("ns", thing.name), thing.uid, thing.version)


def store() -> Store[Thing]:
    return Store(identify, lambda thing: [Key("ns", thing.team)] if thing.team else [])


A = Key("ns", "a")


def test_an_older_version_is_no_news() -> None:
    things = store()
    newer = Thing("a", "1", 7)
    assert things.apply(newer) == Change(None, newer)
    assert things.apply(Thing("a", "1", 6)) is None
    assert things.apply(Thing("a", "1", 7)) is None
    assert things.get(A) == newer


def test_a_late_event_does_not_bring_a_deleted_object_back() -> None:
    things = store()
    things.apply(Thing("a", "1", 5))
    assert things.remove(Thing("a", "1", 8)) == Change(Thing("a", "1", 5), None)
    assert things.apply(Thing("a", "1", 7)) is None
    assert things.get(A) is None


def test_an_object_that_matches_the_selector_again_is_news() -> None:
    things = store()
    things.apply(Thing("a", "1", 5))
    things.remove(Thing("a", "1", 8))
    assert things.apply(Thing("a", "1", 9)) is not None


def test_after_a_live_404_no_version_of_the_uid_is_news() -> None:
    things = store()
    things.apply(Thing("a", "1", 5))
    assert things.forget(A, "1") is not None
    assert things.apply(Thing("a", "1", 99)) is None
    assert things.apply(Thing("a", "2", 100)) is not None


def test_a_live_404_of_one_uid_spares_its_namesake() -> None:
    things = store()
    things.apply(Thing("a", "2", 9))
    assert things.forget(A, "1") is None
    assert things.get(A) == Thing("a", "2", 9)


def test_the_end_of_a_namesake_from_before_spares_the_new_one() -> None:
    things = store()
    things.apply(Thing("a", "2", 9))
    assert things.remove(Thing("a", "1", 8)) is None
    assert things.get(A) == Thing("a", "2", 9)


def test_a_list_removes_what_it_lacks_but_not_what_is_newer() -> None:
    things = store()
    things.apply(Thing("a", "1", 5))
    things.apply(Thing("own", "2", 12))
    changes = things.replace([Thing("b", "3", 8)], "10")
    assert sorted(changes, key=str) == sorted(
        [Change(None, Thing("b", "3", 8)), Change(Thing("a", "1", 5), None)], key=str
    )
    assert things.get(Key("ns", "own")) == Thing("own", "2", 12)


def test_what_a_list_lacked_is_not_revived_by_an_event_from_before_it() -> None:
    things = store()
    things.replace([], "10")
    assert things.apply(Thing("a", "1", 9)) is None
    assert things.apply(Thing("a", "2", 11)) is not None


def test_a_list_does_not_roll_an_own_write_back() -> None:
    things = store()
    things.apply(Thing("a", "1", 12))
    assert things.replace([Thing("a", "1", 5)], "10") == []
    assert things.get(A) == Thing("a", "1", 12)


def test_versions_that_went_back_start_everything_over() -> None:
    things = store()
    things.replace([Thing("a", "1", 900), Thing("b", "2", 901)], "1000")
    changes = things.replace([Thing("a", "1", 50)], "60")
    assert changes == [Change(Thing("a", "1", 900), Thing("a", "1", 50)), Change(Thing("b", "2", 901), None)]
    assert things.apply(Thing("a", "1", 70)) is not None


def test_groups_follow_the_object() -> None:
    things = store()
    things.apply(Thing("a", "1", 5, "red"))
    things.apply(Thing("b", "2", 6, "red"))
    assert [thing.name for thing in things.grouped(Key("ns", "red"))] == ["a", "b"]
    things.apply(Thing("a", "1", 7, "blue"))
    assert [thing.name for thing in things.grouped(Key("ns", "red"))] == ["b"]
    assert [thing.name for thing in things.grouped(Key("ns", "blue"))] == ["a"]
    things.apply(Thing("a", "1", 8))
    assert things.grouped(Key("ns", "blue")) == []
    things.remove(Thing("b", "2", 9, "red"))
    assert things.grouped(Key("ns", "red")) == []


@given(st.data())
def test_any_order_of_the_same_news_ends_the_same(data: Any) -> None:
    """A history of one name, its events delivered out of order and twice, ends at its last state."""
    history: list[tuple[str, Thing]] = []
    version, uid, alive = 1, 1, False
    for _ in range(data.draw(st.integers(1, 8))):
        version += 1
        if not alive:
            history.append(("seen", Thing("a", str(uid), version)))
            alive = True
        elif data.draw(st.booleans()):
            history.append(("seen", Thing("a", str(uid), version)))
        else:
            history.append(("gone", Thing("a", str(uid), version)))
            uid, alive = uid + 1, False
    things = store()
    for kind, thing in data.draw(st.permutations(history + history)):
        if kind == "seen":
            things.apply(thing)
        else:
            things.remove(thing)
    last_kind, last = history[-1]
    assert things.get(A) == (last if last_kind == "seen" else None)


@pytest.mark.parametrize("count", [20_001])
def test_tombstones_are_bounded(count: int) -> None:
    things = store()
    for index in range(count):
        things.forget(A, str(index))
    assert len(things._buried) == 20_000
