"""What the chart's values make of the policies, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from candidates import Obj

from cocoon_devkit.chart import NAME, Chart
from cocoon_devkit.errors import HelmError
from cocoon_devkit.helm import Helm
from cocoon_devkit.scratch import Scratch

WORKLOADS = {"workloads", "deployments-scale", "statefulsets-scale"}
ALL = {"pods", "hibernation-name", "hibernation-one", "vm-names", *WORKLOADS}
VALUES = {"registry": "registry.example.com/cocoon"}


@pytest.fixture(scope="module")
def chart(tools: Path) -> Iterator[Chart]:
    with Scratch("admission-chart") as scratch:
        yield Chart(Helm(tools / "helm", scratch.path))


def by_rule(objects: list[Obj], kind: str) -> dict[str, Obj]:
    """The objects of a kind by the rule in their name."""
    return {each["metadata"]["name"].removeprefix(f"{NAME}-"): each for each in objects if each["kind"] == kind}


@pytest.mark.parametrize(
    ("values", "rules"),
    [
        ({"admission": {"action": "Warn"}}, ALL),
        ({"admission": {"enabled": False}}, set()),
        ({"watchNamespace": "team-a"}, set()),
        ({"admission": {"workloads": {"enabled": False}, "action": "Audit"}}, ALL - WORKLOADS),
        ({"admission": {rule: {"enabled": False} for rule in ("pods", "hibernations", "vmNames")}}, WORKLOADS),
        ({"admission": {"workloads": {"scale": False}}}, ALL - WORKLOADS | {"workloads"}),
    ],
    ids=["all", "off", "one-namespace", "no-workloads", "workloads-only", "no-scale"],
)
def test_each_policy_has_its_switch_and_a_binding_with_the_action(chart: Chart, values: Obj, rules: set[str]) -> None:
    objects = chart.render({**VALUES, **values})
    bindings = by_rule(objects, "ValidatingAdmissionPolicyBinding")
    assert by_rule(objects, "ValidatingAdmissionPolicy").keys() == bindings.keys() == rules
    action = values.get("admission", {}).get("action", "Deny")
    for rule, binding in bindings.items():
        assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (f"{NAME}-{rule}", [action])


def test_names_cannot_break_out_of_an_expression(chart: Chart) -> None:
    odd = """a"b'c\\d<e>"""
    objects = chart.render({**VALUES, "admission": {"exemptUsers": [odd], "exemptGroups": [odd]}})
    pods = by_rule(objects, "ValidatingAdmissionPolicy")["pods"]
    conditions = {each["name"]: each["expression"] for each in pods["spec"]["matchConditions"]}
    quoted = '["a\\"b\'c\\\\d\\u003ce\\u003e"]'
    assert conditions["user-is-not-exempt"] == f"!(request.userInfo.username in {quoted})"
    assert conditions["group-is-not-exempt"].endswith(f"group in {quoted})")


def test_wrong_values_are_refused_with_their_names(chart: Chart) -> None:
    wrong = {"action": "Dney", "exemptUser": [], "exemptGroups": [""], "pods": {"creators": "x", "on": True}}
    with pytest.raises(HelmError) as refused:
        chart.render({**VALUES, "admission": wrong})
    for words in (
        "at '/admission/action': value must be one of",
        "additional properties 'exemptUser' not allowed",
        "at '/admission/exemptGroups/0': minLength",
        "at '/admission/pods/creators': got string, want array",
        "additional properties 'on' not allowed",
    ):
        assert words in str(refused.value)
