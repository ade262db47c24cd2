"""What the chart refuses, before anything is installed: each wrong value, by its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rendered import VALUES, Obj

from cocoon_devkit.chart import Chart
from cocoon_devkit.chartschema import SCHEMA
from cocoon_devkit.errors import HelmError

# Whoever makes this chart a part of another one may set anything there: it is for all parts.
OPEN = {"/properties/global"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "registry must be set: where the VMs' snapshots are"),
        ({"registry": "https://registry.example.com"}, "registry has no scheme: write host[:port][/path] instead of"),
        ({**VALUES, "regstry": "x"}, "additional properties 'regstry' not allowed"),
        ({**VALUES, "crds": {"keep": False}}, "at '/crds': additional properties 'keep' not allowed"),
        ({**VALUES, "image": {"name": "x"}}, "at '/image': additional properties 'name' not allowed"),
        ({**VALUES, "resources": {"limit": {}}}, "at '/resources': additional properties 'limit' not allowed"),
        ({**VALUES, "tolerations": [{"keys": "x"}]}, "at '/tolerations/0': additional properties 'keys' not allowed"),
        (
            {**VALUES, "extraVolumes": [{"name": "x", "secret": {"name": "y"}}]},
            "at '/extraVolumes/0/secret': additional properties 'name' not allowed",
        ),
        (
            {**VALUES, "extraEnv": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "y"}}}]},
            "at '/extraEnv/0/valueFrom/secretKeyRef': missing property 'key'",
        ),
        (
            {**VALUES, "affinity": {"podAntiAffinity": {"preferred": []}}},
            "at '/affinity/podAntiAffinity': additional properties 'preferred' not allowed",
        ),
        (
            {**VALUES, "networkPolicy": {"metricsFrom": [{"nsSelector": {}}]}},
            "at '/networkPolicy/metricsFrom/0': additional properties 'nsSelector' not allowed",
        ),
        (
            {**VALUES, "serviceMonitor": {"relabelings": [{"source_labels": []}]}},
            "at '/serviceMonitor/relabelings/0': additional properties 'source_labels' not allowed",
        ),
        ({**VALUES, "replicaCount": "2"}, "at '/replicaCount': got string, want integer"),
        ({**VALUES, "replicaCount": -1}, "at '/replicaCount': minimum: got -1, want 0"),
        ({**VALUES, "serviceMonitor": {"enabled": "yes"}}, "at '/serviceMonitor/enabled': got string, want boolean"),
        ({**VALUES, "nodeSelector": {"gpu": True}}, "at '/nodeSelector/gpu': got boolean, want string"),
        ({**VALUES, "logLevel": "loud"}, "at '/logLevel': value must be one of"),
        ({**VALUES, "image": {"digest": "abc"}}, "at '/image/digest': 'abc' does not match pattern"),
        ({**VALUES, "tagCollectionTimeout": 10}, "at '/tagCollectionTimeout': got number, want string"),
        ({**VALUES, "resyncInterval": "5 minutes"}, "at '/resyncInterval': '5 minutes' does not match pattern"),
        ({**VALUES, "watchNamespace": "a,b"}, "at '/watchNamespace': 'a,b' does not match pattern"),
        ({**VALUES, "podDisruptionBudget": {"maxUnavailable": "one"}}, "at '/podDisruptionBudget/maxUnavailable'"),
        ({**VALUES, "commonLabels": {"helm.sh/chart": "x"}}, "commonLabels: helm.sh/chart is set by the chart"),
        ({**VALUES, "podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels: app.kubernetes.io/name is set by"),
        (
            {**VALUES, "extraEnv": [{"name": "LOG_FORMAT", "value": "json"}]},
            "extraEnv: LOG_FORMAT is set by the chart, use the value that it has for it",
        ),
        ({**VALUES, "extraEnv": [{"name": "WATCH_NAMESPACE", "value": "x"}]}, "extraEnv: WATCH_NAMESPACE is set"),
        ({**VALUES, "extraEnv": [{"name": "LEADER_ELECT", "value": "0"}]}, "extraEnv: LEADER_ELECT is set"),
        (
            {**VALUES, "serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
            "serviceMonitor.enabled and podMonitor.enabled: everything would be counted twice",
        ),
        (
            {**VALUES, "serviceMonitor": {"enabled": True}, "service": {"enabled": False}},
            "serviceMonitor.enabled: it finds the pods through the Service",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(offline: Chart, values: Obj, words: str) -> None:
    with pytest.raises(HelmError) as refused:
        offline.render(values)
    assert words in str(refused.value)


def test_what_is_not_known_is_refused_everywhere() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    found = set(open_objects(schema, "", kubernetes=False))
    assert found == OPEN


def open_objects(node: Any, path: str, *, kubernetes: bool) -> Iterator[str]:
    """Where an object may have keys that nobody described. Kubernetes has a few types of its own without any key."""
    if isinstance(node, list):
        for index, each in enumerate(node):
            yield from open_objects(each, f"{path}/{index}", kubernetes=kubernetes)
    elif isinstance(node, dict):
        closed = node.get("additionalProperties") is False or isinstance(node.get("additionalProperties"), dict)
        if node.get("type") == "object" and not closed and not kubernetes:
            yield path
        for key, each in node.items():
            yield from open_objects(each, f"{path}/{key}", kubernetes=kubernetes or key.endswith(".FieldsV1"))
