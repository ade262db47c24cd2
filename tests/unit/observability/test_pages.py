"""The pages about events and logs name what the code says, all of it and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cocoon_devkit import checkout

DOCS = checkout.ROOT / "docs"
OPERATOR = checkout.ROOT / "operator" / "cocoon_operator"

_CODE = re.compile(r"`([^`]+)`")
_REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z]+[a-z]*)*")
_TELLING = frozenset({"event", "warn", "trouble", "record"})


def column(page: Path, heading: str, number: int) -> set[str]:
    """What stands in code in a column of the tables below a heading."""
    section = page.read_text("utf-8").split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {word for row in rows for word in _CODE.findall(row[number])}


def events_page() -> set[str]:
    page = DOCS / "events.md"
    return column(page, "## On a CocoonSet", 1) | column(page, "## On a CocoonHibernation", 1)


def texts(folder: Path) -> set[str]:
    """Every text constant in the code of a folder."""
    return {
        node.value
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def told() -> Iterator[str]:
    """The reasons that are told by name: the texts of their form in calls that tell."""
    for file in (OPERATOR / "reconcile").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TELLING:
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and _REASON.fullmatch(str(argument.value)):
                        yield str(argument.value)


def test_every_event_that_is_told_is_on_the_page() -> None:
    reasons = set(told()) - {"Normal", "Warning"}
    assert len(reasons) > 20
    assert reasons - events_page() == set()


def test_every_event_of_the_contract_is_on_the_page() -> None:
    contract = (DOCS / "contract" / "operator.md").read_text("utf-8")
    section = contract.split("\n### 7.2 ", 1)[1].split("\n### 7.3 ", 1)[0]
    reasons = {word for word in _CODE.findall(section) if _REASON.fullmatch(word)}
    assert len(reasons) > 30
    assert reasons - events_page() == set()


def test_every_event_of_the_page_is_told() -> None:
    assert events_page() - texts(OPERATOR / "reconcile") == set()


def test_every_line_of_the_page_about_logs_is_logged() -> None:
    messages = column(DOCS / "logging.md", "## Lines to know", 1) - {"reason=KeepSnapshotFailed"}
    assert len(messages) >= 15
    assert messages - texts(OPERATOR) == set()
