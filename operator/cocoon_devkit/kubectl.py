"""kubectl as a function, with its own cache and nothing of the user's configuration."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocoon_devkit.errors import KubectlError

_SECONDS = 60.0

Completed = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Kubectl:
    """``kubectl("get", "pods")``; ``cache`` is a folder for its discovery cache."""

    binary: Path
    kubeconfig: Path
    cache: Path

    def __call__(
        self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = _SECONDS
    ) -> Completed:
        """Run it. Raises KubectlError when it ends with another code than 0 (and ``check``) or takes too long."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.cache)}
        try:
            answer = subprocess.run(
                [str(self.binary), *args],
                input=stdin if stdin is not None else "",
                capture_output=True,
                text=True,
                timeout=timeout,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise KubectlError(f"`kubectl {' '.join(args)}` has not ended after {timeout:.0f} seconds.") from None
        if check and answer.returncode != 0:
            said = answer.stderr.strip()
            raise KubectlError(f"`kubectl {' '.join(args)}` ended with code {answer.returncode}: {said}")
        return answer

    def get(self, *args: str) -> Any:
        """The object or list that ``kubectl get ARGS -o json`` prints."""
        return json.loads(self("get", *args, "-o", "json").stdout)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects given as dictionaries, in one call."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("apply", "-f", "-", stdin=json.dumps(items))

    def as_user(self, kubeconfig: Path) -> Kubectl:
        """The same kubectl with somebody else's credentials."""
        return Kubectl(self.binary, kubeconfig, self.cache)
