"""The image's build without a Docker engine: the Dockerfile's own commands, run in a folder instead of a container.

The absolute paths of the build stage are those of folders below ``root``; base image and platform are this machine's Python. What
a container adds (its base, its user, its read-only file system) is left to the engine; ``podprocess`` imitates it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from cocoon_devkit import checkout

DOCKERFILE = checkout.ROOT / "Dockerfile"
FOLDERS = ("src", "build", "dist", "opt")
_ABSOLUTE = re.compile(rf"(?<![\w./-])/(?=(?:{'|'.join(FOLDERS)})\b)")
_RUN_SECONDS = 120.0


@dataclass
class Stage:
    """One stage: its FROM, and the instructions that follow, in order."""

    base: str
    name: str = ""
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """What stands behind every instruction of this word."""
        return [rest for found, rest in self.instructions if found == word]

    def one(self, word: str) -> str:
        [rest] = self.all(word)
        return rest

    @property
    def env(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for rest in self.all("ENV") for pair in shlex.split(rest))

    @property
    def entrypoint(self) -> list[str]:
        words: list[str] = json.loads(self.one("ENTRYPOINT"))
        return words


@dataclass(frozen=True)
class Image:
    """What a build left. ``prefix`` is the environment that the last stage copies."""

    root: Path
    final: Stage

    @property
    def prefix(self) -> Path:
        return self.root / "opt" / "cocoon-operator"

    @property
    def packages(self) -> Path:
        [folder] = self.prefix.glob("lib/python*/site-packages")
        return folder

    def argv(self, *args: str) -> list[str]:
        """The entry point with arguments, as a container runtime resolves it on the image's own PATH."""
        program, *rest = self.final.entrypoint
        path = self.final.env["PATH"].replace("/opt/", f"{self.root}/opt/").split(":")[0]
        return [f"{path}/{program}", *rest, *args]

    @property
    def env(self) -> dict[str, str]:
        return {**self.final.env, "PATH": f"{self.prefix}/bin:/usr/bin:/bin"}


def read_dockerfile() -> tuple[dict[str, str], list[Stage]]:
    """Return the arguments before the first stage, and the stages. Comments and line ends are joined away."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        word, rest = line.split(None, 1)
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        elif stages:
            stages[-1].instructions.append((word, rest))
        else:
            assert word == "ARG", line
            name, _, value = rest.partition("=")
            arguments[name] = value
    return arguments, stages


def build_image(root: Path) -> Image:
    """Run the build stage below ``root``. Raises AssertionError with the output of a command that fails."""
    _, [build, final] = read_dockerfile()
    # The pip of this machine keeps what it downloaded; nothing else of the caller's settings reaches the build.
    pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_") or key.lower().endswith("_proxy")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"HOME": os.environ.get("HOME", str(root)), "PATH": path, **pip}
    env |= {key: value for key, value in build.env.items() if key != "PIP_NO_CACHE_DIR"}
    folder = root
    for word, rest in build.instructions:
        match word:
            case "WORKDIR":
                folder = Path(_below(root, rest))
                folder.mkdir(parents=True)
            case "COPY":
                *sources, target = shlex.split(rest)
                for source in sources:
                    _copy(source, folder / target)
            case "RUN":
                _run(_below(root, rest), folder, env)
            case _:
                assert word == "ENV", f"the build has no {word}"
    return Image(root, final)


def _below(root: Path, text: str) -> str:
    return _ABSOLUTE.sub(f"{root}/", text)


def _copy(source: str, target: Path) -> None:
    """Copy from the context, which is what ``.dockerignore`` lets in."""
    allowed = re.findall(r"^!(\S+)", (checkout.ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert source.partition("/")[0] in allowed, f"{source} is not in the context"
    origin = checkout.ROOT / source
    if origin.is_dir():
        shutil.copytree(origin, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(origin, target)


def _run(command: str, folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
