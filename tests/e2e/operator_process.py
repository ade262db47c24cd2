"""The operator as a process of its own: embedded, or under ``kopf run``."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from cocoon_devkit.ports import free_ports
from cocoon_devkit.process import Command, ManagedProcess

EMBEDDED = (sys.executable, "-m", "cocoon_operator")
UNDER_KOPF = (sys.executable, "-m", "kopf", "run", "-m", "cocoon_operator.handlers", "-A")

_START_SECONDS = 30.0
_STOP_SECONDS = 25.0


class OperatorProcess:
    """``start()`` and ``stop()``, or a ``with`` block. Nothing of the caller's settings reaches it."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        argv: tuple[str, ...] = EMBEDDED,
        name: str = "operator",
        env: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.log = folder / f"{name}.log"
        self.metrics_port, self.probe_port = free_ports(2)
        settings = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "KUBECONFIG": str(kubeconfig),
            "METRICS_ADDR": f"127.0.0.1:{self.metrics_port}",
            "PROBE_ADDR": f"127.0.0.1:{self.probe_port}",
            **(env or {}),
        }
        self._command = Command(name, argv, self.log, env={key: value for key, value in settings.items() if value})
        self._process: ManagedProcess | None = None

    @property
    def process(self) -> ManagedProcess:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start it, without waiting for anything."""
        self._process = ManagedProcess(self._command, self.folder / "records")

    def wait_ready(self) -> None:
        """Wait until it sees the cluster as it is."""
        self.process.wait_ready(lambda: self.probe("/readyz") == 200, _START_SECONDS)

    def wait_log(self, text: str) -> None:
        """Wait until it says something."""
        self.process.wait_ready(lambda: text in self.output(), _START_SECONDS)

    def output(self) -> str:
        """Everything it printed."""
        return self.log.read_text() if self.log.exists() else ""

    def probe(self, path: str) -> int:
        """Return the status of a probe; 0 when nobody listens."""
        return self._fetch(self.probe_port, path)[0]

    def metrics(self) -> str:
        """Return what ``/metrics`` says."""
        return self._fetch(self.metrics_port, "/metrics")[1]

    def stop(self) -> int:
        """Ask it to stop and return its exit code."""
        if self.process.alive:
            os.kill(self.process.pid, 15)
        code = self.process.wait(_STOP_SECONDS)
        self.process.stop()
        return code

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.stop(_STOP_SECONDS)

    def _fetch(self, port: int, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""
