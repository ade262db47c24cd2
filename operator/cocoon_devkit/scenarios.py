"""The scenarios, admission rules and weaknesses of the contract, read from the text of ``docs/contract``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

BACKGROUND: Final = "*(background)*"
"""The mark of what nothing here can do: of older node agents, or of a webhook's own answers."""

_SCENARIO: Final = re.compile(r"[*-] \*\*([SN][0-9]{3}|V[0-9]{2})\b")
_RULE: Final = re.compile(r"\| ((?:G|PO|WL|CS|CH)-[0-9]{1,2}) \|")
_WEAKNESS: Final = re.compile(r"\| (W-[0-9]{2}) \|")


def _numbered(form: str, *ranges: range) -> tuple[str, ...]:
    return tuple(form.format(number) for number in chain(*ranges))


IDS: Final[Mapping[str, tuple[str, ...]]] = {
    "S": _numbered("S{:03}", range(1, 331)),
    "N": _numbered("N{:03}", range(1, 205)),
    "V": _numbered("V{:02}", range(1, 22), range(30, 66), range(70, 80)),
    "rules": (
        *_numbered("G-{}", range(1, 8)),
        *_numbered("PO-{}", range(1, 9)),
        *_numbered("WL-{}", range(1, 8)),
        *_numbered("CS-{}", range(1, 5), range(10, 20), range(30, 44), range(50, 58)),
        *_numbered("CH-{}", range(1, 11)),
    ),
}
"""What there is of each kind: scenarios of the operator (S), of the node agent (N), of admission (V), and its rules."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What ``docs/contract`` lists: every id with whether it is background, the weaknesses, and what is wrong with the text.

    A rule of admission counts as a scenario.
    """

    scenarios: dict[str, bool]
    weaknesses: tuple[str, ...]
    problems: tuple[str, ...]

    def counted(self, kind: str) -> tuple[str, ...]:
        """Return the ids of a kind of :data:`IDS` that count, background left out."""
        return tuple(name for name in IDS[kind] if self.scenarios.get(name) is False)


def read_contract(folder: Path) -> Contract:
    """Read every Markdown file of a folder.

    A scenario is listed where a list item starts with its id in bold, a rule and a weakness where a table's row does.
    """
    scenarios: dict[str, bool] = {}
    weaknesses: dict[str, str] = {}
    problems: list[str] = []
    for place, line in _lines(folder):
        if found := _SCENARIO.match(line) or _RULE.match(line):
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


def _gaps(listed: Iterable[str]) -> Iterator[str]:
    expected = set(chain(*IDS.values()))
    for name in sorted(expected - set(listed)):
        yield f"{name} is not listed"
    for name in sorted(set(listed) - expected):
        yield f"{name} is listed, but there is no such number"
