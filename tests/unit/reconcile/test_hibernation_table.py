"""The state machine of a CocoonHibernation, cell by cell, beside the tables of ``docs/design/hibernation.md`` (contract 5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cocoon_devkit import checkout
from cocoon_operator.api import conditions
from cocoon_operator.api.enums import HibernationPhase
from cocoon_operator.api.hibernation import Hibernation, hibernation_from_object
from cocoon_operator.reconcile.hibernation import machine
from cocoon_operator.reconcile.hibernation.holds import deciders, holds, spec_error
from cocoon_operator.reconcile.hibernation.machine import Limits, Row, Seen, Verdict, decide, turns

NOW = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)
LIMITS = Limits()
HIBERNATE_LIMIT, WAKE_LIMIT = timedelta(minutes=3), timedelta(minutes=5)

# What comes of each phase by what is seen. Two letters: before and after the limit. "-": what is looked at never leads there.
LETTERS = {
    "P": "Pending",
    "h": "Hibernating",
    "H": "Hibernated",
    "w": "Waking",
    "A": "Active",
    "F": "Failed",
}
ASKED_TO_SLEEP = """
                SAVED   UNANSWERED   MOVING   AWAKE   SUSPENDED   OVERRULED   ABSENT   GONE
(none)          H       h            h        -       -           P           P        P
Pending         H       h            h        -       -           P           P        P
Hibernating     H       h/F          h/F      -       -           P           P        P
Hibernated      H       H            h        -       -           P           H        P
Waking          -       w/F          w/F      A       P           P           P        P
Active          H       h            h        -       -           P           P        P
Failed          H       F/h          F/h      -       -           P           P        P
Snoozing        H       h            h        -       -           P           P        P
"""
ASKED_TO_WAKE = """
                SAVED   UNANSWERED   MOVING   AWAKE   SUSPENDED   OVERRULED   ABSENT   GONE
(none)          -       w            w        A       P           P           P        P
Pending         -       w            w        A       P           P           P        P
Hibernating     H       h/F          h/F      -       -           P           P        P
Hibernated      -       w            w        A       P           P           H        P
Waking          -       w/F          w/F      A       P           P           w        P
Active          A       A            A        A       A           A           A        A
Failed          -       F/w          F/w      A       P           P           P        P
Snoozing        -       w            w        A       P           P           P        P
"""
CLOCKS = ("fresh", "overdue", "no clock", "edited")


def cells() -> Iterator[tuple[str, str, str, str]]:
    """Every cell as (desire, phase, seen, what is written in it)."""
    for desire, table in (("Hibernate", ASKED_TO_SLEEP), ("Wake", ASKED_TO_WAKE)):
        head, *rows = table.strip().splitlines()
        for row in rows:
            phase, *entries = row.split()
            for seen, entry in zip(head.split(), entries, strict=True):
                yield desire, phase.removeprefix("(none)"), seen, entry


def asked(desire: str, phase: str, *, clock: str = "fresh") -> Hibernation:
    """A CocoonHibernation in a phase, one minute after the phase began, or long after the end of every limit."""
    since = NOW - (timedelta(hours=1) if clock == "overdue" else timedelta(minutes=1))
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": conditions.timestamp(since)}
    return hibernation_from_object(
        {
            "metadata": {"name": "demo-0", "namespace": "ns", "generation": 2},
            "spec": {"podRef": {"name": "demo-0"}, "desire": desire},
            "status": {
                "phase": phase,
                "observedGeneration": 1 if clock == "edited" else 2,
                "conditions": [] if clock == "no clock" else [ready],
            },
        }
    )


def expected(entry: str, phase: str, clock: str) -> str:
    """The letter of a cell that counts. An edit, or a failure of which nobody knows when it was, ends a failure's rest."""
    early, _, late = entry.partition("/")
    over = clock == "overdue" or (phase == "Failed" and clock in ("no clock", "edited"))
    return late if late and over else early


def test_every_cell_is_written_down() -> None:
    assert len(list(cells())) == 2 * 8 * len(Seen)
    assert {seen for _, _, seen, _ in cells()} == {seen.name for seen in Seen}


