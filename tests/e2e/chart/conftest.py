"""Fixtures of the chart's tests: helm without a cluster, and a cluster to which the chart has to bring everything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodes import NODES
from rendered import CHART_PREFIX
from typing_extensions import override

from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.chart import Chart, Values
from cocoon_devkit.controlplane import API_SERVER, ControlPlane, ControlPlaneOptions
from cocoon_devkit.demo import EXAMPLE
from cocoon_devkit.helm import Helm
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch


@pytest.fixture(scope="session")
def helm(tools: Path) -> Iterator[Helm]:
    """helm without a cluster."""
    with Scratch("helm") as scratch:
        yield Helm(tools / "helm", scratch.path)


class RememberingChart(Chart):
    """Renders the same values once: half of the tests look at the same objects."""

    def __init__(self, helm: Helm) -> None:
        super().__init__(helm)
        self._rendered: dict[str, list[dict[str, Any]]] = {}

    @override
    def render(self, values: Values) -> list[dict[str, Any]]:
        key = json.dumps(values, sort_keys=True)
        if key not in self._rendered:
            self._rendered[key] = super().render(values)
        return deepcopy(self._rendered[key])


@pytest.fixture(scope="session")
def offline(helm: Helm) -> Chart:
    """The chart without a cluster."""
    return RememberingChart(helm)


@pytest.fixture(scope="session")
def bare_cluster(tools: Path) -> Iterator[ControlPlane]:
    """A cluster of its own without CRDs, which enforces owner references."""
    flags = {API_SERVER: ("--enable-admission-plugins=OwnerReferencesPermissionEnforcement",)}
    options = ControlPlaneOptions(flags=flags)
    with Scratch("chart-cluster") as scratch, ControlPlane(tools, scratch.path, options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def chart_snapshots(registry: Registry) -> str:
    """Where the VMs' snapshots of this cluster are."""
    return f"{registry.address}/{CHART_PREFIX}"


@pytest.fixture(scope="session")
def bare_nodes(bare_cluster: ControlPlane, chart_snapshots: str) -> Iterator[AgentProcess]:
    """The nodes of that cluster, quick, with the image of the example."""
    options = AgentOptions(nodes=NODES, registry=chart_snapshots, time_scale=0.1)
    with (
        Scratch("chart-nodes") as scratch,
        AgentProcess(bare_cluster.kubeconfig, scratch.path, options) as agent,
    ):
        agent.client.publish_image(yaml.safe_load(EXAMPLE.read_text())["spec"]["agent"]["image"])
        yield agent
