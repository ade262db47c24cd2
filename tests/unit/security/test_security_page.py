"""The page about security names a test for what it claims, and the test is there."""

from __future__ import annotations

import re

from cocoon_devkit import checkout

PAGE = checkout.ROOT / "docs" / "security.md"


def test_every_test_that_the_page_names_exists_once() -> None:
    sources = [file.read_text() for file in (checkout.ROOT / "tests").rglob("test_*.py")]
    named = re.findall(r"`(test_\w+)`", PAGE.read_text())
    assert len(named) > 40
    for name in named:
        assert sum(len(re.findall(rf"^(?:async )?def {name}\(", text, re.MULTILINE)) for text in sources) == 1, name


def test_every_threat_has_a_measure_and_a_test() -> None:
    rows = re.findall(r"^\| (?!Threat|---)(.+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 21
    for threat, measure, test in rows:
        assert threat
        assert measure
        assert test.startswith("`test_"), threat
