"""A cluster in a container by kind. It runs only where a Docker engine does, and is exercised only there.

Against the local control plane it lacks process ids of the components (they live in the container); the audit log is
read through ``docker exec``.
"""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from types import TracebackType

import yaml
from typing_extensions import override

from cocoon_devkit.audit import POLICY, AuditLog
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.errors import DevkitError

_CREATE_SECONDS = 600.0
_EXEC_SECONDS = 30.0
_READY = "180s"
_POLICY_MOUNT = "/etc/kubernetes/cocoon-audit"
_LOG_MOUNT = "/var/log/cocoon-audit"
_LOG = f"{_LOG_MOUNT}/audit.jsonl"


class KindCluster(Cluster):
    """``start()`` and ``stop()``, or a ``with`` block; each has a name of its own, so that several can live at once."""

    def __init__(self, tools: Path, folder: Path) -> None:
        super().__init__(tools, folder / "kind.kubeconfig", folder)
        self.name = f"cocoon-{uuid.uuid4().hex[:8]}"

    @property
    @override
    def audit(self) -> AuditLog:
        return AuditLog(self._read_log)

    def start(self) -> None:
        """Create it and wait for its node. Raises DevkitError with what kind said."""
        policies = self.folder / "audit-policy"
        policies.mkdir(parents=True, exist_ok=True)
        (policies / "policy.yaml").write_text(POLICY)
        config = self.folder / "kind.yaml"
        config.write_text(yaml.safe_dump(_config(policies), sort_keys=False))
        try:
            self._kind("create", "cluster", "--config", str(config), "--wait", _READY)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Delete it with its container."""
        self._kind("delete", "cluster")

    def __enter__(self) -> KindCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _kind(self, *args: str) -> None:
        command = [str(self.tools / "kind"), *args, "--name", self.name, "--kubeconfig", str(self.kubeconfig)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_CREATE_SECONDS)
        if answer.returncode != 0:
            raise DevkitError(f"`kind {' '.join(args)}` failed: {answer.stderr.strip()}")

    def _read_log(self, offset: int) -> bytes:
        command = ["docker", "exec", f"{self.name}-control-plane", "tail", "-c", f"+{offset + 1}", _LOG]
        return subprocess.run(command, capture_output=True, check=True, timeout=_EXEC_SECONDS).stdout


def _config(policies: Path) -> dict[str, object]:
    arguments = {
        "audit-policy-file": f"{_POLICY_MOUNT}/policy.yaml",
        "audit-log-path": _LOG,
        "audit-log-maxsize": "0",
    }
    volumes = [
        {"name": "audit-policy", "hostPath": _POLICY_MOUNT, "mountPath": _POLICY_MOUNT, "readOnly": True},
        {"name": "audit-log", "hostPath": _LOG_MOUNT, "mountPath": _LOG_MOUNT, "pathType": "DirectoryOrCreate"},
    ]
    patch = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": [{"name": name, "value": value} for name, value in arguments.items()],
            "extraVolumes": volumes,
        },
    }
    node = {
        "role": "control-plane",
        "kubeadmConfigPatches": [yaml.safe_dump(patch, sort_keys=False)],
        "extraMounts": [{"hostPath": str(policies), "containerPath": _POLICY_MOUNT, "readOnly": True}],
    }
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {"apiServerAddress": "127.0.0.1"},
        "nodes": [node],
    }
