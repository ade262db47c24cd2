"""Which scenario of the contract has which test.

Usage: ``python -m cocoon_devkit.contract [--update]``. Prints a table of scenarios, one of weaknesses, what is wrong, and as
its last line how much is covered. ``docs/contract/closed.txt`` records the ids that have a test, so that none loses it
unnoticed; ``--update`` writes that file again.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cocoon_devkit import checkout
from cocoon_devkit.markers import read_proofs
from cocoon_devkit.scenarios import IDS, Contract, read_contract

DOCS: Final = checkout.ROOT / "docs" / "contract"
TESTS: Final = checkout.ROOT / "tests"
CLOSED: Final = "closed.txt"

_UPDATE: Final = "python -m cocoon_devkit.contract --update"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The contract beside its tests. ``proofs`` and ``fixes`` map an id, known or not, to the places of its tests."""

    contract: Contract
    proofs: Mapping[str, Sequence[str]]
    fixes: Mapping[str, Sequence[str]]
    closed: tuple[str, ...]
    unreadable: tuple[str, ...]

    @property
    def tested(self) -> tuple[str, ...]:
        """The ids of the contract that have a test, sorted."""
        return tuple(name for name in self.contract.scenarios if self.proofs.get(name))

    def problems(self) -> Iterator[str]:
        """Yield what makes the table untrue: text or marks that are wrong, and ids whose test was lost or is not recorded."""
        yield from self.contract.problems
        yield from self.unreadable
        known = {*self.contract.scenarios, *self.contract.weaknesses}
        for name, places in sorted({**self.proofs, **self.fixes}.items()):
            if name not in known:
                yield f"{places[0]}: docs/contract does not list {name}"
        yield from self._unrecorded()

    def summary(self) -> str:
        """Return the closing line."""
        parts = []
        for kind in IDS:
            counted = self.contract.counted(kind)
            parts.append(f"{kind}: {sum(name in self.tested for name in counted)}/{len(counted)} tested")
        return ", ".join(parts)

    def scenario_rows(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield id, state and tests of every scenario."""
        for name, background in self.contract.scenarios.items():
            places = self.proofs.get(name, ())
            yield name, "background" if background else _state(places), places

    def weakness_rows(self) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield id, state and tests of every weakness."""
        for name in self.contract.weaknesses:
            places = self.fixes.get(name, ())
            yield name, _state(places), places

    def _unrecorded(self) -> Iterator[str]:
        if list(self.closed) != sorted(set(self.closed)):
            yield f"{CLOSED} is not sorted: {_UPDATE}"
        for name in sorted(set(self.closed) - set(self.tested)):
            yield f"{name} is closed, but no test carries its id any more"
        if new := sorted(set(self.tested) - set(self.closed)):
            yield f"tested, but not in {CLOSED}: {', '.join(new)}; {_UPDATE}"


def survey(docs: Path = DOCS, tests: Path = TESTS) -> Coverage:
    """Read both sides."""
    found = read_proofs(tests)
    file = docs / CLOSED
    return Coverage(
        contract=read_contract(docs),
        proofs=_places((proof.place, proof.scenarios) for proof in found.proofs),
        fixes=_places((proof.place, proof.weaknesses) for proof in found.proofs),
        closed=tuple(file.read_text("utf-8").split()) if file.exists() else (),
        unreadable=found.problems,
    )


def record(coverage: Coverage, docs: Path = DOCS) -> None:
    """Write down which ids have a test: sorted, one a line."""
    (docs / CLOSED).write_text("".join(f"{name}\n" for name in coverage.tested), "utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables. The exit code is 1 when something is wrong with them."""
    parser = argparse.ArgumentParser(
        prog="python -m cocoon_devkit.contract", description="What of the contract is tested."
    )
    parser.add_argument("--update", action="store_true", help=f"write docs/contract/{CLOSED} again")
    coverage = survey()
    if parser.parse_args(argv).update:
        record(coverage)
        coverage = survey()
    _print_table("SCENARIO", coverage.scenario_rows())
    _print_table("WEAKNESS", coverage.weakness_rows())
    problems = list(coverage.problems())
    for problem in problems:
        print(f"wrong: {problem}")
    print(coverage.summary())
    return 1 if problems else 0


def _places(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, list[str]]:
    """Turn round: from the ids of each place to the places of each id."""
    places: dict[str, list[str]] = defaultdict(list)
    for place, names in pairs:
        for name in names:
            places[name].append(place)
    return dict(places)


def _state(places: Sequence[str]) -> str:
    return "tested" if places else "open"


def _print_table(title: str, rows: Iterator[tuple[str, str, Sequence[str]]]) -> None:
    print(f"{title:<10}{'STATE':<12}TESTS")
    for name, state, places in rows:
        first, *others = places or ("",)
        print(f"{name:<10}{state:<12}{first}".rstrip())
        for place in others:
            print(f"{'':<22}{place}")
    print()


if __name__ == "__main__":
    sys.exit(main())
