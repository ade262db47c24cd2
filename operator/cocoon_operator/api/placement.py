"""Where a pod belongs, read from the pod (S039, S040)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cocoon_operator.api import keys
from cocoon_operator.api.cocoonset import DEFAULT_POOL
from cocoon_operator.api.pod import Pod


def pool_of_pod(pod: Pod) -> str:
    """Return the node pool: the first that is set of node selector, label and annotation, else ``default`` (S039)."""
    for source in (pod.spec.node_selector, pod.labels, pod.annotations):
        if pool := source.get(keys.NODE_POOL):
            return pool
    return DEFAULT_POOL


def tolerates_provider(tolerations: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether a pod may run on a cocoon node: a toleration with the provider's key, whatever else it says (S040)."""
    return any(toleration.get("key") == keys.PROVIDER_TOLERATION for toleration in tolerations or ())
