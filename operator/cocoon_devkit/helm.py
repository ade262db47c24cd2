"""helm as a function, with folders of its own and nothing of the user's configuration."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from cocoon_devkit.errors import HelmError
from cocoon_devkit.process import clean_environment

_SECONDS = 120.0

Completed = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Helm:
    """``helm("template", "name", "chart")``; ``folder`` keeps what helm stores outside a cluster."""

    binary: Path
    folder: Path
    kubeconfig: Path | None = None

    def __call__(self, *args: str, stdin: str = "", check: bool = True) -> Completed:
        """Run it. Raises HelmError when it ends with another code than 0 (and ``check``) or takes too long."""
        try:
            answer = subprocess.run(
                [str(self.binary), *args],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env=self._environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HelmError(f"`helm {' '.join(args)}` has not ended after {_SECONDS:.0f} seconds.") from None
        if check and answer.returncode != 0:
            raise HelmError(f"`helm {' '.join(args)}` ended with code {answer.returncode}: {answer.stderr.strip()}")
        return answer

    def _environment(self) -> dict[str, str]:
        folders = {name: str(self.folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        cluster = {"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig is not None else {}
        return clean_environment(
            self.folder, **{f"HELM_{name}_HOME": path for name, path in folders.items()}, **cluster
        )
