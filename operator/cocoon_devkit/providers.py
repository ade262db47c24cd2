"""Where a cluster comes from: an explicit kubeconfig, kind where a Docker engine runs, else the local control plane.

``COCOON_E2E_KUBECONFIG`` names the first; ``COCOON_E2E_PROVIDER`` (``kind`` or ``local``) overrules the rest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import ControlPlane, ControlPlaneOptions
from cocoon_devkit.errors import DevkitError
from cocoon_devkit.kind import KindCluster
from cocoon_devkit.scratch import Scratch

KUBECONFIG_VARIABLE = "COCOON_E2E_KUBECONFIG"
PROVIDER_VARIABLE = "COCOON_E2E_PROVIDER"
_DOCKER_SECONDS = 10.0


@contextlib.contextmanager
def provided_cluster(tools: Path, crds: Path, kubeconfig: Path | None = None) -> Iterator[Cluster]:
    """A cluster with the CRDs of ``crds`` for the length of a ``with`` block.

    Raises DevkitError when the chosen provider cannot give one. A cluster named by a kubeconfig stays as it is
    afterwards, but for the CRDs.
    """
    with Scratch("cluster") as scratch:
        match _choice(kubeconfig):
            case Path() as named:
                cluster = Cluster(tools, named, scratch.path)
                cluster.apply_crds(crds)
                yield cluster
            case "kind":
                with KindCluster(tools, scratch.path) as cluster:
                    cluster.apply_crds(crds)
                    yield cluster
            case _:
                with ControlPlane(tools, scratch.path, ControlPlaneOptions(crds=crds)) as cluster:
                    yield cluster


def _choice(kubeconfig: Path | None) -> Path | str:
    named = kubeconfig or os.environ.get(KUBECONFIG_VARIABLE)
    if named:
        file = Path(named).expanduser().absolute()
        if not file.is_file():
            raise DevkitError(f"The kubeconfig {file} does not exist.")
        return file
    provider = os.environ.get(PROVIDER_VARIABLE)
    if provider not in {None, "", "kind", "local"}:
        raise DevkitError(f"{PROVIDER_VARIABLE} is {provider!r}; it can be kind or local.")
    return provider or ("kind" if docker_answers() else "local")


def docker_answers() -> bool:
    """Whether a Docker engine answers (the client alone cannot run anything)."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    command = [docker, "version", "--format", "{{.Server.Version}}"]
    try:
        answer = subprocess.run(command, capture_output=True, check=False, timeout=_DOCKER_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0
