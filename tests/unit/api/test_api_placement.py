"""Where a pod belongs."""

from __future__ import annotations

from typing import Any

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.placement import pool_of_pod, tolerates_provider
from cocoon_operator.api.pod import Metadata, Pod, PodSpec


@pytest.mark.scenario("S039")
@pytest.mark.parametrize(
    ("selector", "label", "annotation", "pool"),
    [
        ("a", "b", "c", "a"),
        ("", "b", "c", "b"),
        ("", "", "c", "c"),
        ("", "", "", "default"),
        (None, "b", "c", "b"),
        (None, None, "c", "c"),
        (None, None, None, "default"),
    ],
)
def test_the_pool_of_a_pod(selector: str | None, label: str | None, annotation: str | None, pool: str) -> None:
    def under(value: str | None) -> dict[str, str]:
        return {} if value is None else {keys.NODE_POOL: value}

    pod = Pod(
        metadata=Metadata(labels=under(label), annotations=under(annotation)),
        spec=PodSpec(node_selector=under(selector)),
    )
    assert pool_of_pod(pod) == pool


@pytest.mark.scenario("S040")
@pytest.mark.parametrize(
    ("tolerations", "tolerates"),
    [
        (None, False),
        ([], False),
        ([{}], False),
        ([{"operator": "Exists"}], False),
        ([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}], False),
        ([{"key": "virtual-kubelet.io/provider"}], True),
        ([{"key": "other"}, {"key": "virtual-kubelet.io/provider", "value": "x", "effect": "NoSchedule"}], True),
    ],
)
def test_only_the_key_of_a_toleration_counts(tolerations: list[dict[str, Any]] | None, tolerates: bool) -> None:
    assert tolerates_provider(tolerations) is tolerates
