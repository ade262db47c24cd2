"""The operator as a process of this machine: start, stop, kill, pause, start again, with the rights of a kubeconfig."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from cocoon_devkit.chart import NAMESPACE, install_rights
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.httpprobe import answers
from cocoon_devkit.ports import LOOPBACK, free_ports
from cocoon_devkit.process import Command, Lifetime, ManagedProcess, clean_environment
from cocoon_devkit.scratch import RECORDS

EMBEDDED: Final = ("-m", "cocoon_operator", "run")
UNDER_KOPF: Final = ("-m", "kopf", "run", "-m", "cocoon_operator.handlers", "-A")
"""The two ways to start it, as arguments of Python; under Kopf it serves neither probes nor metrics."""

READY_SECONDS = 40.0
STOP_SECONDS = 25.0
_LEADS: Final = "this replica leads"
_PACKAGES = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class OperatorOptions:
    """``registry`` is ``host:port[/path]``, ``argv`` is ``EMBEDDED`` or ``UNDER_KOPF``.

    ``settings`` are further variables of the operator, and beat those that are set here (contract 8.1).
    """

    registry: str
    leader_elect: bool = True
    log_level: str = "debug"
    argv: tuple[str, ...] = EMBEDDED
    settings: Mapping[str, str] = field(default_factory=dict)


class OperatorProcess:
    """``start()`` and ``stop()`` as often as needed, or a ``with`` block. Files lie in ``folder``, the caller removes it."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        options: OperatorOptions,
        *,
        name: str = "operator",
        lifetime: Lifetime = Lifetime.BOUND,
    ) -> None:
        self.name = name
        self.log = folder / "logs" / f"{name}.log"
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._options = options
        self._lifetime = lifetime
        self._metrics, self._probes = free_ports(2)
        self._process: ManagedProcess | None = None
        self._printed_before = 0
        folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def as_service_account(
        cls, cluster: Cluster, folder: Path, options: OperatorOptions, *, lifetime: Lifetime = Lifetime.BOUND
    ) -> OperatorProcess:
        """An operator with exactly the rights that the chart gives; the chart is installed for it, without replicas."""
        return cls(install_rights(cluster, options.registry), folder, options, lifetime=lifetime)

    @property
    def process(self) -> ManagedProcess:
        """The running process; an error when it is stopped."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended by itself."""
        return self._process is not None and self._process.alive

    @property
    def leading(self) -> bool:
        """Whether it has said, since its last start, that it acts."""
        return _LEADS in self.said()

    @property
    def metrics_url(self) -> str:
        return f"http://{LOOPBACK}:{self._metrics}/metrics"

    def probe(self, path: str) -> int | None:
        """The status of ``/readyz`` or ``/livez``, None without an answer."""
        return answers(f"http://{LOOPBACK}:{self._probes}{path}")

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it sees the cluster as it is.

        Raises ProcessFailedError, with the end of its log, when it ends before that or needs too long.
        """
        argv = (sys.executable, *self._options.argv)
        self._printed_before = len(self.output())
        command = Command(name=self.name, argv=argv, log=self.log, env=self._environment(), cwd=self._folder)
        self._process = ManagedProcess(command, self._folder / RECORDS, self._lifetime)
        if not wait:
            return
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def wait_ready(self) -> None:
        """Wait for ``/readyz``. Raises ProcessFailedError."""
        self.process.wait_ready(lambda: self.probe("/readyz") == 200, READY_SECONDS)

    def wait_leading(self) -> None:
        """Wait until this replica acts. Raises ProcessFailedError."""
        self.process.wait_ready(lambda: self.leading, READY_SECONDS)

    def stop(self) -> int | None:
        """SIGTERM, so that it ends gracefully; the exit code, None when it did not run."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.stop(STOP_SECONDS)
        return process.exit_code

    def wait_ended(self, seconds: float = STOP_SECONDS) -> int:
        """Wait until it ends by itself; its exit code. Raises ProcessFailedError when it does not."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL, as a crash; nothing happens when it does not run."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()

    def restart(self) -> None:
        """Stop it gracefully and start it on the same ports."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Kill it and start it again: it then knows only what is in the cluster and in the registry."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP, as on a hung machine."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT after ``pause``."""
        self.process.resume()

    def output(self) -> str:
        """Everything it printed since the first start."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def said(self) -> str:
        """What it printed since its last start."""
        return self.output()[self._printed_before :]

    def __enter__(self) -> OperatorProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _environment(self) -> dict[str, str]:
        options = self._options
        settings = {
            "PYTHONPATH": str(_PACKAGES),
            "PYTHONUNBUFFERED": "1",
            "KUBECONFIG": str(self._kubeconfig),
            "OCI_REGISTRY": options.registry,
            "METRICS_ADDR": f"{LOOPBACK}:{self._metrics}",
            "PROBE_ADDR": f"{LOOPBACK}:{self._probes}",
            "LEADER_ELECT": str(options.leader_elect).lower(),
            "POD_NAMESPACE": NAMESPACE,
            "OPERATOR_LOG_LEVEL": options.log_level,
            **options.settings,
        }
        return clean_environment(self._folder, **settings)
