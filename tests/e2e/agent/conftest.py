"""Fixtures of the node agent's end-to-end tests: one process with two nodes, and pods as the operator makes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_fleet import IMAGE, NODES, PREFIX, Fleet

from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch


@pytest.fixture(scope="session")
def node_agent(cluster: Cluster, registry: Registry) -> Iterator[AgentProcess]:
    """The double with two nodes, quick: windows at a tenth, so that the 15 s retry takes 1.5 s."""
    options = AgentOptions(
        nodes=NODES,
        registry=f"{registry.address}/{PREFIX}",
        time_scale=0.1,
        flags=("--boot-seconds", "0.05", "--save-seconds", "0.05"),
    )
    with Scratch("node-agent") as scratch, AgentProcess(cluster.kubeconfig, scratch.path, options) as process:
        process.client.publish_image(IMAGE)
        yield process
    cluster.kubectl("delete", "node", *NODES)


@pytest.fixture
def fleet(node_agent: AgentProcess, cluster: Cluster, registry: Registry, namespace: str) -> Iterator[Fleet]:
    """A namespace on these nodes; every fault is gone afterwards, and every pod."""
    fleet = Fleet(node_agent, cluster, registry, namespace)
    yield fleet
    fleet.close()