def outcome(desire: str, phase: str, seen: str, clock: str) -> str:
    """The letter of what the code says; a look that never comes to this is "-"."""
    try:
        verdict = decide(asked(desire, phase, clock=clock), Seen[seen], NOW, LIMITS)
    except AssertionError:
        return "-"
    return next(letter for letter, name in LETTERS.items() if name == verdict.phase)


@pytest.mark.scenario("S266", "S267", "S273", "S275", "S278", "S279", "S280", "S281", "S287", "S288", "S289", "S291")
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
def test_the_next_phase(desire: str, clock: str) -> None:
    row = [(phase, seen, entry) for asks, phase, seen, entry in cells() if asks == desire]
    wanted = {(phase, seen): expected(entry, phase, clock) for phase, seen, entry in row}
    assert {(phase, seen): outcome(desire, phase, seen, clock) for phase, seen, _ in row} == wanted


def test_a_timer_is_asked_for_where_time_alone_changes_the_answer() -> None:
    """A transition and the rest of a failure end by time; everything else waits for an event (W-49)."""
    for desire, phase, seen, entry in cells():
        for clock in CLOCKS:
            letter = expected(entry, phase, clock)
            waits = letter in "hwF" and not (phase == "Waking" and seen == "ABSENT" and desire == "Wake")
            if letter != "-":
                verdict = decide(asked(desire, phase, clock=clock), Seen[seen], NOW, LIMITS)
                assert (verdict.wait is not None) == waits, (desire, phase, seen, clock)
                assert verdict.wait is None or verdict.wait > timedelta(), (desire, phase, seen, clock)


@pytest.mark.scenario("S278", "S287")
@pytest.mark.parametrize(
    ("desire", "phase", "limit"),
    [
        ("Hibernate", "Hibernating", HIBERNATE_LIMIT),
        ("Wake", "Hibernating", HIBERNATE_LIMIT),
        ("Wake", "Waking", WAKE_LIMIT),
        ("Hibernate", "Waking", WAKE_LIMIT),
        ("Hibernate", "Failed", 2 * HIBERNATE_LIMIT),
        ("Wake", "Failed", 2 * WAKE_LIMIT),
    ],
)
def test_the_limit_counts_from_the_beginning_of_the_phase(desire: str, phase: str, limit: timedelta) -> None:
    """A failure rests as long again, so for it the limit counts twice (W-19)."""
    target, began = asked(desire, phase), NOW - timedelta(minutes=1)
    last = timedelta(seconds=1)
    assert decide(target, Seen.MOVING, began, LIMITS).wait == limit
    assert decide(target, Seen.MOVING, NOW, LIMITS).wait == limit - timedelta(minutes=1)
    assert decide(target, Seen.MOVING, began + limit - last, LIMITS) == Verdict(phase, last)
    over = decide(target, Seen.MOVING, began + limit, LIMITS)
    assert over.phase != phase
    assert over.wait == (limit / 2 if phase == "Failed" else limit)


def test_without_a_clock_a_transition_has_its_whole_limit() -> None:
    limits = Limits(timedelta(seconds=7), timedelta(seconds=9))
    for desire, phase, wait in (("Hibernate", "Hibernating", limits.hibernate), ("Wake", "Waking", limits.wake)):
        assert decide(asked(desire, phase, clock="no clock"), Seen.MOVING, NOW, limits) == Verdict(phase, wait)


@pytest.mark.scenario("S270")
@pytest.mark.parametrize("phase", [line.split()[0] for line in ASKED_TO_SLEEP.strip().splitlines()[1:]])
def test_an_unknown_desire_is_an_error_in_every_phase_and_keeps_nothing_asleep(phase: str) -> None:
    """The table is not asked: whatever was seen, the phase becomes ``Failed``."""
    target = asked("Zzz", phase.removeprefix("(none)"))
    assert spec_error(target) == 'unknown desire "Zzz"'
    assert not holds(target)


@pytest.mark.parametrize(
    ("desire", "phase", "asleep"),
    [
        ("Hibernate", "", True),
        ("Hibernate", "Active", True),
        ("Hibernate", "Failed", True),
        ("Hibernate", "Waking", False),
        ("Wake", "Hibernating", True),
        ("Wake", "Hibernated", False),
        ("Wake", "", False),
    ],
)
def test_it_holds_its_vm_while_it_asks_for_sleep_or_is_about_to_sleep(desire: str, phase: str, asleep: bool) -> None:
    assert holds(asked(desire, phase)) is asleep


