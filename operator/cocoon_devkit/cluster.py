"""What tests and demos need of a cluster, wherever it comes from (``providers``)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cocoon_devkit.audit import AuditEvent, AuditLog
from cocoon_devkit.errors import DevkitError, NotAvailableError
from cocoon_devkit.kubeconfig import write_kubeconfig
from cocoon_devkit.kubectl import Kubectl

_MARKER = "cocoon-devkit-marker"
_AUDIT_SECONDS = 10.0
_POLL_SECONDS = 0.02
_CRD_SECONDS = 60


class Cluster:
    """A running cluster and the credentials of an administrator. ``folder`` is for files that go with it."""

    def __init__(self, tools: Path, kubeconfig: Path, folder: Path) -> None:
        self.tools = tools
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.kubectl = Kubectl(tools / "kubectl", kubeconfig, folder / "kubectl-cache")

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._connection()["server"])

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids of the components by name. Raises NotAvailableError where they are not ours."""
        raise NotAvailableError(f"The processes of {self.server} are not ours; use the local control plane.")

    @property
    def audit(self) -> AuditLog:
        """The audit log as it is. Raises NotAvailableError where there is none to read."""
        raise NotAvailableError(f"{self.server} has no audit log for us; use the local control plane.")

    def audit_mark(self) -> int:
        """A place in the audit log after everything that was answered until now."""
        self._settle_audit()
        return self.audit.mark()

    def audit_events(self, since: int = 0) -> list[AuditEvent]:
        """Every request answered after the mark, also those answered just now; the reader's own are left out."""
        self._settle_audit()
        return [event for event in self.audit.events(since) if _MARKER not in event.request_uri]

    def apply_crds(self, folder: Path) -> None:
        """Apply the CRDs of a folder and wait until they are served. Raises DevkitError when it has none."""
        if not list(folder.glob("*.yaml")):
            raise DevkitError(f"{folder} has no CRDs; `make generate` writes them.")
        self.kubectl("apply", "--server-side", "-f", str(folder))
        self.kubectl("wait", "--for=condition=Established", f"--timeout={_CRD_SECONDS}s", "-f", str(folder), timeout=90)

    def service_account_kubeconfig(self, namespace: str, name: str, seconds: int = 86_400) -> Path:
        """A kubeconfig with a fresh token of a ServiceAccount, valid for ``seconds`` (at least 600)."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, f"--duration={seconds}s").stdout.strip()
        return write_kubeconfig(
            self.folder / "kubeconfigs" / f"{namespace}-{name}.yaml",
            cluster=self._connection(),
            user={"token": token},
            namespace=namespace,
        )

    def _connection(self) -> dict[str, Any]:
        view = self.kubectl("config", "view", "--minify", "--flatten", "--raw", "-o", "json").stdout
        entry: dict[str, Any] = json.loads(view)["clusters"][0]["cluster"]
        return entry

    def _settle_audit(self) -> None:
        """Wait for the entry of a request of our own: the entry of an answer is written a moment after the answer."""
        log, uri = self.audit, f"/version?{_MARKER}={uuid.uuid4()}"
        before = log.mark()
        self.kubectl("get", "--raw", uri)
        deadline = time.monotonic() + _AUDIT_SECONDS
        while not any(event.request_uri == uri for event in log.events(before)):
            if time.monotonic() > deadline:
                raise DevkitError(f"The audit log of {self.server} shows no entry for {uri}.")
            time.sleep(_POLL_SECONDS)
