"""What the chart renders, by kind; and the values that the tests begin with."""

from __future__ import annotations

from typing import Any

from cocoon_devkit import checkout

Obj = dict[str, Any]

VALUES = {"registry": "registry.example.com/cocoon"}
CRD_FILES = sorted(checkout.CRDS.glob("*.yaml"))
CHART_PREFIX = "chart"
"""The path in the registry under which the VMs of this folder's cluster have their repositories."""
PARTS = {"crds": {"install": False}, "admission": {"enabled": False}}
"""Values that leave out what has tests of its own."""


def of_kind(objects: list[Obj], kind: str) -> list[Obj]:
    return [each for each in objects if each["kind"] == kind]


def the(objects: list[Obj], kind: str) -> Obj:
    found = of_kind(objects, kind)
    assert len(found) == 1
    return found[0]


def pod_of(objects: list[Obj]) -> Obj:
    """The spec of the operator's pods."""
    spec: Obj = the(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def container_of(objects: list[Obj]) -> Obj:
    """The operator's container."""
    [container] = pod_of(objects)["containers"]
    return dict(container)


def variables_of(objects: list[Obj]) -> dict[str, Any]:
    """The variables of the operator's container, by name; each once."""
    entries = container_of(objects)["env"]
    variables = {each["name"]: each.get("value", each.get("valueFrom")) for each in entries}
    assert len(variables) == len(entries)
    return variables
