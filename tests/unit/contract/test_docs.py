"""The pages for people: their links lead somewhere, and what the code can say or read is in them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cocoon_devkit import checkout
from cocoon_operator import config
from cocoon_operator.api import keys

DOCS = checkout.ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), checkout.ROOT / "README.md", checkout.ROOT / "CONTRIBUTING.md"])
RECONCILE = checkout.ROOT / "operator" / "cocoon_operator" / "reconcile"

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```|``[^\n]+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z]+[a-z]*)+")


def prose_of(page: Path) -> str:
    """Return the text without what stands in code."""
    return _CODE.sub("", page.read_text("utf-8"))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page as code hosts make them."""
    plain = (
        re.sub(r"[^\w\- ]", "", heading.lower())
        for heading in _HEADING.findall(_FENCED.sub("", page.read_text("utf-8")))
    )
    return {words.strip().replace(" ", "-") for words in plain}


def links_of(page: Path) -> Iterator[tuple[Path, str]]:
    for target in _LINK.findall(prose_of(page)):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(checkout.ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in links_of(page):
        assert target.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors_of(target), f"{page.name}: {target.name}#{anchor}"


def test_every_page_is_reached_from_the_index() -> None:
    reached = {target for target, _ in links_of(DOCS / "index.md")}
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - reached - {DOCS / "index.md"} == set()


def reasons_in_the_code() -> set[str]:
    """Every word that a pass can put into a condition or an event: the texts of that form in its calls and constants."""
    found: set[str] = set()
    for file in RECONCILE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _REASON.fullmatch(node.value):
                found.add(node.value)
    return found


def test_every_reason_of_a_condition_or_an_event_is_explained() -> None:
    of_others = {"CocoonSet", "CocoonHibernation", "NoExecute", "PodScheduled"}
    page = (DOCS / "troubleshooting.md").read_text("utf-8")
    assert {reason for reason in reasons_in_the_code() - of_others if f"`{reason}`" not in page} == set()


def test_every_key_of_the_contract_is_in_its_text() -> None:
    contract = (DOCS / "contract" / "operator.md").read_text("utf-8")
    names = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}
    assert {name for name in names if name not in contract} == set()


def test_every_setting_is_in_the_contract() -> None:
    contract = (DOCS / "contract" / "operator.md").read_text("utf-8")
    for setting in config._SETTINGS.values():
        assert f"`{setting.env}`" in contract
        assert not setting.flag or f"`{setting.flag}`" in contract


def test_every_dependency_has_a_row() -> None:
    page = (DOCS / "design" / "dependencies.md").read_text("utf-8").lower()
    project = tomllib.loads((checkout.ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    wanted = [
        *project["project"]["dependencies"],
        *(entry for group in [*extras.values(), *groups.values()] for entry in group),
    ]
    names = {re.split(r"[<>=;\s\[]", entry)[0].lower() for entry in wanted}
    rows = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    assert {name for name in names if not re.search(rf"\b{re.escape(name)}\b", rows)} == set()
