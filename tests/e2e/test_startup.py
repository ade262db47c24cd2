"""The operator refuses to start with one sentence that says what to do, exit code 1, and no traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cocoon_devkit import checkout
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import ControlPlane, ControlPlaneOptions
from cocoon_devkit.registry import Registry
from tests.e2e.operator_process import OperatorProcess

REGISTRY = {"OCI_REGISTRY": "registry.example.com/vms"}


def refusal(folder: Path, kubeconfig: Path, env: dict[str, str]) -> str:
    """Run until it ends by itself; return the one line that it says to the user."""
    operator = OperatorProcess(folder, kubeconfig, env=env)
    with operator:
        assert operator.process.wait(60) == 1, operator.output()
    output = operator.output()
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("cocoon-operator: ")]
    return line.removeprefix("cocoon-operator: ")


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A kubeconfig whose server does not exist."""
    file = tmp_path / "nowhere.kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(json.dumps(content))
    return file


@pytest.mark.scenario("S245", "S317")
@pytest.mark.parametrize("env", [{}, {"OCI_REGISTRY": ""}])
def test_without_a_registry(tmp_path: Path, nowhere: Path, env: dict[str, str]) -> None:
    assert refusal(tmp_path, nowhere, env).startswith("OCI_REGISTRY must be set: write ")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("https://registry.example.com", "must not have a scheme"),
        ("registry.example.com/Upper", "lower-case"),
        ("registry.example.com:0", "port"),
    ],
)
def test_with_a_malformed_registry(tmp_path: Path, nowhere: Path, text: str, advice: str) -> None:
    sentence = refusal(tmp_path, nowhere, {"OCI_REGISTRY": text})
    assert sentence.startswith("OCI_REGISTRY ")
    assert advice in sentence


@pytest.mark.scenario("S320", "S329", "S318")
@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"COCOONSET_CONCURRENCY": "0"}, "cocoonset concurrency must be at least 1, got 0"),
        ({"HIBERNATION_CONCURRENCY": "-3"}, "hibernation concurrency must be at least 1, got -3"),
        ({"OPERATOR_LOG_LEVEL": "loud"}, "OPERATOR_LOG_LEVEL=loud: use one of debug, info, warn, warning, error"),
    ],
)
def test_with_a_setting_that_cannot_work(tmp_path: Path, nowhere: Path, env: dict[str, str], sentence: str) -> None:
    assert refusal(tmp_path, nowhere, {**REGISTRY, **env}) == sentence


def test_without_an_api_server(tmp_path: Path, nowhere: Path) -> None:
    sentence = refusal(tmp_path, nowhere, REGISTRY)
    assert sentence.startswith("the API server http://127.0.0.1:1 (the kubeconfig ")
    assert "KUBECONFIG or --kubeconfig" in sentence


def test_with_a_kubeconfig_that_does_not_exist(tmp_path: Path) -> None:
    sentence = refusal(tmp_path, tmp_path / "missing", REGISTRY)
    assert sentence.startswith(f"no way to the API server: the kubeconfig {tmp_path / 'missing'} cannot be used")


@pytest.fixture
def bare(tools: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without CRDs."""
    with ControlPlane(tools, tmp_path / "bare", ControlPlaneOptions()) as cluster:
        yield cluster


def test_without_the_crds_it_waits_a_while_and_then_says_which(bare: Cluster, tmp_path: Path) -> None:
    env = {**REGISTRY, "CRD_TIMEOUT": "1s"}
    sentence = refusal(tmp_path, bare.kubeconfig, env)
    assert sentence == (
        "the API server does not serve cocoonhibernations.cocoonset.cocoonstack.io and"
        " cocoonsets.cocoonset.cocoonstack.io: install the CRDs first (kubectl apply -f crds/)"
    )
    waiting = OperatorProcess(tmp_path, bare.kubeconfig, name="waiting", env={**REGISTRY, "POD_NAMESPACE": "default"})
    with waiting:
        waiting.wait_log("waiting for the CRDs")
        assert waiting.probe("/healthz") == 200
        assert waiting.probe("/readyz") == 503
        bare.apply_crds(checkout.CRDS)
        waiting.wait_log("this replica leads")
        assert waiting.stop() == 0


@pytest.mark.scenario("S317", "S330")
def test_it_starts_and_stops_and_listens_where_the_flag_says(
    cluster: Cluster, registry: Registry, namespace: str, tmp_path: Path
) -> None:
    env = {"OCI_REGISTRY": registry.address, "POD_NAMESPACE": namespace, "WATCH_NAMESPACE": namespace}
    spare = OperatorProcess(tmp_path, cluster.kubeconfig)
    flag = f"--metrics-bind-address=127.0.0.1:{spare.metrics_port}"
    argv = (sys.executable, "-m", "cocoon_operator", flag)
    with OperatorProcess(tmp_path, cluster.kubeconfig, argv=argv, env=env) as operator:
        operator.wait_ready()
        operator.wait_log("this replica leads")
        assert operator.metrics() == ""
        assert "process_cpu_seconds_total" in spare.metrics()
        assert operator.stop() == 0
    assert "Traceback" not in operator.output()


def test_a_signal_before_it_has_started_ends_it(tmp_path: Path, bare: Cluster) -> None:
    operator = OperatorProcess(tmp_path, bare.kubeconfig, env=REGISTRY)
    with operator:
        operator.wait_log("waiting for the CRDs")
        assert operator.stop() == 0
