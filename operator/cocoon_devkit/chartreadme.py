"""The table of values in the chart's README, written from the comments of ``values.yaml``.

Usage: ``python -m cocoon_devkit.chartreadme [--check]``.

A line ``## Words`` begins a section. A comment right above a key says what it is for; a mapping whose keys have comments
of their own becomes one row for each of them. A value without a comment is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from cocoon_devkit.chart import CHART
from cocoon_devkit.errors import DevkitError

README: Final = CHART / "README.md"
VALUES: Final = CHART / "values.yaml"

_BEGIN: Final = "<!-- Written from values.yaml by `make generate`; edit the comments there. -->\n"
_END: Final = "<!-- End of what is written. -->\n"
_SECTION: Final = "## "


@dataclass(frozen=True)
class Value:
    """One row: where it is, what it is by default (as JSON), and what it is for."""

    path: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Section:
    """Values that belong together."""

    title: str
    values: list[Value]


class UndocumentedError(DevkitError):
    """A value has no comment, or no section."""


def sections(text: str) -> list[Section]:
    """Read what ``values.yaml`` says about itself. Raises UndocumentedError."""
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    comments = _Comments(text)
    found: list[Section] = []
    for key, node in root.value:
        if title := comments.section(key):
            found.append(Section(title, []))
        if not found:
            raise UndocumentedError(f"values.yaml: {key.value} comes before the first section.")
        found[-1].values.extend(_rows(key.value, key, node, comments))
    return found


def render(text: str) -> str:
    """Return the tables of a ``values.yaml``. Raises UndocumentedError."""
    return "\n".join(_table(section) for section in sections(text))


def written(readme: str, values: str) -> str:
    """Return a README with the tables of a ``values.yaml`` between its marks. Raises DevkitError."""
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise DevkitError(f"{README} has no place for the values: it must have the two marks.")
    return f"{before}{begin}\n{render(values)}\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cocoon_devkit.chartreadme", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the README is stale")
    options = parser.parse_args(arguments)
    current = README.read_text("utf-8")
    try:
        wanted = written(current, VALUES.read_text("utf-8"))
    except DevkitError as error:
        print(error, file=sys.stderr)
        return 1
    if not options.check:
        README.write_text(wanted, encoding="utf-8")
        return 0
    if wanted != current:
        print(f"{README} does not match values.yaml: run `make generate` and commit the result", file=sys.stderr)
        return 1
    return 0


class _Comments:
    """The comments above each key, by its place in the text."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def above(self, key: yaml.Node) -> str:
        """The words right above a key."""
        block: list[str] = []
        for line in reversed(self._lines[: key.start_mark.line]):
            if not line.lstrip().startswith("# "):
                break
            block.append(line.strip().removeprefix("# "))
        return " ".join(reversed(block))

    def section(self, key: yaml.Node) -> str:
        """The section that begins above a key, "" for none."""
        for line in reversed(self._lines[: key.start_mark.line]):
            if line.startswith(_SECTION):
                return line.removeprefix(_SECTION)
            if line and not line.startswith("#"):
                break
        return ""


def _rows(path: str, key: yaml.Node, node: yaml.Node, comments: _Comments) -> Iterator[Value]:
    meaning = comments.above(key)
    if (
        isinstance(node, yaml.MappingNode)
        and not node.flow_style
        and any(comments.above(child) for child, _ in node.value)
    ):
        if meaning:
            yield Value(path, "", meaning)
        for child, value in node.value:
            yield from _rows(f"{path}.{child.value}", child, value, comments)
        return
    if not meaning:
        raise UndocumentedError(f"values.yaml: {path} has no comment.")
    yield Value(path, json.dumps(_plain(node), ensure_ascii=False), meaning)


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def _table(section: Section) -> str:
    rows = [f"| `{each.path}` | {_cell(each.default)} | {_escaped(each.meaning)} |" for each in section.values]
    return "\n".join([f"### {section.title}", "", "| Value | Default | Meaning |", "|---|---|---|", *rows, ""])


def _cell(default: str) -> str:
    return f"`{_escaped(default)}`" if default else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
