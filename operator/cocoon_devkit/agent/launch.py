"""The double as a child process, for tests and the demo: start, stop, kill, start again on the same disks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.process import Command, ManagedProcess
from cocoon_devkit.scratch import RECORDS

_READY_SECONDS = 60.0


@dataclass(frozen=True)
class AgentOptions:
    """What the process is told. ``registry`` is ``host:port[/prefix]``; ``flags`` are further options of the command."""

    nodes: Sequence[str]
    registry: str = ""
    time_scale: float = 1.0
    flags: Sequence[str] = ()


class AgentProcess:
    """``with AgentProcess(...) as nodes: nodes.client.vms("n1")``. Its files lie in ``folder``; the caller removes it."""

    def __init__(self, kubeconfig: Path, folder: Path, options: AgentOptions, *, name: str = "node-agent") -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._options = options
        self._name = name
        self._process: ManagedProcess | None = None
        self._client: AgentClient | None = None

    @property
    def client(self) -> AgentClient:
        """The client of the running process; an error when it does not run."""
        if self._client is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._client

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until its nodes are registered. Raises ProcessFailedError with the end of its log."""
        log = self._folder / "logs" / f"{self._name}.log"
        before = log.stat().st_size if log.exists() else 0
        # Killed, it leaves its temporary files behind, the cluster's certificates among them.
        environment = {**os.environ, "TMPDIR": str(self._folder)}
        command = Command(name=self._name, argv=self._argv(), log=log, env=environment)
        self._process = ManagedProcess(command, self._folder / RECORDS)
        try:
            self._process.wait_ready(lambda: bool(_control_url(log, before)), _READY_SECONDS)
        except BaseException:
            self.stop()
            raise
        self._client = AgentClient(_control_url(log, before))

    def stop(self) -> None:
        """SIGTERM: Node objects and pods stay. Nothing happens when it does not run."""
        if self._process is not None:
            self._process.stop(10)
        self._process = self._client = None

    def kill(self) -> None:
        """SIGKILL, as a crash of every node's agent at once."""
        if self._process is not None:
            self._process.kill()
        self._process = self._client = None

    def __enter__(self) -> AgentProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _argv(self) -> list[str]:
        options = self._options
        argv = [sys.executable, "-m", "cocoon_devkit.agent", "--kubeconfig", str(self._kubeconfig)]
        argv += ["--state-dir", str(self._folder / "nodes"), "--registry", options.registry]
        argv += ["--time-scale", str(options.time_scale), *options.flags]
        for node in options.nodes:
            argv += ["--node", node]
        return argv


def _control_url(log: Path, offset: int) -> str:
    """Return the URL of the ready line, "" while there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            if line.startswith(b'{"control"') and line.endswith(b"\n"):
                return str(json.loads(line)["control"])
    return ""
