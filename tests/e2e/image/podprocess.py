"""A pod of the operator's Deployment as a process: what the kubelet and a container runtime would do with the image.

Its arguments, variables, mounts and probes are those that the API server has for the pod. Imitated, because there is neither a
container nor a node: the ports (two pods share this machine), the place of mounted files, and the read-only file system
(opening a file to write fails as it would there). What the kubelet would report is written into the pod's status.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cocoon_devkit.cluster import Cluster
from cocoon_devkit.httpprobe import answers
from cocoon_devkit.ports import LOOPBACK, free_ports
from cocoon_devkit.process import Command, ManagedProcess
from cocoon_devkit.scratch import RECORDS
from tests.e2e.image.imagebuild import Image

Obj = dict[str, Any]

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

_SITE = """
import os, sys
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def read_only(event, arguments):
    writes = event == "open" and arguments[2] & WRITES and isinstance(arguments[0], (str, bytes, os.PathLike))
    if (writes and arguments[0] != os.devnull) or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink"):
        raise OSError(30, f"Read-only file system ({event})", str(arguments[0]))

from cocoon_operator.clients.kubernetes import connection
connection.find_connection.__kwdefaults__["service_account"] = Path(os.environ.pop("MOUNTED_SERVICE_ACCOUNT"))
sys.addaudithook(read_only)
"""


class PodProcess:
    """``with`` starts it and waits until its probes say that it is ready."""

    def __init__(self, cluster: Cluster, image: Image, folder: Path, pod: Obj) -> None:
        self.tokens: list[str] = []
        self._cluster = cluster
        self._pod = pod
        self._folder = folder
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self._log = folder / f"{self.name}.log"
        [self._container] = pod["spec"]["containers"]
        ports = dict(zip(self._ports(), free_ports(len(self._ports())), strict=True))
        self._port_of = {port["name"]: ports[port["containerPort"]] for port in self._container["ports"]}
        args = [_readdressed(argument, ports) for argument in self._container["args"]]
        self._command = Command(self.name, image.argv(*args), self._log, env=self._env(image), cwd=self._empty())
        self._process: ManagedProcess | None = None

    @property
    def exit_code(self) -> int | None:
        assert self._process is not None
        return self._process.exit_code

    def output(self) -> str:
        """Everything it printed."""
        return self._log.read_text()

    def probe(self, name: str) -> int | None:
        """The status of a probe, ``livenessProbe`` or ``readinessProbe``, as the kubelet would ask for it."""
        get = self._container[name]["httpGet"]
        return answers(f"http://{LOOPBACK}:{self._port_of[get['port']]}{get['path']}")

    def __enter__(self) -> Self:
        self._process = ManagedProcess(self._command, self._folder / RECORDS)
        self._process.wait_ready(lambda: self.probe("readinessProbe") == 200, READY_SECONDS)
        self._report_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.stop(STOP_SECONDS)

    def _ports(self) -> list[int]:
        return [port["containerPort"] for port in self._container["ports"]]

    def _empty(self) -> Path:
        folder = self._folder / f"{self.name}.rootfs"
        folder.mkdir(parents=True)
        return folder

    def _env(self, image: Image) -> dict[str, str]:
        mounts = self._mounts()
        site = read_only_site(self._folder / "site")
        server = str(self._cluster.server).removeprefix("https://")
        host, _, port = server.rpartition(":")
        env = {**image.env, "HOME": "/", "PYTHONPATH": str(site), "HOSTNAME": self.name}
        env |= {"KUBERNETES_SERVICE_HOST": host.strip("[]"), "KUBERNETES_SERVICE_PORT": port}
        env["MOUNTED_SERVICE_ACCOUNT"] = str(mounts.pop(_SERVICE_ACCOUNT))
        for entry in self._container["env"]:
            value: str = entry["value"]
            for path, folder in mounts.items():
                value = value.replace(path, str(folder))
            env[entry["name"]] = value
        return env

    def _mounts(self) -> dict[str, Path]:
        """The folders of this machine that stand for the container's mounts, filled as the kubelet fills them."""
        volumes = {volume["name"]: volume for volume in self._pod["spec"]["volumes"]}
        mounts: dict[str, Path] = {}
        for mount in self._container["volumeMounts"]:
            folder = self._folder / f"{self.name}.mounts" / mount["name"]
            folder.mkdir(parents=True)
            for name, content in self._files(volumes[mount["name"]]).items():
                (folder / name).write_bytes(content)
            mounts[mount["mountPath"]] = folder
        return mounts

    def _files(self, volume: Obj) -> dict[str, bytes]:
        if "projected" in volume:
            return self._service_account()
        secret = volume["secret"]
        data = self._cluster.kubectl.get("secret", secret["secretName"], "--namespace", self.namespace)["data"]
        return {item["path"]: base64.b64decode(data[item["key"]]) for item in secret["items"]}

    def _service_account(self) -> dict[str, bytes]:
        kubectl = self._cluster.kubectl
        name = self._pod["spec"]["serviceAccountName"]
        bound = ("--bound-object-kind", "Pod", "--bound-object-name", self.name)
        token = kubectl("create", "token", name, "--namespace", self.namespace, *bound).stdout.strip()
        self.tokens.append(token)
        roots = kubectl.get("configmap", "kube-root-ca.crt", "--namespace", self.namespace)["data"]["ca.crt"]
        return {"token": token.encode(), "ca.crt": roots.encode(), "namespace": self.namespace.encode()}

    def _report_ready(self) -> None:
        ready = [
            {"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "Initialized", "PodScheduled")
        ]
        status = {"status": {"phase": "Running", "podIP": LOOPBACK, "conditions": ready}}
        where = ("pod", self.name, "--namespace", self.namespace, "--subresource", "status")
        self._cluster.kubectl("patch", *where, "--type=merge", "-p", json.dumps(status))


def read_only_site(folder: Path) -> Path:
    """A folder for ``PYTHONPATH`` that makes Python see a read-only file system, and mounts where they are."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITE)
    return folder


def _readdressed(argument: str, ports: dict[int, int]) -> str:
    """An argument that ends in ``:8080`` with the port that this process has instead."""
    head, colon, tail = argument.rpartition(":")
    return f"{head}{LOOPBACK}:{ports[int(tail)]}" if colon and tail.isdigit() and int(tail) in ports else argument
