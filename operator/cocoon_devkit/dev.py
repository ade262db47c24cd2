"""The development environment: cluster, registry and fake nodes that live on after the command that started them.

Everything about it lies in one folder (``.dev/run`` of the checkout): data, logs, credentials, process records.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import sys
from pathlib import Path

import msgspec
from typing_extensions import override

from cocoon_devkit import checkout
from cocoon_devkit.audit import AuditLog
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import AUDIT_FILE, ControlPlane, ControlPlaneOptions
from cocoon_devkit.filelock import exclusive
from cocoon_devkit.gobuild import Say
from cocoon_devkit.process import Command, Lifetime, ManagedProcess, ProcessRecord, read_records
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import RECORDS, record_folders, stop_everything
from cocoon_devkit.tools import find_tools

NODES = ("node-1", "node-2")
REGISTRY_PREFIX = "cocoon"
LEASE_NAMESPACE = "cocoon-system"
AGENT_SECONDS = 30.0
_LOCK_SECONDS = 600.0
_AGENT_MODULE = "cocoon_devkit.agent"
_READY_LINE = re.compile(r'^\{"control": "(.+)"\}$', re.MULTILINE)


class DevState(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody who works with the environment has to know. ``agent`` is the URL of the nodes' control endpoint."""

    kubeconfig: str
    registry: str
    tools: str
    agent: str
    processes: list[ProcessRecord] = []

    @property
    def exports(self) -> str:
        """Lines for a shell: ``eval "$(cocoon-devkit up)"``."""
        lines = {"KUBECONFIG": self.kubeconfig, "OCI_REGISTRY": self.registry, "COCOON_AGENT": self.agent}
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in lines.items())


class DevCluster(Cluster):
    """The cluster of a running environment, for whoever did not start it."""

    def __init__(self, state: DevState) -> None:
        kubeconfig = Path(state.kubeconfig)
        super().__init__(Path(state.tools), kubeconfig, kubeconfig.parent)

    @property
    @override
    def audit(self) -> AuditLog:
        return AuditLog.of_file(self.folder / AUDIT_FILE)


class DevEnvironment:
    """``up()``, ``down()`` and ``state()`` of the environment in one folder.

    With a ``lifetime`` of BOUND it ends with the process that starts it.
    """

    def __init__(
        self,
        folder: Path = checkout.DEV_STATE,
        *,
        crds: Path = checkout.CRDS,
        lifetime: Lifetime = Lifetime.DETACHED,
    ) -> None:
        self._lock = folder / "lock"
        self._folder = folder / "run"
        self._crds = crds
        self._lifetime = lifetime

    @property
    def folder(self) -> Path:
        """Where everything lies. A process recorded in a folder right under it belongs to the environment too."""
        return self._folder

    def up(self, say: Say) -> DevState:
        """Start it, fresh; nothing happens when it runs already.

        Raises DevkitError, with nothing left running, when a part does not start.
        """
        with self._alone(say):
            running = self.state()
            if running is not None and all(record.alive for record in running.processes):
                return running
            self._clear()
            tools = find_tools(say)
            try:
                return self._start(tools, say)
            except BaseException:
                self._clear()
                raise

    def down(self, say: Say) -> list[ProcessRecord]:
        """Stop it and remove its data. Returns the processes that were stopped."""
        with self._alone(say):
            return self._clear()

    def state(self) -> DevState | None:
        """How to reach it, or None when it was not started or not to the end; its processes may have died since."""
        file = self._folder / "state.json"
        if not file.exists():
            return None
        state = msgspec.json.decode(file.read_bytes(), type=DevState)
        records = [record for folder in record_folders(self._folder) for record in read_records(folder)]
        return msgspec.structs.replace(state, processes=records)

    def _alone(self, say: Say) -> contextlib.AbstractContextManager[None]:
        return exclusive(self._lock, _LOCK_SECONDS, say)

    def _start(self, tools: Path, say: Say) -> DevState:
        say("starting the control plane")
        options = ControlPlaneOptions(crds=self._crds)
        cluster = ControlPlane(tools, self._folder / "cluster", options, self._lifetime)
        cluster.start()
        cluster.kubectl("create", "namespace", LEASE_NAMESPACE)
        say("starting the registry")
        registry = Registry(tools, self._folder / "registry", lifetime=self._lifetime)
        registry.start()
        address = f"{registry.address}/{REGISTRY_PREFIX}"
        agent = self._start_agent(cluster.kubeconfig, address, say)
        state = DevState(
            kubeconfig=str(cluster.kubeconfig),
            registry=address,
            tools=str(tools),
            agent=agent,
        )
        (self._folder / "state.json").write_bytes(msgspec.json.encode(state))
        return self.state() or state

    def _start_agent(self, kubeconfig: Path, registry: str, say: Say) -> str:
        say(f"starting the nodes {', '.join(NODES)}")
        folder = self._folder / "agent"
        nodes = [word for node in NODES for word in ("--node", node)]
        where = ["--kubeconfig", str(kubeconfig), "--registry", registry, "--state-dir", str(folder / "state")]
        log = folder / "logs" / "node-agent.log"
        argv = (sys.executable, "-m", _AGENT_MODULE, *where, *nodes, "--control-port", "0")
        command = Command(name="node-agent", argv=argv, log=log)
        process = ManagedProcess(command, folder / RECORDS, self._lifetime)
        process.wait_ready(lambda: _control_url(log) is not None, AGENT_SECONDS)
        return str(_control_url(log))

    def _clear(self) -> list[ProcessRecord]:
        if not self._folder.exists():
            return []
        stopped = stop_everything(self._folder)
        shutil.rmtree(self._folder)
        return stopped


def _control_url(log: Path) -> str | None:
    ready = _READY_LINE.search(log.read_text(errors="replace"))
    return ready[1] if ready else None
