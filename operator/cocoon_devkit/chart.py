"""The project's chart, rendered and installed by real helm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from cocoon_devkit import checkout
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.helm import Completed, Helm

CHART: Final = checkout.ROOT / "charts" / "cocoon-operator"
NAMESPACE: Final = "cocoon-system"
NAME: Final = "cocoon-operator"
"""The name of the release and of every object in it."""

OPERATOR_USER: Final = f"system:serviceaccount:{NAMESPACE}:{NAME}"

TOKEN_SECONDS: Final = 30 * 86_400

Values = Mapping[str, Any]


class Chart:
    """The chart and a cluster; ``values`` are those of ``values.yaml``, nested.

    ``folder`` is the chart's, ``namespace`` that of the release, which is always called ``NAME``.
    """

    def __init__(self, helm: Helm, folder: Path = CHART, namespace: str = NAMESPACE) -> None:
        self._helm = helm
        self._folder = folder
        self._namespace = namespace

    @classmethod
    def on(cls, cluster: Cluster, folder: Path = CHART, namespace: str = NAMESPACE) -> Chart:
        """The chart and helm with an administrator's credentials for a cluster."""
        return cls(Helm(cluster.tools / "helm", cluster.folder / "helm", cluster.kubeconfig), folder, namespace)

    def render(self, values: Values) -> list[dict[str, Any]]:
        """Every object of the chart, those of its hooks too, without asking a cluster. Raises HelmError with helm's words."""
        rendered = self.run("template", values).stdout
        return [document for document in yaml.safe_load_all(rendered) if document]

    def install(self, values: Values, *flags: str) -> Completed:
        """Install or upgrade the release, without waiting for its pods. Raises HelmError."""
        return self.run("upgrade", values, "--install", "--create-namespace", *flags)

    def roll_back(self, revision: int) -> None:
        """Go back to what the release was at a revision, counted from 1. Raises HelmError."""
        self._helm("rollback", NAME, str(revision), "--namespace", self._namespace)

    def uninstall(self) -> None:
        """Remove the release; the CRDs and the namespace stay. Nothing happens when it is not there."""
        self._helm("uninstall", NAME, "--namespace", self._namespace, "--ignore-not-found", "--wait")

    def run(self, command: str, values: Values, *flags: str, check: bool = True) -> Completed:
        """Run a command of helm that takes values."""
        where = ("--namespace", self._namespace, "--values", "-")
        return self._helm(command, NAME, str(self._folder), *where, *flags, stdin=json.dumps(values), check=check)


def install_rights(cluster: Cluster, registry: str) -> Path:
    """Install the chart without replicas; returns a kubeconfig of its ServiceAccount, valid for a month.

    So a process of this machine works with exactly the chart's rights. The CRDs are there already. Admission stays off:
    an administrator makes pods here as no user of a cluster may.
    """
    off = {"crds": {"install": False}, "admission": {"enabled": False}}
    Chart.on(cluster).install({"registry": registry, "replicaCount": 0, **off})
    return cluster.service_account_kubeconfig(NAMESPACE, NAME, TOKEN_SECONDS)
