"""The scenarios and weaknesses of the contract, read from the text of ``docs/contract``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOTALS: Final = {"S": 330, "N": 204}
"""How many scenarios there are: S001 to S330 of the operator, N001 to N204 of the node agent."""

BACKGROUND: Final = "*(background)*"
"""The mark of a scenario that speaks of older node agents alone, which nothing here builds."""

_SCENARIO: Final = re.compile(r"[*-] \*\*([SN][0-9]{3})\b")
_WEAKNESS: Final = re.compile(r"\| (W-[0-9]{2}) \|")


@dataclass(frozen=True, slots=True)
class Contract:
    """What ``docs/contract`` lists: every id with whether it is background, the weaknesses, and what is wrong with the text."""

    scenarios: dict[str, bool]
    weaknesses: tuple[str, ...]
    problems: tuple[str, ...]

    def counted(self, kind: str) -> tuple[str, ...]:
        """Return the ids of a kind (``S`` or ``N``) that count, background left out."""
        return tuple(name for name, background in self.scenarios.items() if name.startswith(kind) and not background)


def read_contract(folder: Path) -> Contract:
    """Read every Markdown file of a folder. An id is listed where a list item starts with it in bold."""
    scenarios: dict[str, bool] = {}
    weaknesses: dict[str, str] = {}
    problems: list[str] = []
    for place, line in _lines(folder):
        if found := _SCENARIO.match(line):
            if found[1] in scenarios:
                problems.append(f"{place}: {found[1]} is listed twice")
            scenarios[found[1]] = BACKGROUND in line
        elif found := _WEAKNESS.match(line):
            if found[1] in weaknesses:
                problems.append(f"{place}: {found[1]} is listed twice, at first in {weaknesses[found[1]]}")
            weaknesses[found[1]] = place
    problems.extend(_gaps(scenarios))
    return Contract(dict(sorted(scenarios.items())), tuple(sorted(weaknesses)), tuple(problems))


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.glob("*.md")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            yield f"{file.name}:{number}", line


def _gaps(scenarios: dict[str, bool]) -> Iterator[str]:
    expected = {f"{kind}{number:03}" for kind, total in TOTALS.items() for number in range(1, total + 1)}
    for name in sorted(expected - scenarios.keys()):
        yield f"{name} is not listed"
    for name in sorted(scenarios.keys() - expected):
        yield f"{name} is listed, but there is no such number"
