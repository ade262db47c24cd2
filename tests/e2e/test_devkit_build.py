"""Tools are really built with go, once for each content, and seen only when complete."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from cocoon_devkit import checkout
from cocoon_devkit.errors import ToolsError
from cocoon_devkit.gobuild import built
from cocoon_devkit.gomodule import GoModule, read_module
from cocoon_devkit.toolchain import Toolchain, find_toolchain

PROGRAM = 'package main\n\nfunc main() { println("hello") }\n'


def write_module(folder: Path, program: str = PROGRAM) -> GoModule:
    (folder / "cmd" / "hello").mkdir(parents=True)
    (folder / "cmd" / "hello" / "main.go").write_text(program)
    (folder / "go.mod").write_text("module example.com/tools\n\ngo 1.26.0\n\ntool example.com/tools/cmd/hello\n")
    (folder / "go.sum").touch()
    return read_module("greeting", folder)


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain("1.26.0", checkout.REQUIREMENTS / "go.txt", checkout.TOOLS_VENV / "go")


def test_two_builders_make_one_build_that_a_third_finds(tmp_path: Path, toolchain: Toolchain) -> None:
    module, cache, said = write_module(tmp_path / "src"), tmp_path / "cache", list[str]()
    (cache / "greeting-of-a-killed-builder.building").mkdir(parents=True)
    folders: list[Path] = []
    builders = [
        threading.Thread(target=lambda: folders.append(built(module, toolchain, cache, said.append))) for _ in range(2)
    ]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(120)
    assert len(folders) == 2
    assert folders[0] == folders[1]
    assert sum("building hello once" in line for line in said) == 1
    assert sum("built hello" in line for line in said) == 1
    assert subprocess.run([folders[0] / "hello"], capture_output=True, check=True).stderr == b"hello\n"
    said.clear()
    assert built(module, toolchain, cache, said.append) == folders[0]
    assert said == []
    assert sorted(file.name for file in cache.iterdir()) == [folders[0].parent.name, "greeting.lock"]


def test_a_build_that_fails_shows_the_compiler_and_leaves_nothing(tmp_path: Path, toolchain: Toolchain) -> None:
    module, cache = write_module(tmp_path / "src", PROGRAM + "func unused() { nowhere() }\n"), tmp_path / "cache"
    with pytest.raises(ToolsError, match=r"(?s)`go install` failed.*undefined: nowhere"):
        built(module, toolchain, cache, print)
    assert [file.name for file in cache.iterdir()] == ["greeting.lock"]
