"""The Prometheus Operator's kinds (monitoring.coreos.com/v1), as far as the chart and its alerts use them.

Not the real definitions, which have many more fields: these name, as its API reference does, what the chart sets, and
nothing else. An API server that is told of them refuses every field that is misspelt or misplaced.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_WORDS: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_DURATION: Final[Schema] = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
_ACTIONS: Final = ["replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep"]


def definitions() -> list[Schema]:
    """Return the definitions of ServiceMonitor, PodMonitor and PrometheusRule."""
    return [
        _definition("ServiceMonitor", _monitor("endpoints")),
        _definition("PodMonitor", _monitor("podMetricsEndpoints")),
        _definition("PrometheusRule", _object(groups=_list(_group()))),
    ]


def _definition(kind: str, spec: Schema) -> Schema:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": _object("spec", spec=spec)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _monitor(endpoints: str) -> Schema:
    return _object(
        "selector",
        endpoints,
        jobLabel=_TEXT,
        namespaceSelector=_object(any={"type": "boolean"}, matchNames=_TEXTS),
        selector=_object(matchLabels=_WORDS),
        **{endpoints: _list(_endpoint())},
    )


def _endpoint() -> Schema:
    relabeling = _object(
        sourceLabels=_TEXTS,
        separator=_TEXT,
        targetLabel=_TEXT,
        regex=_TEXT,
        modulus={"type": "integer", "format": "int64"},
        replacement=_TEXT,
        action={"type": "string", "enum": _ACTIONS},
    )
    return _object(
        port=_TEXT,
        path=_TEXT,
        honorLabels={"type": "boolean"},
        interval=_DURATION,
        scrapeTimeout=_DURATION,
        relabelings=_list(relabeling),
        metricRelabelings=_list(relabeling),
    )


def _group() -> Schema:
    rule = _object(
        "expr",
        alert=_TEXT,
        record=_TEXT,
        expr={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        **{"for": _DURATION},
        keep_firing_for=_DURATION,
        labels=_WORDS,
        annotations=_WORDS,
    )
    return _object("name", name={"type": "string", "minLength": 1}, interval=_DURATION, rules=_list(rule))


def _object(*required: str, **properties: Schema) -> Schema:
    needed: Schema = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}
