"""The local control plane and the registry do what the real ones do, and go without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cocoon_devkit import checkout
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.controlplane import API_SERVER, COMPONENTS, ControlPlane, ControlPlaneOptions
from cocoon_devkit.errors import KubectlError, NotAvailableError
from cocoon_devkit.gomodule import read_module
from cocoon_devkit.httpprobe import answers
from cocoon_devkit.ports import is_listening
from cocoon_devkit.providers import provided_cluster
from cocoon_devkit.registry import Login, Registry, RegistryOptions
from cocoon_devkit.scratch import Scratch
from cocoon_devkit.tools import cache_folder

MANIFEST_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "manifests": []}).encode()


def eventually(check: Callable[[], Any], seconds: float = 30) -> Any:
    """The first truthy answer of ``check``; the last one, or its error, is the failure when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} seconds"
        time.sleep(0.05)


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "main", "image": "example.com/none:1"}]},
    }


@pytest.fixture
def ready_node(cluster: Cluster) -> Iterator[str]:
    """A node that says it is ready; nobody runs pods on it."""
    name = f"node-{uuid.uuid4().hex[:8]}"
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": _now()}
    capacity = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    status = {"conditions": [ready], "capacity": capacity, "allocatable": capacity}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    yield name
    cluster.kubectl("delete", "node", name)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_what_is_built_here_tells_the_version_of_its_pin(cluster: Cluster, tools: Path) -> None:
    versions = json.loads(cluster.kubectl("version", "-o", "json").stdout)
    helm = subprocess.run([tools / "helm", "version", "--short"], capture_output=True, text=True, check=True).stdout
    told = {
        "kubectl": versions["clientVersion"]["gitVersion"],
        "kube-apiserver": versions["serverVersion"]["gitVersion"],
        "helm": helm.strip().partition("+")[0],
    }
    kubernetes = read_module("kubernetes", checkout.TOOL_MODULES).versions["k8s.io/kubernetes"]
    wanted = {
        "kubectl": kubernetes,
        "kube-apiserver": kubernetes,
        "helm": read_module("helm", checkout.TOOL_MODULES / "helm").versions["helm.sh/helm/v4"],
    }
    users = [name for name in told if not (tools / name).resolve().is_relative_to(cache_folder())]
    assert {**told, **dict.fromkeys(users)} == {**wanted, **dict.fromkeys(users)}


def test_a_cluster_can_be_given_by_its_kubeconfig(cluster: Cluster, tools: Path) -> None:
    with provided_cluster(tools, checkout.CRDS, cluster.kubeconfig) as given:
        assert given.server == cluster.server
        assert given.kubectl.get("crd", "cocoonsets.cocoonset.cocoonstack.io")["kind"] == "CustomResourceDefinition"
        with pytest.raises(NotAvailableError, match="not ours; use the local control plane"):
            given.pids  # noqa: B018
        with pytest.raises(NotAvailableError, match="has no audit log"):
            given.audit_mark()
    assert cluster.kubectl.get("namespace", "default")["status"]["phase"] == "Active"


def test_scheduler_and_node_lifecycle_act(cluster: Cluster, namespace: str, ready_node: str) -> None:
    # The API server taints a new node; only the node lifecycle controller takes that away.
    eventually(lambda: "taints" not in cluster.kubectl.get("node", ready_node)["spec"])
    cluster.kubectl.apply(pod("seat", namespace=namespace))
    placed = eventually(lambda: cluster.kubectl.get("pod", "seat", "-n", namespace)["spec"].get("nodeName"))
    assert placed == ready_node
    cluster.kubectl("delete", "pod", "seat", "-n", namespace, "--grace-period=0", "--force")


def test_garbage_collector_follows_owner_references_to_a_cocoonset(cluster: Cluster, namespace: str) -> None:
    owner = {
        "apiVersion": "cocoonset.cocoonstack.io/v1",
        "kind": "CocoonHibernation",
        "metadata": {"name": "owner", "namespace": namespace},
        "spec": {"podRef": {"name": "nobody"}, "desire": "Hibernate"},
    }
    cluster.kubectl.apply(owner)
    uid = cluster.kubectl.get("cocoonhibernation", "owner", "-n", namespace)["metadata"]["uid"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": "owner", "uid": uid}
    owned = {"name": "owned", "namespace": namespace, "ownerReferences": [reference]}
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned})
    cluster.kubectl("delete", "cocoonhibernation", "owner", "-n", namespace)
    eventually(lambda: cluster.kubectl("get", "configmap", "owned", "-n", namespace, check=False).returncode == 1)


def test_a_service_account_has_only_its_rights(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "serviceaccount", "worker", "-n", namespace)
    worker = cluster.kubectl.as_user(cluster.service_account_kubeconfig(namespace, "worker"))
    with pytest.raises(KubectlError, match="pods is forbidden"):
        worker("get", "pods")
    cluster.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", "-n", namespace)
    binding = ("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:worker")
    cluster.kubectl(*binding, "-n", namespace)
    eventually(lambda: worker("get", "pods", check=False).returncode == 0)
    with pytest.raises(KubectlError, match="forbidden"):
        worker("delete", "pod", "seat")


