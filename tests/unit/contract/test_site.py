"""The pages as ``make docs`` builds them: a broken link fails the build, and who reads them fetches nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cocoon_devkit import checkout

_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src=["'](?:https?:)?//|<link[^>]+href=["'](?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import"""
)
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_FLAT = re.compile(r"^ {1,3}(?:[*-]|\d+\.) .*", re.MULTILINE)


def build(project: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(project / "mkdocs.yml")]
    return subprocess.run([*command, "--site-dir", str(site)], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What mkdocs reads of the project."""
    shutil.copytree(checkout.ROOT / "docs", tmp_path / "docs")
    shutil.copytree(checkout.ROOT / "hack", tmp_path / "hack", ignore=shutil.ignore_patterns("tools", "__pycache__"))
    shutil.copy(checkout.ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_site_is_whole_and_fetches_nothing(project: Path) -> None:
    done = build(project, project / "site")
    assert done.returncode == 0, done.stderr
    pages = [file for kind in ("html", "css") for file in (project / "site").rglob(f"*.{kind}")]
    assert len(pages) > 20
    for page in pages:
        assert _FETCHED.search(page.read_text("utf-8")) is None, page
    home = (project / "site" / "index.html").read_text("utf-8")
    assert 'href="https://github.com/cocoonstack/cocoon-operator/blob/main/charts/cocoon-operator/README.md"' in home


def test_a_list_in_a_list_is_indented_as_far_as_mkdocs_asks_for() -> None:
    """Code hosts are content with two columns; from fewer than four, mkdocs makes one flat list."""
    for page in (checkout.ROOT / "docs").rglob("*.md"):
        text = _FENCED.sub("", page.read_text("utf-8"))
        assert _FLAT.findall(text) == [], page


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("edits.md", "[gone](nowhere.md)", "target is not found"),
        ("edits.md", "[gone](index.md#nowhere)", "does not contain an anchor"),
        ("unreachable.md", "# Nobody comes here", "not included in the"),
    ],
)
def test_a_broken_link_and_a_page_that_nothing_leads_to_fail_the_build(
    project: Path, name: str, text: str, complaint: str
) -> None:
    with (project / "docs" / name).open("a") as page:
        page.write(f"\n{text}\n")
    done = build(project, project / "site")
    assert done.returncode == 1
    assert complaint in done.stderr
