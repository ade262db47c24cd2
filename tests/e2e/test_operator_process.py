"""What tests do to a running operator really happens to it."""

from __future__ import annotations

from cocoon_devkit.chart import NAMESPACE
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_operator.api import keys


def holder(cluster: Cluster) -> str:
    return str(cluster.kubectl.get("lease", keys.LEASE_NAME, "--namespace", NAMESPACE)["spec"]["holderIdentity"])


def test_it_can_be_paused_stopped_and_started_again(cluster: Cluster, operator: OperatorProcess) -> None:
    first = holder(cluster)
    assert first

    operator.pause()
    assert operator.probe("/livez") is None
    operator.resume()
    operator.wait_ready()
    assert holder(cluster) == first

    assert operator.stop() == 0
    assert not operator.running
    assert operator.probe("/readyz") is None
    assert holder(cluster) == ""
    assert operator.stop() is None

    operator.start()
    operator.wait_leading()
    second = holder(cluster)
    assert second not in {"", first}

    operator.kill()
    assert not operator.running
    assert holder(cluster) == second
    operator.start()
    assert operator.probe("/readyz") == 200
