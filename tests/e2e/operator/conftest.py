"""Fixtures of the operator's end-to-end tests: a set in a namespace of its own under a running operator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nodes import NODES
from seat import OTHER_IMAGE, Seat, Surroundings
from stalledsave import StalledSave

from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_devkit.rawapi import Api
from cocoon_devkit.registry import Registry


@pytest.fixture(scope="session", autouse=True)
def other_image(node_agent: AgentProcess) -> None:
    """A second image that VMs can be cloned from."""
    node_agent.client.publish_image(OTHER_IMAGE)


@pytest.fixture(scope="session")
def surroundings(cluster: Cluster, api: Api, node_agent: AgentProcess, registry: Registry) -> Surroundings:
    """The API server, the nodes, the registry, and the log of what the operator asked."""
    return Surroundings(api, node_agent, registry, OperatorAudit(cluster))


@pytest.fixture(scope="session")
def stalled(surroundings: Surroundings) -> Iterator[StalledSave]:
    """What takes longer than any single test may."""
    save = StalledSave(surroundings)
    yield save
    save.end()


@pytest.fixture
def seat(surroundings: Surroundings, operator: OperatorProcess, namespace: str) -> Iterator[Seat]:
    """A set that is not there yet. Afterwards no fault is left, the registry runs, and the set is asked to go."""
    seat = Seat(surroundings, namespace)
    yield seat
    if not seat.registry.running:
        seat.registry.start()
    for node in NODES:
        seat.agent.clear(node)
    if seat.find() is not None:
        seat.delete()
