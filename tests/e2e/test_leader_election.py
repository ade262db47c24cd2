"""One replica acts, the others watch (S312, I9); a laptop under ``kopf run`` is a replica like any other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cocoon_devkit.audit import AuditEvent
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.registry import Registry
from cocoon_operator.api import keys
from tests.e2e.operator_process import UNDER_KOPF, OperatorProcess


def eventually(check: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.05)


@dataclass
class Replicas:
    """Operators of one namespace, each with an identity of its own in the audit log."""

    cluster: Cluster
    namespace: str
    folder: Path
    env: dict[str, str]

    def make(self, name: str) -> OperatorProcess:
        self.cluster.kubectl("create", "serviceaccount", name, "-n", self.namespace)
        self.cluster.kubectl(
            "create", "clusterrolebinding", f"{name}-{self.namespace}", "--clusterrole=cluster-admin",
            f"--serviceaccount={self.namespace}:{name}",
        )  # fmt: skip
        kubeconfig = self.cluster.service_account_kubeconfig(self.namespace, name)
        return OperatorProcess(self.folder, kubeconfig, name=name, env=self.env)

    def writes(self, name: str, since: int) -> list[AuditEvent]:
        user = f"system:serviceaccount:{self.namespace}:{name}"
        return [event for event in self.cluster.audit_events(since) if event.user.username == user and event.is_write]

    def create_set(self, name: str) -> None:
        body = {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_SET,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"agent": {"image": "registry.example.com/agent:1"}},
        }
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        pod = ("get", "pod", f"{name}-0", "-n", self.namespace)
        eventually(lambda: self.cluster.kubectl(*pod, check=False).returncode == 0)


@pytest.fixture
def replicas(cluster: Cluster, registry: Registry, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    env = {"OCI_REGISTRY": registry.address, "POD_NAMESPACE": namespace, "WATCH_NAMESPACE": namespace}
    yield Replicas(cluster, namespace, tmp_path, env)
    for name in ("first", "second"):
        cluster.kubectl("delete", "clusterrolebinding", f"{name}-{namespace}", "--ignore-not-found")


@pytest.mark.scenario("S312")
def test_a_second_replica_answers_probes_and_writes_nothing(replicas: Replicas) -> None:
    with replicas.make("first") as first:
        first.wait_log("this replica leads")
        mark = replicas.cluster.audit_mark()
        with replicas.make("second") as second:
            second.wait_ready()
            assert second.probe("/healthz") == 200
            assert "leader_election_master_status" in second.metrics()
            replicas.create_set("demo")
            assert second.stop() == 0
        assert replicas.writes("first", mark)
        assert replicas.writes("second", mark) == []


def test_i9_a_leader_that_slept_through_its_lease_writes_nothing_and_ends(replicas: Replicas) -> None:
    with replicas.make("first") as first, replicas.make("second") as second:
        # Whoever leads is put to sleep, as a suspended machine is.
        eventually(lambda: "this replica leads" in first.output() + second.output())
        leader, other = (first, second) if "this replica leads" in first.output() else (second, first)
        other.wait_ready()
        leader.process.pause()
        other.wait_log("this replica leads")
        mark = replicas.cluster.audit_mark()
        leader.process.resume()
        replicas.create_set("demo")
        assert leader.process.wait(20) == 1, leader.output()
        assert "the Lease was lost" in leader.output()
        assert replicas.writes(leader.process.name, mark) == []
        assert replicas.writes(other.process.name, mark)
        assert other.stop() == 0


@pytest.mark.scenario("S312")
def test_kopf_run_beside_a_deployment_only_watches_until_the_lease_is_free(
    cluster: Cluster, registry: Registry, namespace: str, tmp_path: Path
) -> None:
    env = {"OCI_REGISTRY": registry.address, "POD_NAMESPACE": namespace}
    deployment = OperatorProcess(tmp_path, cluster.kubeconfig, name="deployment", env=env)
    laptop = OperatorProcess(tmp_path, cluster.kubeconfig, name="laptop", argv=UNDER_KOPF, env=env)
    with deployment:
        deployment.wait_log("this replica leads")
        with laptop:
            laptop.wait_log("leads; this replica only watches until the Lease is free")
            assert "this replica leads" not in laptop.output()
            assert deployment.stop() == 0, deployment.output()
            laptop.wait_log("this replica leads")
            assert laptop.stop() == 0, laptop.output()
