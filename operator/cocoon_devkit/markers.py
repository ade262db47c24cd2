"""Which test proves which scenario: ``@pytest.mark.scenario("S042")``, read from the sources without running them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

_WEAKNESSES: Final = re.compile(r"test((?:_w[0-9]{2})+)_")
_NOT_RUN: Final = frozenset({"skip", "xfail"})

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Proof:
    """One test function, or a test class made by an assignment. ``place`` is ``unit/x/test_y.py::Class::test_z``."""

    place: str
    scenarios: frozenset[str]
    weaknesses: frozenset[str]


@dataclass(frozen=True, slots=True)
class Proofs:
    """Every test of a folder, and the marks that cannot be read."""

    proofs: tuple[Proof, ...]
    problems: tuple[str, ...]


def read_proofs(folder: Path) -> Proofs:
    """Read every file that pytest collects. A test that is skipped or expected to fail proves nothing and is left out."""
    proofs: list[Proof] = []
    problems: list[str] = []
    for file in sorted(folder.rglob("test_*.py")):
        module = _Module(file.relative_to(folder).as_posix(), ast.parse(file.read_bytes()))
        proofs.extend(module.tests())
        problems.extend(module.problems)
    return Proofs(tuple(proofs), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Marks:
    """What hangs on a test: the ids, and whether it is kept from running."""

    ids: frozenset[str] = frozenset()
    off: bool = False

    def __or__(self, other: _Marks) -> _Marks:
        return _Marks(self.ids | other.ids, self.off or other.off)


@dataclass(slots=True)
class _Module:
    """The tests of one file. Marks may hang on a function, a class, the module, a parameter, or a name used for one."""

    place: str
    tree: ast.Module
    problems: list[str] = field(default_factory=list)
    _named: dict[str, _Marks] = field(default_factory=dict)

    def tests(self) -> Iterator[Proof]:
        for name, value in _assignments(self.tree.body):
            self._named[name] = self._marks([value])
        yield from self._within(self.tree.body, self.place, self._named.get("pytestmark", _Marks()))

    def _within(self, body: list[ast.stmt], place: str, inherited: _Marks) -> Iterator[Proof]:
        for node in body:
            if isinstance(node, Function) and node.name.startswith("test"):
                yield from self._test(f"{place}::{node.name}", inherited | self._marks(node.decorator_list))
            elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                own = [value for name, value in _assignments(node.body) if name == "pytestmark"]
                marks = inherited | self._marks([*node.decorator_list, *own])
                yield from self._within(node.body, f"{place}::{node.name}", marks)
        for name, value in _assignments(body):
            if name.startswith("Test"):
                yield from self._test(f"{place}::{name}", inherited | self._marks([value]))

    def _test(self, place: str, marks: _Marks) -> Iterator[Proof]:
        if marks.off:
            return
        named = _WEAKNESSES.match(place.rpartition("::")[2])
        weaknesses = frozenset(f"W-{number}" for number in named[1].split("_w")[1:]) if named else frozenset()
        yield Proof(place, marks.ids, weaknesses)

    def _marks(self, expressions: Iterable[ast.expr]) -> _Marks:
        found = _Marks()
        for expression in expressions:
            found |= _Marks(off=_mark_name(expression) in _NOT_RUN)
            for node in ast.walk(expression):
                if isinstance(node, ast.Call) and _mark_name(node) == "scenario":
                    found |= _Marks(frozenset(self._ids(node)))
                elif isinstance(node, ast.Name):
                    found |= self._named.get(node.id, _Marks())
        return found

    def _ids(self, mark: ast.Call) -> Iterator[str]:
        for argument in mark.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
            else:
                self.problems.append(f"{self.place}:{mark.lineno}: ids have to be written out")


def _assignments(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _mark_name(expression: ast.expr) -> str:
    """Return ``x`` of ``pytest.mark.x`` and ``pytest.mark.x(...)``, "" for anything else."""
    if isinstance(expression, ast.Call):
        expression = expression.func
    if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Attribute):
        return expression.attr if expression.value.attr == "mark" else ""
    return ""
