"""Kopf watches and writes nothing, proven from the audit log (design 3); and both ways to start work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cocoon_devkit.audit import AuditEvent
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.registry import Registry
from cocoon_operator.api import keys
from tests.e2e.operator_process import EMBEDDED, UNDER_KOPF, OperatorProcess

FOREIGN_FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


def eventually(check: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.05)


def cocoonset(namespace: str, name: str, **metadata: Any) -> str:
    return json.dumps(
        {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_SET,
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "spec": {"agent": {"image": "registry.example.com/agent:1"}},
        }
    )


def hibernation(namespace: str, name: str) -> str:
    return json.dumps(
        {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_HIBERNATION,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"podRef": {"name": "demo-0"}, "desire": "Wake"},
        }
    )


def by_kopf(events: list[AuditEvent]) -> list[AuditEvent]:
    return [event for event in events if event.user_agent.startswith("kopf/")]


def live_a_life(cluster: Cluster, namespace: str) -> None:
    """Create, edit, annotate and delete objects of both kinds."""
    kubectl = cluster.kubectl
    kubectl("apply", "-f", "-", stdin=cocoonset(namespace, "demo", finalizers=[FOREIGN_FINALIZER]))
    kubectl("apply", "-f", "-", stdin=hibernation(namespace, "held"))
    eventually(lambda: kubectl("get", "pod", "demo-0", "-n", namespace, check=False).returncode == 0)
    patch = '{"spec":{"agent":{"image":"registry.example.com/agent:2"}}}'
    kubectl("patch", "cocoonset", "demo", "-n", namespace, "--type=merge", "-p", patch)
    kubectl("annotate", "cocoonset", "demo", "-n", namespace, "example.com/a=b")
    kubectl("annotate", "cocoonhibernation", "held", "-n", namespace, "example.com/a=b")
    kubectl("delete", "cocoonhibernation", "held", "-n", namespace)
    kubectl("delete", "cocoonset", "demo", "-n", namespace, "--wait=false")


def stored(cluster: Cluster, namespace: str) -> dict[str, Any]:
    text = cluster.kubectl("get", "cocoonset", "demo", "-n", namespace, "-o", "json").stdout
    metadata: dict[str, Any] = json.loads(text)["metadata"]
    return metadata


@pytest.mark.parametrize("argv", [EMBEDDED, UNDER_KOPF], ids=["embedded", "kopf-run"])
def test_kopf_writes_nothing(
    cluster: Cluster, registry: Registry, namespace: str, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    mark = cluster.audit_mark()
    env = {"OCI_REGISTRY": registry.address, "POD_NAMESPACE": namespace}
    with OperatorProcess(tmp_path, cluster.kubeconfig, argv=argv, env=env) as operator:
        operator.wait_log("this replica leads")
        live_a_life(cluster, namespace)
        # What is left is Kopf's own finalizer name, put there by somebody else: it must stay.
        eventually(lambda: stored(cluster, namespace)["finalizers"] == [FOREIGN_FINALIZER])
        time.sleep(1.0)
        metadata = stored(cluster, namespace)
        assert metadata["finalizers"] == [FOREIGN_FINALIZER]
        cluster.kubectl(
            "patch", "cocoonset", "demo", "-n", namespace, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}'
        )
        assert operator.stop() == 0, operator.output()
        assert "Traceback" not in operator.output()
    events = by_kopf(cluster.audit_events(mark))
    assert events, "kopf was not seen at all"
    assert [event for event in events if event.is_write] == []
    assert {event.verb for event in events} <= {"get", "list", "watch"}
    touched = {event.object_ref.resource for event in events if event.verb in {"list", "watch"}}
    assert touched == {keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS}
    assert not any("kopf" in key for key in metadata.get("annotations", {}))
