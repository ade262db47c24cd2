"""What a ``hack/tools`` module builds, read from its ``go.mod`` without a Go toolchain."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_GO = re.compile(r"^go (\S+)", re.MULTILINE)
_BLOCK = r"^{word} \(\n(.*?)^\)"
_SINGLE = r"^{word} ([^(\n].*)$"
_MAJOR = re.compile(r"v\d+")

# Packages whose binary has another name than the program it is.
_RENAMED = {"go.etcd.io/etcd/server/v3": "etcd"}


@dataclass(frozen=True)
class GoModule:
    """``packages`` maps the import path of each tool to the name under which it is published."""

    name: str
    folder: Path
    go: str
    packages: dict[str, str]
    versions: dict[str, str]

    def digest(self, *recipe: str) -> str:
        """Names the outcome of a build: the module's pins and everything in ``recipe`` that has a say in it."""
        content = hashlib.sha256()
        for part in ((self.folder / "go.mod").read_bytes(), (self.folder / "go.sum").read_bytes()):
            content.update(hashlib.sha256(part).digest())
        content.update("\0".join(recipe).encode())
        return content.hexdigest()[:16]


def read_module(name: str, folder: Path) -> GoModule:
    """Read ``folder/go.mod``. Raises ValueError when it names no Go version."""
    text = (folder / "go.mod").read_text()
    go = _GO.search(text)
    if go is None:
        raise ValueError(f"{folder / 'go.mod'} has no go line")
    requires = (line.split()[:2] for line in _entries("require", text))
    return GoModule(
        name=name,
        folder=folder,
        go=go[1],
        packages={path: _RENAMED.get(path, binary_name(path)) for path in _entries("tool", text)},
        versions={requirement[0]: requirement[1] for requirement in requires},
    )


def binary_name(package: str) -> str:
    """The file that ``go install`` writes for a package: its last path element that is no major version."""
    elements = package.split("/")
    return elements[-2] if _MAJOR.fullmatch(elements[-1]) and len(elements) > 1 else elements[-1]


def _entries(word: str, text: str) -> list[str]:
    blocks = re.findall(_BLOCK.format(word=word), text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(_SINGLE.format(word=word), text, re.MULTILINE)
    return [line.partition("//")[0].strip() for line in lines if line.partition("//")[0].strip()]