@pytest.mark.scenario("S281", "S291")
@pytest.mark.parametrize(
    ("desire", "before", "after", "turn"),
    [
        ("Wake", "Hibernating", "Hibernated", True),
        ("Wake", "Hibernating", "Failed", True),
        ("Hibernate", "Waking", "Active", True),
        ("Hibernate", "Waking", "Failed", True),
        ("Hibernate", "Waking", "Pending", True),
        ("Wake", "Hibernated", "Waking", False),
        ("Hibernate", "Hibernating", "Hibernated", False),
        ("Wake", "Waking", "Active", False),
    ],
)
def test_a_reversed_desire_counts_when_the_transition_is_over(desire: str, before: str, after: str, turn: bool) -> None:
    assert turns(asked(desire, before), asked(desire, after)) is turn


@pytest.mark.scenario("S302", "S303", "S304")
def test_of_several_the_oldest_that_lives_decides() -> None:
    def aged(name: str, created: str, **change: Any) -> Hibernation:
        return replace(asked("Wake", ""), name=name, uid=name, creation_timestamp=created, **change)

    older, younger = aged("b", "2026-01-01T00:00:00Z"), aged("a", "2026-01-02T00:00:00Z")
    going = aged("c", "2025-01-01T00:00:00Z", deletion_timestamp="2026-01-03T00:00:00Z")
    nameless = aged("d", "2024-01-01T00:00:00Z", pod_name="")
    twin = aged("a2", "2026-01-01T00:00:00Z", pod_name="demo-1")
    twins = [replace(twin, uid="2", name="x"), replace(twin, uid="1", name="y")]
    assert deciders([younger, going, nameless, older]) == {"demo-0": older}
    assert deciders([going, nameless]) == {}
    assert deciders([older, *twins])["demo-1"].name == "y"


# -- the design's own tables -------------------------------------------------------------------------------------------

_SEEN = {
    "overruled by an older one; neither VM nor tag there": {Seen.OVERRULED, Seen.GONE},
    "saved: asleep as asked, tag seen": {Seen.SAVED},
    "asleep, the registry does not say": {Seen.UNANSWERED},
    "asleep and not said, or anything in between": {Seen.MOVING, Seen.UNANSWERED},
    "no pod, or one without a VM": {Seen.ABSENT},
    "anything": None,
    "overruled; the set is suspended, or gives the VM up; neither VM nor tag there": {
        Seen.OVERRULED,
        Seen.SUSPENDED,
        Seen.GONE,
    },
    "awake: proven live, its tag dropped or the drop on record as owed": {Seen.AWAKE},
    "anything in between": {Seen.MOVING, Seen.UNANSWERED},
}
_WORDS = re.compile(r"`(\w+)`")


def documented(title: str) -> list[Row]:
    """The rows of the table under a line of ``docs/design/hibernation.md`` that begins with ``title``."""
    page = (checkout.ROOT / "docs" / "design" / "hibernation.md").read_text("utf-8")
    _, _, rest = page.partition(f"\n{title}")
    lines = [line for line in rest.split("\n\n")[1].splitlines() if line.startswith("|")]
    rows, seen = [], None
    for line in lines[2:]:
        look, phases, after, late = (cell.strip() for cell in line.strip("|").split("|"))
        seen = _SEEN[look] if look else seen
        assert not phases.startswith("any") or not _WORDS.findall(phases)
        assert _WORDS.findall(after) or after.startswith("stays")
        rows.append(Row(seen, _WORDS.findall(phases) or None, _phase(after), _phase(late)))
    return rows


def _phase(cell: str) -> HibernationPhase | None:
    found = _WORDS.findall(cell)
    return HibernationPhase(found[0]) if found else None


def plain(rows: list[Row] | tuple[Row, ...]) -> list[tuple[object, ...]]:
    """Rows that can be compared, whatever kind of collection they hold."""
    return [
        (row.seen and frozenset(row.seen), row.phases and frozenset(map(str, row.phases)), row.next, row.late)
        for row in rows
    ]


def test_the_design_and_the_code_have_the_same_rows() -> None:
    assert plain(documented("Asked to sleep")) == plain(machine.HIBERNATE)
    assert plain(documented("Asked to wake")) == plain(machine.WAKE)
