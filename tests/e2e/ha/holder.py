"""A holder of the Lease that is none of ours, on a clock of its own: the Go operator on another machine, for one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cocoon_devkit.rawapi import Api, Obj
from cocoon_operator.api import keys
from tests.e2e.ha.replicas import Home

FOREIGN_SECONDS: Final = 2
FOREIGN: Final = "elsewhere_1"


@dataclass
class ForeignHolder:
    """Holds the Lease of a home for as long as it renews."""

    api: Api
    home: Home
    ahead: timedelta
    lease: Obj

    @classmethod
    def take(cls, api: Api, home: Home, ahead: timedelta) -> ForeignHolder:
        holder = cls(api, home, ahead, {})
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": keys.LEASE_NAME},
            "spec": {
                "holderIdentity": FOREIGN,
                "leaseDurationSeconds": FOREIGN_SECONDS,
                "acquireTime": holder._now(),
                "renewTime": holder._now(),
                "leaseTransitions": 7,
            },
        }
        holder.lease = api.call("POST", home.lease_path.rpartition("/")[0], body)
        return holder

    def renew(self) -> None:
        self.lease["spec"]["renewTime"] = self._now()
        self.lease = self.api.call("PUT", self.home.lease_path, self.lease)

    def _now(self) -> str:
        return (datetime.now(UTC) + self.ahead).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
