"""Objects as a cluster has them that ran the Go operator: stored while the CRDs refused less than they do now."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from cocoon_devkit.cluster import Cluster
from cocoon_operator.api import crd, keys

Obj = dict[str, Any]

_RULES: Final = "x-kubernetes-validations"
_RULES_OF_GO: Final = {
    "hibernatePolicy=release requires agent.replicas=0 and no toolboxes",
    "snapshotCompatibilityClass is immutable once set",
    "spec.podRef is immutable",
}
_BOUNDS_OF_OURS: Final = {"image": "maxLength", "name": "maxLength", "toolboxes": "maxItems"}
_SECONDS: Final = 20.0


@contextlib.contextmanager
def older_api(cluster: Cluster) -> Iterator[None]:
    """Let the API server take what it took with the CRDs of the Go operator, for the length of a ``with`` block."""
    _apply(cluster, [_older(crd.definition(kind)) for kind in crd.KINDS])
    _wait(cluster, accepted=True)
    try:
        yield
    finally:
        _apply(cluster, [crd.definition(kind) for kind in crd.KINDS])
        _wait(cluster, accepted=False)


def _older(definition: Obj) -> Obj:
    older = deepcopy(definition)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema.pop(_RULES)
    _loosen(schema["properties"]["spec"])
    return older


def _loosen(node: Obj) -> None:
    if kept := [rule for rule in node.pop(_RULES, ()) if rule["message"] in _RULES_OF_GO]:
        node[_RULES] = kept
    for name, child in node.get("properties", {}).items():
        child.pop(_BOUNDS_OF_OURS.get(name), None)
        _loosen(child)
    if "items" in node:
        _loosen(node["items"])


def _apply(cluster: Cluster, definitions: list[Obj]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


def _wait(cluster: Cluster, *, accepted: bool) -> None:
    """Wait until the API server has taken the CRDs in: it goes on with the ones before for a moment."""
    deadline = time.monotonic() + _SECONDS
    for kind in crd.KINDS:
        probe = {"apiVersion": keys.API_VERSION, "kind": kind.kind, "metadata": {"name": "probe"}}
        while _takes(cluster, probe) is not accepted:
            assert time.monotonic() < deadline, f"the CRD of {kind.kind} has not been taken in"
            time.sleep(0.05)


def _takes(cluster: Cluster, obj: Obj) -> bool:
    options = ("--dry-run=server", "--validate=false", "--namespace", "default", "-f", "-")
    return cluster.kubectl("create", *options, stdin=json.dumps(obj), check=False).returncode == 0
