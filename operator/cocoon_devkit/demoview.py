"""How the demo looks: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from typing_extensions import override

from cocoon_devkit.demoworld import Row

COLUMNS: Final = (
    ("SECONDS", 8),
    ("SET", 15),
    ("PHASE", 11),
    ("READY", 6),
    ("POD ON NODE", 12),
    ("VM", 17),
    ("TAG hibernate", 14),
    ("CACHE ON NODE", 13),
)
_WIDTH: Final = 100


@dataclass(frozen=True)
class Outcome:
    """What one transition took. ``writes`` are the operator's requests to the API server, ``budget`` their number by design."""

    title: str
    seconds: float
    writes: Sequence[str]
    budget: int


class View:
    """Plain lines, each printed once: readable in a log."""

    def say(self, text: str) -> None:
        """A line about what goes on."""
        print(text, flush=True)

    def step(self, number: int, title: str, sentence: str) -> None:
        """The beginning of a step: what it shows, and what will prove it."""
        self.say(f"\n{number}. {title}")
        self.say(textwrap.fill(sentence, _WIDTH, initial_indent="   ", subsequent_indent="   "))

    def command(self, text: str) -> None:
        """What a user would type."""
        self.say(f"   $ {text}")

    def begin(self) -> None:
        """The beginning of a table."""
        self.say("   " + _line([title for title, _ in COLUMNS]))

    def row(self, seconds: float, row: Row) -> None:
        """Something has changed."""
        self.say("   " + _line([f"+{seconds:.1f}", *astuple(row)]))

    def end(self) -> None:
        """The end of a table."""

    def proof(self, text: str) -> None:
        """Something was looked at, and it is so."""
        self.say(f"   ✓ {text}")

    def writes(self, outcome: Outcome) -> None:
        """What the operator wrote."""
        self.say(f"   {len(outcome.writes)} API writes: {', '.join(outcome.writes) or 'none'}")

    def summary(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """The end of a demo that showed all it promised."""
        self.say(f"\n{'TRANSITION':<34}{'SECONDS':>8}{'API WRITES':>12}{'BUDGET':>8}")
        for each in outcomes:
            self.say(f"{each.title:<34}{each.seconds:>8.1f}{len(each.writes):>12}{each.budget:>8}")
        self.say(f"\nEvery state was reached, {seconds:.0f} seconds after the start.")


class TerminalView(View):
    """The same in colour; the table of a step grows in place."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._table = Table()

    @override
    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    @override
    def step(self, number: int, title: str, sentence: str) -> None:
        self._console.print(f"\n{number}. {title}", style="bold cyan", markup=False)
        self.say(textwrap.fill(sentence, _WIDTH, initial_indent="   ", subsequent_indent="   "))

    @override
    def command(self, text: str) -> None:
        self._console.print(f"   $ {text}", style="bold", markup=False, soft_wrap=True)

    @override
    def begin(self) -> None:
        self._table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
        for title, width in COLUMNS:
            self._table.add_column(title, min_width=width)
        self._live = Live(self._table, console=self._console, auto_refresh=False)
        self._live.start()

    @override
    def row(self, seconds: float, row: Row) -> None:
        self._table.add_row(f"+{seconds:.1f}", *astuple(row))
        if self._live is not None:
            self._live.refresh()

    @override
    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None

    @override
    def proof(self, text: str) -> None:
        self._console.print(f"   ✓ {text}", style="green", markup=False)

    @override
    def writes(self, outcome: Outcome) -> None:
        style = "green" if len(outcome.writes) <= outcome.budget else "yellow"
        words = f"   {len(outcome.writes)} API writes: {', '.join(outcome.writes) or 'none'}"
        self._console.print(words, style=style, markup=False)


def view_for_output() -> View:
    """A live table where somebody watches, else plain lines."""
    return TerminalView() if sys.stdout.isatty() else View()


def _line(cells: Sequence[str]) -> str:
    padded = [cell.ljust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)]
    return "  ".join(padded).rstrip()
