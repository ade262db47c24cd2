"""Which metrics and labels a PromQL expression uses, and whether the operator has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

from cocoon_operator.metricfamilies import FAMILIES

TARGET = frozenset({"instance", "job", "namespace", "pod", "exported_namespace"})
"""What a scrape adds. ``exported_namespace`` is what it makes of a set's where it has a namespace of its own."""
_SUFFIXES = ("_bucket", "_count", "_sum")
_GRAFANA = {"$__rate_interval": "5m", "$__interval": "1m"}


@dataclass(frozen=True)
class Selector:
    """One selector: its metric, and its matchers by label."""

    metric: str
    matchers: dict[str, str]


def parse(expression: str) -> promql_parser.Expr:
    for variable, value in _GRAFANA.items():
        expression = expression.replace(variable, value)
    return promql_parser.parse(expression)


def selectors(expression: str) -> list[Selector]:
    return list(_selectors(parse(expression)))


def problems(expression: str) -> list[str]:
    """What of an expression does not exist."""
    tree = parse(expression)
    found = [f"there is no metric {each.metric}" for each in _selectors(tree) if _labels(each.metric) is None]
    for each in _selectors(tree):
        known = (_labels(each.metric) or frozenset()) | TARGET
        found += [f"{each.metric} has no label {label}" for label in each.matchers if label not in known]
    for node in _nodes(tree):
        for label in _grouped(node):
            below = frozenset().union(*(_labels(each.metric) or frozenset() for each in _selectors(node)))
            if label not in below | TARGET:
                found.append(f"nothing has the label {label} that is grouped by")
    return found


def _labels(metric: str) -> frozenset[str] | None:
    """The labels of a metric's series; None when there is no such metric."""
    family = FAMILIES.get(metric)
    if family is not None and family.kind != "histogram":
        return frozenset(family.labels)
    for suffix in _SUFFIXES:
        family = FAMILIES.get(metric.removesuffix(suffix))
        if metric.endswith(suffix) and family is not None and family.kind == "histogram":
            return frozenset(family.labels) | ({"le"} if suffix == "_bucket" else set())
    return frozenset() if metric in _of_the_library() else None


@functools.cache
def _of_the_library() -> set[str]:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return {sample.name for family in registry.collect() for sample in family.samples}


def _selectors(tree: promql_parser.Expr) -> Iterator[Selector]:
    for node in _nodes(tree):
        if isinstance(node, promql_parser.VectorSelector):
            yield Selector(node.name or "", {matcher.name: matcher.value for matcher in node.matchers.matchers})


def _nodes(tree: promql_parser.Expr) -> list[promql_parser.Expr]:
    found: list[promql_parser.Expr] = []
    promql_parser.walk(tree, found.append)
    return found


def _grouped(node: promql_parser.Expr) -> list[str]:
    if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
        return list(node.modifier.labels)
    if isinstance(node, promql_parser.BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
        return list(node.modifier.matching.labels)
    return []


def words(value: str) -> list[str]:
    """The alternatives of a matcher's value."""
    return [word for word in value.split("|") if re.fullmatch(r"\w+", word)]
