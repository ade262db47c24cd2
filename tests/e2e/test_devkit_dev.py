"""The development environment outlives the command that starts it, and `down` leaves nothing of it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from cocoon_devkit import checkout
from cocoon_devkit.controlplane import COMPONENTS
from cocoon_devkit.dev import DevEnvironment
from cocoon_devkit.httpprobe import answers

START = (
    "from cocoon_devkit.dev import *; from pathlib import Path; print(DevEnvironment(Path({0!r})).up(print).exports)"
)


def start(folder: Path) -> dict[str, str]:
    """What the shell of a developer learns from a command that has ended when this returns."""
    path = os.pathsep.join([str(checkout.ROOT / "operator"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", START.format(str(folder))]
    environment = {**os.environ, "PYTHONPATH": path}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=200).stdout
    words = [word for line in said.splitlines() if line.startswith("export ") for word in shlex.split(line)[1:]]
    return dict(word.split("=", 1) for word in words)


def test_up_down_and_up_again(tools: Path, tmp_path: Path) -> None:
    environment = DevEnvironment(tmp_path)
    assert environment.state() is None
    try:
        exports = start(tmp_path)
        state = environment.state()
        assert state is not None
        assert all(record.alive for record in state.processes)
        assert {record.name for record in state.processes} >= {*COMPONENTS, "registry", "node-agent"}
        kubectl = [str(tools / "kubectl"), "--kubeconfig", exports["KUBECONFIG"]]
        nodes = subprocess.run([*kubectl, "get", "nodes", "-o", "name"], capture_output=True, text=True, check=True)
        assert nodes.stdout.split() == ["node/node-1", "node/node-2"]
        listed = subprocess.run([*kubectl, "get", "cocoonsets", "-A"], capture_output=True, text=True, check=True)
        assert "No resources found" in listed.stderr
        host = exports["OCI_REGISTRY"].partition("/")[0]
        assert answers(f"http://{host}/v2/") == 200
        assert answers(exports["COCOON_AGENT"]) is not None
        assert start(tmp_path) == exports
    finally:
        stopped = environment.down(print)
    assert {record.name for record in stopped} == {record.name for record in state.processes}
    assert not any(record.alive for record in state.processes)
    assert environment.state() is None
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lock"]
    assert environment.down(print) == []
