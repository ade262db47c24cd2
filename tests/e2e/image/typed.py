"""What a page tells people to type, and a shell that types it.

A fence ``console`` is a transcript: ``$ `` begins a command, a line that ends in ``\\`` goes on in the next, and what follows
is its output, compared word by word; ``...`` stands for anything, and an age for any other.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cocoon_devkit.tools import ASSETS_VARIABLE, CACHE_VARIABLE, cache_folder

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n?(?P<output>(?:^(?!\$ ).*\n?)*)", re.MULTILINE)
_SECONDS = 120.0


@dataclass(frozen=True)
class Typed:
    """One command and what the page shows as its output, "" for nothing."""

    command: str
    output: str


def fences(page: Path) -> list[tuple[str, str]]:
    """Every fence of a page: its language and its text."""
    return [(found[1], found[2]) for found in _FENCE.finditer(page.read_text("utf-8"))]


def typed(page: Path) -> list[Typed]:
    """Every command of the transcripts of a page, in order."""
    found = [match for language, text in fences(page) if language == "console" for match in _COMMAND.finditer(text)]
    return [Typed(match["command"], match["output"].strip()) for match in found]


def agrees(shown: str, printed: str) -> bool:
    """Whether an output is the one that the page shows, but for spaces, ages and what ``...`` stands for."""
    words = []
    for word in shown.split():
        pattern = re.escape(word)
        pattern = pattern.replace(r"\.\.\.", ".*?")
        words.append(re.sub(r"^\d+[smh]$", r"[0-9smh]+", pattern))
    return re.fullmatch(r"\s+".join(words), printed.strip(), re.DOTALL) is not None


class Shell:
    """A bash that keeps its exported variables from one command to the next."""

    def __init__(self, folder: Path, scratch: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._dump = scratch / "exported"
        self.env = {"HOME": str(scratch), "LC_ALL": "C.UTF-8", **env}

    def type(self, command: str) -> str:
        """Run a command and return what it printed. Raises AssertionError when it fails."""
        script = f"set -e -o pipefail\n{command}\nenv -0 > '{self._dump}'"
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        assert process.returncode == 0, f"$ {command}\n{printed}"
        self.env = dict(entry.split("=", 1) for entry in self._dump.read_text().split("\0") if "=" in entry)
        return printed


def inherited(tools: Path) -> dict[str, str]:
    """What a terminal knows of somebody who has kubectl, helm and the built tools."""
    own = {name: os.environ[name] for name in (ASSETS_VARIABLE,) if name in os.environ}
    return {"PATH": f"{tools}:{os.environ['PATH']}", CACHE_VARIABLE: str(cache_folder()), **own}
