"""Fixtures of the end-to-end tests: the real control plane, the real registry, a namespace for each test.

One cluster and one registry serve the whole run. The tools are found, and built if need be, before the first test: that
may take minutes and must not count against a test's time limit.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import IMAGE, NODES, PREFIX

from cocoon_devkit import checkout
from cocoon_devkit.agent.launch import AgentOptions, AgentProcess
from cocoon_devkit.chart import install_rights
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.providers import provided_cluster
from cocoon_devkit.rawapi import Api, proxied_api
from cocoon_devkit.registry import Registry
from cocoon_devkit.scratch import Scratch
from cocoon_devkit.tools import find_tools

HERE = Path(__file__).parent
TOOLS = pytest.StashKey[Path]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not any(item.path.is_relative_to(HERE) for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        session.config.stash[TOOLS] = find_tools()


@pytest.fixture(scope="session")
def tools(pytestconfig: pytest.Config) -> Path:
    """The folder of kube-apiserver, etcd, kubectl, helm, registry and the rest."""
    return pytestconfig.stash[TOOLS]


@pytest.fixture(scope="session")
def cluster(tools: Path) -> Iterator[Cluster]:
    """The cluster of the run, with the CRDs of the checkout."""
    with provided_cluster(tools, checkout.CRDS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def registry(tools: Path) -> Iterator[Registry]:
    """The registry of the run: no login, plain HTTP, deletes on. A test that takes it down brings it up again."""
    with Scratch("registry") as scratch, Registry(tools, scratch.path) as registry:
        yield registry


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace in which pods can be made; its deletion is asked for, not waited for."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    deadline = time.monotonic() + 30
    # Pods are refused until the controller manager has made the default ServiceAccount.
    while cluster.kubectl("get", "serviceaccount", "default", "--namespace", name, check=False).returncode != 0:
        assert time.monotonic() < deadline, f"no default ServiceAccount in {name} after 30 seconds"
        time.sleep(0.1)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def api(cluster: Cluster) -> Iterator[Api]:
    """The API server as the administrator, without a kubectl for every request."""
    with proxied_api(cluster) as api:
        yield api


@pytest.fixture(scope="session")
def snapshots(registry: Registry) -> str:
    """Where the VMs' repositories are: what the nodes push to and the operator's OCI_REGISTRY."""
    return f"{registry.address}/{PREFIX}"


@pytest.fixture(scope="session")
def node_agent(cluster: Cluster, snapshots: str) -> Iterator[AgentProcess]:
    """The double with two nodes, quick: windows at a tenth, so that the 15 s retry takes 1.5 s."""
    options = AgentOptions(
        nodes=NODES,
        registry=snapshots,
        time_scale=0.1,
        flags=("--boot-seconds", "0.05", "--save-seconds", "0.05"),
    )
    with Scratch("node-agent") as scratch, AgentProcess(cluster.kubeconfig, scratch.path, options) as process:
        process.client.publish_image(IMAGE)
        yield process
    cluster.kubectl("delete", "node", *NODES)


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster: Cluster, snapshots: str) -> Path:
    """The credentials of the chart's ServiceAccount: what a process does with them, the chart allows."""
    return install_rights(cluster, snapshots)


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, node_agent: AgentProcess, snapshots: str, operator_kubeconfig: Path
) -> Iterator[OperatorProcess]:
    """The operator with the chart's rights, for the tests of one module; a test that ends it starts it again.

    Not for the whole run: other modules start operators of their own, and two must not act at once.
    """
    with Scratch("operator") as scratch:
        process = OperatorProcess(operator_kubeconfig, scratch.path, OperatorOptions(snapshots))
        process.start()
        process.wait_leading()
        yield process
        process.stop()


@pytest.fixture
def operator_audit(cluster: Cluster) -> OperatorAudit:
    """What the operator of the ``operator`` fixture asked of the API server."""
    return OperatorAudit(cluster)
