"""Fixtures of the tests with several operators: a namespace for their Lease, two replicas, and sets for them to work on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from nodes import NODES

from cocoon_devkit.agent.launch import AgentProcess
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.rawapi import Api
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch
from tests.e2e.ha.replicas import Home
from tests.e2e.ha.valve import Valve
from tests.e2e.operator.seat import Seat, Surroundings

NewHome = Callable[[], Home]


@pytest.fixture(scope="session")
def surroundings(cluster: Cluster, api: Api, node_agent: AgentProcess, registry: Registry) -> Surroundings:
    """The API server, the nodes, the registry, and the audit log."""
    return Surroundings(api, node_agent, registry, OperatorAudit(cluster))


@pytest.fixture(scope="module")
def new_home(cluster: Cluster, snapshots: str, operator_kubeconfig: object) -> Iterator[NewHome]:
    """Makes namespaces for Leases; the chart's rights are there already."""
    homes: list[Home] = []
    assert operator_kubeconfig
    with Scratch("replicas") as scratch:

        def make() -> Home:
            namespace = f"lease-{uuid.uuid4().hex[:8]}"
            cluster.kubectl("create", "namespace", namespace)
            homes.append(Home(cluster, namespace, scratch.path / namespace, snapshots, cluster.audit_mark()))
            return homes[-1]

        yield make
        for home in homes:
            home.close()
            cluster.kubectl("delete", "namespace", home.namespace, "--wait=false")


@pytest.fixture(scope="module")
def valve() -> Iterator[Valve]:
    """What stands between ``first`` and the API server in modules that ask for it."""
    with Scratch("valve") as scratch, Valve(scratch.path) as valve:
        yield valve


@pytest.fixture
def seats(surroundings: Surroundings, namespace: str) -> Iterator[Callable[[str], Seat]]:
    """Sets by name, in one namespace. Afterwards no fault is left, and they are asked to go."""
    made: dict[str, Seat] = {}

    def seat(name: str) -> Seat:
        return made.setdefault(name, Seat(surroundings, namespace, name))

    yield seat
    for node in NODES:
        surroundings.agent.clear(node)
    for each in made.values():
        if each.find() is not None:
            each.delete()


@pytest.fixture
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Print what was measured, past the capture: it is shown, never asserted."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    def tell(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{text}")  # noqa: T201 - for a person

    return tell
