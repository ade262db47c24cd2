"""`make demo` shows what it promises, fails when a state is not reached, and leaves nothing behind unless it was asked to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nodes import NODES

from cocoon_devkit import checkout
from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import COMPONENTS
from cocoon_devkit.demo import EXAMPLE
from cocoon_devkit.demostory import DemoFailedError, Story
from cocoon_devkit.demoview import View
from cocoon_devkit.demoworld import DemoWorld
from cocoon_devkit.dev import DevEnvironment
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.process import ProcessRecord
from cocoon_devkit.rawapi import Api

SERVED = {*COMPONENTS, "registry", "node-agent", "operator"}
KEPT = (
    "import sys; from pathlib import Path; from cocoon_devkit.demo import main; sys.exit(main(['--keep'], Path({0!r})))"
)
TRANSITIONS = {
    "create": 4,
    "suspend (retain)": 3,
    "wake (retained pod)": 3,
    "suspend (release)": 6,
    "wake (released seat)": 4,
    "suspend (retain) again": 3,
    "delete": 2,
}


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout.ROOT / "operator"), "PYTHONUNBUFFERED": "1", **extra}


def rows(text: str) -> list[list[str]]:
    """The cells of the table's lines, without the time."""
    return [re.split(r"\s{2,}", line.strip())[1:] for line in text.splitlines() if line.startswith("   +")]


def test_the_demo_reaches_every_state_and_stays_when_asked(tools: Path, tmp_path: Path) -> None:
    kept = DevEnvironment(tmp_path)
    command = [sys.executable, "-c", KEPT.format(str(tmp_path))]
    try:
        ran = subprocess.run(
            command, env=environment(), cwd=checkout.ROOT, capture_output=True, text=True, timeout=200, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        summary = re.findall(r"^(\S.*?) +[\d.]+ +(\d+) +(\d+)$", ran.stdout, re.MULTILINE)
        assert {title: int(budget) for title, _, budget in summary} == TRANSITIONS
        assert {title: int(count) for title, count, _ in summary} == TRANSITIONS, ran.stdout
        listed = re.findall(r"^   (\d+) API writes: (.*)$", ran.stdout, re.MULTILINE)
        assert [int(count) for _, count, _ in summary] == [len(writes.split(", ")) for _, writes in listed]
        assert "✓ layers downloaded: 0" in ran.stdout
        assert "✓ the work is there: essay, first half, essay, second half" in ran.stdout
        reached = [rows(table)[-1] for table in ran.stdout.split("   SECONDS   SET ")[1:]]
        assert [row[1:3] for row in reached] == [
            ["Running", "1/1"],
            ["Suspended", "0/1"],
            ["Running", "1/1"],
            ["Suspended", "0/1"],
            ["Running", "1/1"],
            ["Suspended", "0/1"],
            ["-", "-"],
        ]
        pod_vm_tag_cache = [[cell != "-" for cell in row[3:]] for row in reached]
        assert pod_vm_tag_cache == [
            [True, True, False, False],
            [True, False, True, True],
            [True, True, False, True],
            [False, False, True, True],
            [True, True, False, True],
            [True, False, True, True],
            [False, False, False, False],
        ]

        state = kept.state()
        assert state is not None
        assert {record.name for record in state.processes if record.alive} == SERVED
        assert f"export KUBECONFIG={state.kubeconfig}" in ran.stdout
        assert "make dev-down" in ran.stdout
        kubectl = [str(tools / "kubectl"), "--kubeconfig", state.kubeconfig, "get", "cset", "-A"]
        assert "No resources found" in subprocess.run(kubectl, capture_output=True, text=True, check=True).stderr
    finally:
        stopped = kept.down(print)
    assert {record.name for record in stopped} == SERVED
    assert not any(record.alive for record in stopped)


def test_ctrl_c_leaves_nothing_behind(tools: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cocoon_devkit.demo"]
    settings = environment(TMPDIR=str(tmp_path))
    with subprocess.Popen(
        command, env=settings, cwd=checkout.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        try:
            assert any(line.startswith("   +") for line in demo.stdout), demo.stderr.read()
            started = [json.loads(file.read_bytes()) for file in tmp_path.rglob("pids/*.json")]
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 130
            assert "nothing is left running" in demo.stderr.read()
        finally:
            demo.kill()
    assert {record["name"] for record in started} >= SERVED
    assert not [record for record in started if ProcessRecord(**record).alive]
    assert list(tmp_path.rglob("demo-*")) == []


def test_a_state_that_is_not_reached_ends_the_demo_with_what_was_seen(
    cluster: Cluster, node_agent: AgentProcess, api: Api, snapshots: str, capsys: pytest.CaptureFixture[str]
) -> None:
    host, _, path = snapshots.partition("/")
    world = DemoWorld(api, node_agent.client, f"http://{host}/v2/{path}", NODES, "default", "demo")
    story = Story(world, cluster.kubectl, OperatorAudit(cluster), View(), EXAMPLE, patience=0.5)
    try:
        # No operator runs here.
        with pytest.raises(DemoFailedError, match=r"Not within 0.5 seconds: phase Running, .*name='demo', phase='-'"):
            story.tell()
    finally:
        cluster.kubectl("delete", "cset", "demo", "--namespace", "default")
    assert rows(capsys.readouterr().out) == [["demo", "-", "-", "-", "-", "-", "-"]]
    assert story.outcomes == []
