"""The binaries of the control plane and its surroundings, in one folder: ``python -m cocoon_devkit.tools``.

They are built from ``hack/tools`` with ``go install tool`` and kept outside the checkout, in a folder named after what
went into them. A user's own are taken where ``KUBEBUILDER_ASSETS`` names a folder that has them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from cocoon_devkit import checkout
from cocoon_devkit.errors import DevkitError, ToolsError
from cocoon_devkit.gobuild import Say, built
from cocoon_devkit.gomodule import GoModule, read_module
from cocoon_devkit.toolchain import Toolchain, find_toolchain

CACHE_VARIABLE = "COCOON_TOOLS_CACHE"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
INTERRUPTED = 130
"""The exit code of a command that was ended by Ctrl-C, as shells have it."""


def say_on_stderr(line: str) -> None:
    """Whole lines only: a CI log has no terminal to redraw."""
    print(line, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """``$COCOON_TOOLS_CACHE``, else ``$XDG_CACHE_HOME/cocoon-operator/tools``, else the same under ``~/.cache``."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cocoon-operator" / "tools"


def find_tools(say: Say = say_on_stderr) -> Path:
    """A folder with kube-apiserver, etcd, kubectl, helm and the rest; builds what is missing.

    Raises ToolsError when something is missing and cannot be built.
    """
    cache = cache_folder()
    own = _own_binaries()
    binaries: dict[str, Path] = {}
    for module in tool_modules():
        names = set(module.packages.values())
        missing = names - own.keys()
        folder = built(module, _toolchain(module), cache, say) if missing else None
        binaries |= {name: own[name] if folder is None or name in own else folder / name for name in names}
    return _gathered(binaries, cache)


def tool_modules() -> list[GoModule]:
    """The modules of ``hack/tools``: one for each group of tools whose libraries agree with each other."""
    if not (checkout.TOOL_MODULES / "go.mod").is_file():
        raise ToolsError(
            "The tools are built from a checkout of the project; this is an installed package without one."
        )
    return [
        read_module("kubernetes", checkout.TOOL_MODULES),
        read_module("helm", checkout.TOOL_MODULES / "helm"),
        read_module("promtool", checkout.TOOL_MODULES / "promtool"),
        read_module("actionlint", checkout.TOOL_MODULES / "actionlint"),
    ]


def _toolchain(module: GoModule) -> Toolchain:
    return find_toolchain(module.go, checkout.REQUIREMENTS / "go.txt", checkout.TOOLS_VENV / "go")


def _own_binaries() -> dict[str, Path]:
    named = os.environ.get(ASSETS_VARIABLE)
    if not named:
        return {}
    folder = Path(named).expanduser().absolute()
    if not folder.is_dir():
        raise ToolsError(f"{ASSETS_VARIABLE} names {folder}, which is no folder.")
    return {file.name: file for file in folder.iterdir() if file.is_file() and os.access(file, os.X_OK)}


def _gathered(binaries: dict[str, Path], cache: Path) -> Path:
    """One folder of links to all of them."""
    content = "\n".join(f"{name}={path}" for name, path in sorted(binaries.items()))
    place = cache / f"all-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix="all-", suffix=".building", dir=cache))
        (workshop / "bin").mkdir()
        for name, path in binaries.items():
            (workshop / "bin" / name).symlink_to(path)
        _rename_unless_there(workshop, place)
    return place / "bin"


def _rename_unless_there(workshop: Path, place: Path) -> None:
    try:
        workshop.rename(place)
    except OSError:
        # Somebody else was faster with the same content.
        shutil.rmtree(workshop)
        if not place.is_dir():
            raise


def main() -> int:
    try:
        print(find_tools())
    except DevkitError as error:
        say_on_stderr(f"cocoon-devkit: {error}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
