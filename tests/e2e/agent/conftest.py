"""Fixtures of the node agent's end-to-end tests: pods as the operator makes them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from node_fleet import Fleet

from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.rawapi import Api
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch


@pytest.fixture(scope="session")
def agent_namespace(api: Api) -> Iterator[str]:
    """One namespace for all of these tests; pod names are unique."""
    name = f"agent-{uuid.uuid4().hex[:6]}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    end = time.monotonic() + 30
    while api.find(f"/api/v1/namespaces/{name}/serviceaccounts/default") is None:
        assert time.monotonic() < end, f"no default ServiceAccount in {name}"
        time.sleep(0.1)
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def silent_node(cluster: Cluster, api: Api, agent_namespace: str) -> Iterator[Fleet]:
    """A node with one running pod whose heartbeats stopped when the first test began; nobody waits for it meanwhile."""
    options = AgentOptions(nodes=("silent",), flags=("--pool", "silent", "--boot-seconds", "0"))
    with Scratch("silent-node") as scratch, AgentProcess(cluster.kubeconfig, scratch.path, options) as process:
        fleet = Fleet(process, api, None, agent_namespace)
        fleet.begin("demo-0", node="silent", mode="run", image="https://example.invalid/disk.img")
        fleet.until_state("demo-0", "ready")
        process.client.heartbeats("silent", on=False)
        yield fleet
    api.call("DELETE", fleet.path("demo-0"), {"gracePeriodSeconds": 0})
    cluster.kubectl("delete", "node", "silent")


@pytest.fixture
def fleet(
    node_agent: AgentProcess, api: Api, registry: Registry, agent_namespace: str, silent_node: Fleet
) -> Iterator[Fleet]:
    """The nodes and a fresh family of pod names; every fault is gone afterwards, and every pod."""
    fleet = Fleet(node_agent, api, registry, agent_namespace)
    yield fleet
    fleet.close()
