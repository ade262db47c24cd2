"""Several operators of one Lease, with the chart's rights and a ServiceAccount each: the audit log tells them apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cocoon_devkit.chart import NAME, NAMESPACE
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatorprocess import EMBEDDED, OperatorOptions, OperatorProcess
from cocoon_operator.api import keys
from tests.e2e.operator.seat import Seat, Surroundings

LEASE_SECONDS: Final = 6.0
RENEW_SECONDS: Final = 4.0
PERIODS: Final = {
    "LEADER_ELECT_LEASE_DURATION": f"{LEASE_SECONDS:.0f}s",
    "LEADER_ELECT_RENEW_DEADLINE": f"{RENEW_SECONDS:.0f}s",
    "LEADER_ELECT_RETRY_PERIOD": "400ms",
}
"""Shorter than the defaults of 15, 10 and 2 seconds; the ratios are about the same."""
TAKEN_OVER: Final = LEASE_SECONDS + 20.0
"""Seconds after which somebody must lead, however busy the machine is."""

Via = Callable[[Path], Path]
"""What a replica's kubeconfig becomes on the way to it, such as one that leads through a valve."""


def _direct(kubeconfig: Path) -> Path:
    return kubeconfig


@dataclass(frozen=True)
class Home:
    """The namespace of a Lease. Everybody who is made in it may do what the chart allows, and no more.

    ``since`` is a mark of the audit log from before the first of them.
    """

    cluster: Cluster
    namespace: str
    folder: Path
    registry: str
    since: int
    _bindings: list[str] = field(default_factory=list)

    @property
    def lease_path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{keys.LEASE_NAME}"

    def user(self, name: str) -> str:
        """The user name of a replica in the audit log."""
        return f"system:serviceaccount:{self.namespace}:{name}"

    def replica(
        self, name: str, *, via: Via = _direct, argv: tuple[str, ...] = EMBEDDED, settings: Mapping[str, str] = PERIODS
    ) -> OperatorProcess:
        """An operator that is not started yet."""
        self._grant(name)
        kubeconfig = via(self.cluster.service_account_kubeconfig(self.namespace, name))
        options = OperatorOptions(self.registry, argv=argv, settings={"POD_NAMESPACE": self.namespace, **settings})
        return OperatorProcess(kubeconfig, self.folder, options, name=name)

    def _grant(self, name: str) -> None:
        """Bind what the chart binds to its own account: ClusterRoles as they are, Roles as copies in this namespace."""
        self.cluster.kubectl("create", "serviceaccount", name, "-n", self.namespace)
        account = f"--serviceaccount={self.namespace}:{name}"
        for role in self._bound("clusterrolebinding"):
            binding = f"{self.namespace}-{name}-{role}"
            self.cluster.kubectl("create", "clusterrolebinding", binding, f"--clusterrole={role}", account)
            self._bindings.append(binding)
        for role in self._bound("rolebinding"):
            self._copy_role(role)
            self.cluster.kubectl(
                "create", "rolebinding", f"{name}-{role}", "-n", self.namespace, f"--role={role}", account
            )

    def _bound(self, kind: str) -> list[str]:
        """The names of the roles that the chart's account has by bindings of this kind."""
        found = json.loads(self.cluster.kubectl("get", kind, "-n", NAMESPACE, "-o", "json").stdout)["items"]
        account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
        return [each["roleRef"]["name"] for each in found if account in each.get("subjects", [])]

    def _copy_role(self, name: str) -> None:
        role = json.loads(self.cluster.kubectl("get", "role", name, "-n", NAMESPACE, "-o", "json").stdout)
        copy = {
            "apiVersion": role["apiVersion"],
            "kind": "Role",
            "metadata": {"name": name, "namespace": self.namespace},
            "rules": role["rules"],
        }
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(copy))

    def close(self) -> None:
        """Remove what is not in the namespace."""
        if self._bindings:
            self.cluster.kubectl("delete", "clusterrolebinding", *self._bindings)


class Team:
    """Two replicas, ``first`` and ``second``; whichever is away is started again by :meth:`complete`."""

    def __init__(self, home: Home, around: Surroundings, via: Mapping[str, Via]) -> None:
        self.home = home
        self._around = around
        self.members = {name: home.replica(name, via=via.get(name, _direct)) for name in ("first", "second")}

    @property
    def leader(self) -> OperatorProcess:
        """The one that leads, and runs."""
        (leader,) = [each for each in self.members.values() if each.running and each.leading]
        return leader

    def other(self, than: OperatorProcess) -> OperatorProcess:
        (other,) = [each for each in self.members.values() if each is not than]
        return other

    def complete(self) -> OperatorProcess:
        """Start who does not run, and wait until one leads and the other one is warm; returns the leader."""
        away = [each for each in self.members.values() if not each.running]
        for each in away:
            each.stop()
            each.start(wait=False)
        for each in self.members.values():
            each.wait_ready()
        waiting = Seat(self._around, self.home.namespace)
        waiting.until(
            lambda: any(each.running and each.leading for each in self.members.values()), "somebody leads", TAKEN_OVER
        )
        return self.leader

    def stop(self) -> None:
        """Stop both; a paused one is continued for it."""
        for each in self.members.values():
            each.stop()
