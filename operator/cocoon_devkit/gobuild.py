"""Builds the tools of a Go module into a cache, once for each content, with a word every few seconds.

A build is seen by others only when it is complete: it is made in a folder beside its place and renamed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cocoon_devkit.errors import ToolsError
from cocoon_devkit.filelock import exclusive
from cocoon_devkit.gomodule import GoModule, binary_name
from cocoon_devkit.process import Command, ManagedProcess, tail
from cocoon_devkit.toolchain import Toolchain

BUILD_SECONDS = 3600.0
WORD_SECONDS = 10.0
_POLL_SECONDS = 0.5
_LOG_TAIL = 30

Say = Callable[[str], None]

# No cgo: the same binaries on every machine, without a C compiler.
_SETTINGS = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "on",
    "GOFLAGS": "-mod=readonly",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
_FLAGS = ("-trimpath", "-buildvcs=false")

# What a program can be built without: promtool's discovery of targets in all clouds is most of its code.
_TAGS = {"github.com/prometheus/prometheus": "remove_all_sd"}

# Where a program keeps its version when it is not built by its own release script.
_VERSION_VARIABLES = {
    "k8s.io/kubernetes": ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
    "helm.sh/helm/v4": ("helm.sh/helm/v4/internal/version.version",),
    "github.com/distribution/distribution/v3": ("github.com/distribution/distribution/v3/version.version",),
}


def built(module: GoModule, toolchain: Toolchain, cache: Path, say: Say) -> Path:
    """The folder with the module's binaries, built now if the cache does not have it.

    Raises ToolsError with the end of the compiler's output when the build fails.
    """
    linker_flags = _linker_flags(module)
    recipe = (toolchain.version_line, *_SETTINGS.values(), *_FLAGS, *_tags(module), linker_flags)
    place = cache / f"{module.name}-{module.digest(*recipe)}"
    if not place.is_dir():
        with exclusive(cache / f"{module.name}.lock", BUILD_SECONDS, say):
            # Somebody else may have built it while we waited.
            if not place.is_dir():
                _build(module, toolchain, place, linker_flags, say)
    return place / "bin"


def _build(module: GoModule, toolchain: Toolchain, place: Path, linker_flags: str, say: Say) -> None:
    _remove_abandoned(module, place.parent)
    workshop = place.parent / f"{place.name}.building"
    binaries = workshop / "bin"
    binaries.mkdir(parents=True)
    go = str(toolchain.go())
    environment = {**os.environ, **_SETTINGS, "GOBIN": str(binaries)}
    for word in ("GOOS", "GOARCH"):
        environment.pop(word, None)
    names = sorted(module.packages.values())
    say(f"{module.name}: building {', '.join(names)} once, into {place} (some minutes; later runs find them there)")
    progress = _Progress(module, say, binaries)

    def run(name: str, *arguments: str) -> int:
        log = workshop / f"{name}.log"
        command = Command(name=name, argv=(go, *arguments), log=log, env=environment, cwd=module.folder)
        return _run(command, workshop / "pids", progress)

    try:
        progress.total = run("list", "list", "-deps", *_tags(module), "-f", "{{.ImportPath}}", "tool")
        run("install", "install", "-v", *_FLAGS, *_tags(module), f"-ldflags={linker_flags}", "tool")
        _publish(module, binaries, workshop, place)
    except BaseException:
        shutil.rmtree(workshop, ignore_errors=True)
        raise
    say(f"{module.name}: built in {progress.elapsed}")


def _run(command: Command, records: Path, progress: _Progress) -> int:
    """Run to the end; the number of packages that its log names."""
    deadline = time.monotonic() + BUILD_SECONDS
    progress.follow(command.log)
    process = ManagedProcess(command, records)
    try:
        while process.alive:
            if time.monotonic() > deadline:
                raise ToolsError(f"go {command.name} takes more than {BUILD_SECONDS / 60:.0f} minutes: given up.")
            progress.look()
            time.sleep(_POLL_SECONDS)
    finally:
        process.stop()
    progress.look()
    if process.exit_code != 0:
        raise ToolsError(f"`go {command.argv[1]}` failed for {command.cwd}:\n{tail(command.log, _LOG_TAIL)}")
    return progress.packages


def _publish(module: GoModule, binaries: Path, workshop: Path, place: Path) -> None:
    for package, name in module.packages.items():
        made = binaries / binary_name(package)
        if not made.is_file():
            raise ToolsError(f"go install made no {made.name} of {package}.")
        made.rename(binaries / name)
    shutil.rmtree(workshop / "pids", ignore_errors=True)
    workshop.rename(place)


def _remove_abandoned(module: GoModule, cache: Path) -> None:
    """Of builders that were killed: whoever holds the module's lock owns all of them."""
    for folder in cache.glob(f"{module.name}-*.building"):
        shutil.rmtree(folder)


def _tags(module: GoModule) -> list[str]:
    return [f"-tags={tags}" for path, tags in _TAGS.items() if path in module.versions]


def _linker_flags(module: GoModule) -> str:
    flags = ["-s", "-w"]
    for path, variables in _VERSION_VARIABLES.items():
        version = module.versions.get(path)
        if version is not None:
            flags += [f"-X {setting}" for variable in variables for setting in _version_settings(variable, version)]
    return " ".join(flags)


def _version_settings(variable: str, version: str) -> list[str]:
    if variable.endswith(".version"):
        return [f"{variable}={version}"]
    major, minor, *_ = version.removeprefix("v").split(".")
    return [f"{variable}.gitVersion={version}", f"{variable}.gitMajor={major}", f"{variable}.gitMinor={minor}"]


@dataclass
class _Progress:
    """Says how far a build is: from the lines that go writes and the binaries that appear."""

    module: GoModule
    say: Say
    binaries: Path
    total: int = 0
    packages: int = 0
    downloads: int = 0
    started: float = field(default_factory=time.monotonic)
    _log: Path = Path()
    _offset: int = 0
    _spoken: float = field(default_factory=time.monotonic)
    _seen: set[str] = field(default_factory=set)

    @property
    def _names(self) -> dict[str, str]:
        return {binary_name(package): name for package, name in self.module.packages.items()}

    @property
    def elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        return f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"

    def follow(self, log: Path) -> None:
        self._log, self._offset, self.packages = log, 0, 0

    def look(self) -> None:
        self._read_log()
        for binary in sorted(self.binaries.iterdir()):
            # go writes a binary under a temporary name first.
            if binary.name not in self._seen and os.access(binary, os.X_OK):
                self._seen.add(binary.name)
                self._word(f"built {self._names.get(binary.name, binary.name)} ({binary.stat().st_size >> 20} MiB)")
        if time.monotonic() - self._spoken >= WORD_SECONDS:
            self._word(self._state())

    def _state(self) -> str:
        if not self.total:
            return f"looking at the sources, {self.downloads} modules fetched"
        return f"{self.packages} packages compiled (of {self.total}, less those compiled before)"

    def _word(self, text: str) -> None:
        self._spoken = time.monotonic()
        self.say(f"{self.module.name}: {self.elapsed}, {text}")

    def _read_log(self) -> None:
        try:
            with self._log.open("rb") as log:
                log.seek(self._offset)
                new = log.read()
        except FileNotFoundError:
            return
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        lines = complete.decode(errors="replace").splitlines()
        self.downloads += sum(line.startswith("go: downloading") for line in lines)
        self.packages += sum(" " not in line for line in lines)
