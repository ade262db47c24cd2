"""A local control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of this machine.

There is no kubelet: nodes are the fake node agent's. Rights are as in a real cluster (RBAC, a user of its own for each
component), data is not meant to last (no fsync).
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from typing_extensions import override

from cocoon_devkit.audit import POLICY, AuditLog
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.errors import ProcessFailedError
from cocoon_devkit.httpprobe import answers
from cocoon_devkit.kubeconfig import cluster_entry, write_kubeconfig
from cocoon_devkit.pki import write_signing_key
from cocoon_devkit.ports import LOOPBACK, free_ports
from cocoon_devkit.process import Command, Lifetime, ManagedProcess, clean_environment
from cocoon_devkit.scratch import RECORDS

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
COMPONENTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)

AUDIT_FILE = "audit.jsonl"
READY_SECONDS = 120.0
STOP_SECONDS = 5.0
_PORT_ATTEMPTS = 3
_PORT_TAKEN = "address already in use"

# Those that act on what the operator, its chart and its tests make; all others would only cost start-up time.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "taint-eviction-controller",
)


@dataclass(frozen=True)
class ControlPlaneOptions:
    """``crds`` are applied before the controllers start: the garbage collector knows them from its first second then
    (a kind that comes later is noticed half a minute late). ``node_monitor_grace`` is how many seconds of silence make
    a node NotReady (Kubernetes' own default is 50); ``flags`` adds arguments by component.
    """

    crds: Path | None = None
    node_monitor_grace: int | None = None
    controllers: tuple[str, ...] = CONTROLLERS
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Component:
    argv: tuple[str, ...]
    is_ready: Callable[[], bool]


class ControlPlane(Cluster):
    """``start()`` and ``stop()``, or a ``with`` block. All files lie in ``folder``, which the caller removes."""

    def __init__(
        self,
        tools: Path,
        folder: Path,
        options: ControlPlaneOptions | None = None,
        lifetime: Lifetime = Lifetime.BOUND,
    ) -> None:
        super().__init__(tools, folder / "admin.kubeconfig", folder)
        self._options = options or ControlPlaneOptions()
        self._lifetime = lifetime
        self._tokens = {name: secrets.token_urlsafe(24) for name in ("admin", CONTROLLER_MANAGER, SCHEDULER)}
        self._processes: dict[str, ManagedProcess] = {}
        self._ports: dict[str, int] = {}

    @property
    @override
    def server(self) -> str:
        return f"https://{LOOPBACK}:{self._ports[API_SERVER]}"

    @property
    def authority(self) -> Path:
        """The certificate that clients have to trust."""
        return self._pki / "apiserver.crt"

    @property
    @override
    def pids(self) -> Mapping[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    @property
    def audit_file(self) -> Path:
        return self.folder / AUDIT_FILE

    @property
    @override
    def audit(self) -> AuditLog:
        return AuditLog.of_file(self.audit_file)

    def start(self) -> None:
        """Start everything in the order of dependence; each component waits for the health of the one before.

        Raises ProcessFailedError, with the end of the log, when one does not get ready; nothing runs then.
        """
        self._write_files()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._ports = dict(zip((*COMPONENTS, "etcd-peer"), free_ports(len(COMPONENTS) + 1), strict=True))
            try:
                self._start_all()
            except BaseException as error:
                self.stop()
                # Between the look for free ports and their use somebody else may take one.
                if attempt < _PORT_ATTEMPTS and isinstance(error, ProcessFailedError) and _PORT_TAKEN in str(error):
                    continue
                raise
            return

    def stop(self) -> None:
        """Stop everything, dependents first; what does not end within seconds is killed."""
        for name in reversed(list(self._processes)):
            self.stop_component(name)

    def component(self, name: str) -> ManagedProcess:
        """The running process, to be paused, resumed or looked at."""
        return self._processes[name]

    def stop_component(self, name: str) -> None:
        self._processes.pop(name).stop(STOP_SECONDS)

    def kill_component(self, name: str) -> None:
        """SIGKILL, as a crash."""
        self._processes.pop(name).kill()

    def start_component(self, name: str, *, wait: bool = True) -> None:
        """Start one that does not run, on its port and its data."""
        command = Command(
            name=name,
            argv=(str(self.tools / name), *self._component(name).argv, *self._options.flags.get(name, ())),
            log=self.folder / "logs" / f"{name}.log",
            env=clean_environment(self.folder),
            cwd=self.folder,
        )
        self._processes[name] = ManagedProcess(command, self.folder / RECORDS, self._lifetime)
        if wait:
            self.wait_component(name)

    def wait_component(self, name: str) -> None:
        """Wait until it is healthy. Raises ProcessFailedError when it is not within two minutes."""
        self._processes[name].wait_ready(self._component(name).is_ready, READY_SECONDS)

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _pki(self) -> Path:
        return self.folder / "pki"

    def _start_all(self) -> None:
        self.start_component(ETCD)
        self.start_component(API_SERVER)
        self._write_kubeconfigs()
        if self._options.crds is not None:
            self.apply_crds(self._options.crds)
        self.start_component(CONTROLLER_MANAGER, wait=False)
        self.start_component(SCHEDULER, wait=False)
        self.wait_component(CONTROLLER_MANAGER)
        self.wait_component(SCHEDULER)

    def _write_files(self) -> None:
        self._pki.mkdir(parents=True, exist_ok=True)
        write_signing_key(self._pki / "service-accounts.key")
        (self.folder / "audit-policy.yaml").write_text(POLICY)
        users = [f'{self._tokens["admin"]},admin,admin,"system:masters"']
        users += [f"{self._tokens[name]},system:{name},{name}" for name in (CONTROLLER_MANAGER, SCHEDULER)]
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("\n".join(users) + "\n")

    def _write_kubeconfigs(self) -> None:
        cluster = cluster_entry(self.server, self.authority)
        write_kubeconfig(self.kubeconfig, cluster=cluster, user={"token": self._tokens["admin"]})
        for name in (CONTROLLER_MANAGER, SCHEDULER):
            write_kubeconfig(self._component_kubeconfig(name), cluster=cluster, user={"token": self._tokens[name]})

    def _component_kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def _component(self, name: str) -> _Component:
        make: dict[str, Callable[[], _Component]] = {
            ETCD: self._etcd,
            API_SERVER: self._api_server,
            CONTROLLER_MANAGER: self._controller_manager,
            SCHEDULER: functools.partial(self._api_client, SCHEDULER),
        }
        return make[name]()

    def _etcd(self) -> _Component:
        client, peer = (f"http://{LOOPBACK}:{self._ports[port]}" for port in (ETCD, "etcd-peer"))
        argv = (
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        return _Component(argv, lambda: answers(f"{client}/health") == 200)

    def _api_server(self) -> _Component:
        key = self._pki / "service-accounts.key"
        argv = (
            f"--etcd-servers=http://{LOOPBACK}:{self._ports[ETCD]}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self._ports[API_SERVER]}",
            f"--cert-dir={self._pki}",
            # Nobody reaches the API server through its Service here, and a loopback address is no valid endpoint.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self.folder / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_file}",
            # A rotated log would lose what a test counts.
            "--audit-log-maxsize=0",
            "--audit-log-mode=blocking",
            "--profiling=false",
        )
        headers = {"Authorization": f"Bearer {self._tokens['admin']}"}
        ready = f"{self.server}/readyz"
        return _Component(argv, lambda: answers(ready, ca=self.authority, headers=headers) == 200)

    def _controller_manager(self) -> _Component:
        grace = self._options.node_monitor_grace
        monitor = (
            (f"--node-monitor-grace-period={grace}s", f"--node-monitor-period={max(1, grace // 4)}s") if grace else ()
        )
        return self._api_client(
            CONTROLLER_MANAGER,
            f"--controllers={','.join(self._options.controllers)}",
            f"--service-account-private-key-file={self._pki / 'service-accounts.key'}",
            f"--root-ca-file={self.authority}",
            "--use-service-account-credentials=true",
            *monitor,
        )

    def _api_client(self, name: str, *more: str) -> _Component:
        """A component that works through the API server and serves nothing but its health."""
        kubeconfig, certificates = self._component_kubeconfig(name), self.folder / "pki" / name
        argv = (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._ports[name]}",
            f"--cert-dir={certificates}",
            "--leader-elect=false",
            "--profiling=false",
            *more,
        )
        health, authority = f"https://{LOOPBACK}:{self._ports[name]}/healthz", certificates / f"{name}.crt"
        return _Component(argv, lambda: answers(health, ca=authority) == 200)