def test_the_audit_log_counts_writes_and_keeps_the_bodies_of_pods(cluster: Cluster, namespace: str) -> None:
    mark = cluster.audit_mark()
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": namespace}}
    cluster.kubectl.apply(pod("seat", namespace=namespace), settings)
    cluster.kubectl("delete", "pod", "seat", "-n", namespace, "--now")
    events = [event for event in cluster.audit_events(mark) if event.object_ref.namespace == namespace]
    own = [event for event in events if event.user.username == "admin" and event.is_write]
    told = [(event.verb, event.object_ref.resource, event.object_ref.name, event.response_status.code) for event in own]
    assert told == [
        ("create", "pods", "seat", 201),
        ("create", "configmaps", "settings", 201),
        ("delete", "pods", "seat", 200),
    ]
    assert own[0].request_object["spec"]["containers"][0]["name"] == "main"
    assert own[1].request_object is None
    assert own[2].request_object["gracePeriodSeconds"] == 1


def test_a_component_that_hangs_or_crashes_comes_back_and_nothing_stays(tools: Path) -> None:
    with Scratch("own-cluster") as scratch:
        options = ControlPlaneOptions(crds=checkout.CRDS, node_monitor_grace=8)
        with ControlPlane(tools, scratch.path, options) as own:
            pids, port = dict(own.pids), int(own.server.rpartition(":")[2])
            assert set(pids) == set(COMPONENTS)
            own.kubectl("create", "namespace", "kept")

            own.component(API_SERVER).pause()
            assert answers(f"{own.server}/readyz", ca=own.authority) is None
            own.component(API_SERVER).resume()
            assert eventually(lambda: answers(f"{own.server}/readyz", ca=own.authority)) == 200

            own.kill_component(API_SERVER)
            assert not is_listening(port)
            own.start_component(API_SERVER)
            assert own.kubectl.get("namespace", "kept")["status"]["phase"] == "Active"
            pids = dict(own.pids)
        assert [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()] == []
        assert not is_listening(port)
    assert not scratch.path.exists()


def test_a_killed_starter_takes_its_processes_along(tools: Path, tmp_path: Path) -> None:
    script = (
        "import sys, time, pathlib\n"
        "from cocoon_devkit.registry import Registry\n"
        "from cocoon_devkit.scratch import Scratch\n"
        "scratch = Scratch('killed', pathlib.Path(sys.argv[2]))\n"
        "registry = Registry(pathlib.Path(sys.argv[1]), scratch.path)\n"
        "registry.start()\n"
        "print(registry.process.pid, registry.address.rpartition(':')[2], scratch.path, flush=True)\n"
        "time.sleep(60)\n"
    )
    path = os.pathsep.join([str(checkout.ROOT / "operator"), os.environ.get("PYTHONPATH", "")])
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tools), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert starter.stdout is not None
    pid, port, left = starter.stdout.readline().split()
    assert is_listening(int(port))
    starter.send_signal(signal.SIGKILL)
    starter.wait(10)
    starter.stdout.close()
    with Scratch("next", tmp_path):
        eventually(lambda: not is_listening(int(port)))
        assert not Path(left).exists()
    assert _is_gone(int(pid))


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def call(registry: Registry, method: str, path: str, **headers: str) -> int:
    request = urllib.request.Request(f"{registry.url}{path}", method=method, headers=headers)
    if method == "PUT":
        request.data = MANIFEST
        request.add_header("Content-Type", MANIFEST_TYPE)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_the_registry_keeps_port_and_data_over_a_restart_and_deletes_tags(registry: Registry) -> None:
    tag = f"/v2/{uuid.uuid4().hex}/manifests/hibernate"
    assert call(registry, "PUT", tag) == 201
    address = registry.address
    registry.stop()
    with pytest.raises(urllib.error.URLError, match="refused"):
        call(registry, "HEAD", tag)
    registry.start()
    assert registry.address == address
    mark = registry.mark()
    assert call(registry, "HEAD", tag, Accept=MANIFEST_TYPE) == 200
    assert call(registry, "DELETE", tag) == 202
    assert call(registry, "HEAD", tag, Accept=MANIFEST_TYPE) == 404
    told = eventually(lambda: registry.requests(mark) if len(registry.requests(mark)) == 3 else None)
    assert [(line.method, line.path, line.status) for line in told] == [
        ("HEAD", tag, 200),
        ("DELETE", tag, 202),
        ("HEAD", tag, 404),
    ]


def test_a_registry_can_ask_for_a_login_and_refuse_deletes(tools: Path, tmp_path: Path) -> None:
    login = Login("agent", "let me in")
    with Registry(tools, tmp_path, RegistryOptions(login=login, deletes=False)) as registry:
        tag = "/v2/vm/manifests/hibernate"
        assert call(registry, "HEAD", tag) == 401
        assert call(registry, "HEAD", tag, Authorization=Login("agent", "wrong").header) == 401
        assert call(registry, "PUT", tag, Authorization=login.header) == 201
        assert call(registry, "DELETE", tag, Authorization=login.header) == 405
        assert registry.docker_config()["auths"] == {registry.address: {"auth": login.header.removeprefix("Basic ")}}


def test_a_registry_can_speak_tls(tools: Path, tmp_path: Path) -> None:
    with Registry(tools, tmp_path, RegistryOptions(tls=True)) as registry:
        assert registry.authority is not None
        assert answers(f"{registry.url}/v2/", ca=registry.authority) == 200
        assert answers(f"{registry.url}/v2/") is None
