"""Alerts and dashboards ask for what exists: metrics, labels, phases, conditions and their reasons."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cocoon_devkit import checkout
from cocoon_operator.api.enums import HibernationPhase, SetPhase
from cocoon_operator.metricfamilies import BUILT_IN, CONTRACT, FAMILIES, FLEET, PREFIX, PROCESS, TRANSITIONS
from tests.unit.observability.promql import problems, selectors, words

FILES = checkout.ROOT / "charts" / "cocoon-operator" / "files"
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
RULES = [
    rule
    for file in sorted((FILES / "alerts").glob("*.yaml"))
    for group in yaml.safe_load(file.read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
TESTS = yaml.safe_load((checkout.ROOT / "tests" / "e2e" / "alerts.test.yaml").read_text("utf-8"))["tests"]
RECONCILE = checkout.ROOT / "operator" / "cocoon_operator" / "reconcile"


def dashboard(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return loaded


def panels(file: Path) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(file)["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    shown = [target["expr"] for file in DASHBOARDS for panel in panels(file) for target in panel["targets"]]
    return [*shown, *(rule["expr"] for rule in RULES)]


def words_of_decisions() -> str:
    return "\n".join(file.read_text("utf-8") for file in RECONCILE.rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert len(RULES) >= 20
    assert len(expressions()) >= 60


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    assert problems(expression) == []


def test_the_check_finds_what_does_not_exist() -> None:
    assert problems("rate(cocoon_operator_nothing_total[5m])") == ["there is no metric cocoon_operator_nothing_total"]
    assert problems("cocoon_operator_events_total{kind='x'}") == ["cocoon_operator_events_total has no label kind"]
    assert problems("sum by (verb) (cocoon_operator_events_total)") == ["nothing has the label verb that is grouped by"]
    assert problems("cocoon_operator_event_loop_lag_seconds") == [
        "there is no metric cocoon_operator_event_loop_lag_seconds"
    ]
    assert problems("cocoon_operator_ready + on (le) cocoon_operator_pods") == [
        "nothing has the label le that is grouped by"
    ]


def test_phases_conditions_and_reasons_that_are_asked_for_can_be_there() -> None:
    phases = {f"{PREFIX}cocoonsets": set(SetPhase), f"{PREFIX}cocoonhibernations": set(HibernationPhase)}
    decisions = words_of_decisions()
    asked = list(itertools.chain.from_iterable(selectors(expression) for expression in expressions()))
    for selector in asked:
        if selector.metric in phases and "phase" in selector.matchers:
            assert set(words(selector.matchers["phase"])) <= phases[selector.metric]
        if selector.metric == f"{PREFIX}cocoonset_conditions":
            for label in ("type", "reason"):
                for word in words(selector.matchers.get(label, "")):
                    assert f'"{word}"' in decisions
    assert any(selector.metric == f"{PREFIX}cocoonset_conditions" for selector in asked)


def test_every_family_of_ours_is_on_the_dashboard() -> None:
    shown = {
        selector.metric
        for file in DASHBOARDS
        for panel in panels(file)
        for target in panel["targets"]
        for selector in selectors(target["expr"])
    }
    families = {name.removesuffix(suffix) for name in shown for suffix in ("", "_bucket", "_count", "_sum")}
    ours = {family.name for family in (*CONTRACT, *TRANSITIONS, *FLEET, *PROCESS)}
    assert ours - families == set()
    elsewhere = {
        # Counted by the API server's view too, and told by the queue's other families.
        "rest_client_requests_total",
        "workqueue_adds_total",
        "workqueue_work_duration_seconds",
        "workqueue_unfinished_work_seconds",
    }
    assert {family.name for family in BUILT_IN} - families == elsewhere


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.name)
def test_panels_have_a_place_of_their_own_a_title_and_the_chosen_data_source(file: Path) -> None:
    everything = dashboard(file)["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert panel["title"]
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
    for panel in panels(file):
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    variables = {variable["name"] for variable in dashboard(file)["templating"]["list"]}
    assert variables == {"datasource"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_what_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description"}
    page = (checkout.ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert f"`{rule['alert']}`" in page


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_is_seen_to_fire(rule: dict[str, Any]) -> None:
    """The tests are run by promtool in the e2e suite."""
    cases = [case for test in TESTS for case in test.get("alert_rule_test", ()) if case["alertname"] == rule["alert"]]
    assert any(case["exp_alerts"] for case in cases)


def test_every_metric_of_an_alert_is_there_when_all_is_well() -> None:
    """So that the silence of that test means something."""
    (well,) = [test for test in TESTS if "promql_expr_test" in test]
    given = {selector.metric for series in well["input_series"] for selector in selectors(series["series"])}
    asked = {selector.metric for rule in RULES for selector in selectors(rule["expr"])}
    assert asked - given == set()


def test_every_family_is_on_the_page_about_metrics_with_type_and_labels() -> None:
    page = (checkout.ROOT / "docs" / "metrics.md").read_text("utf-8")
    for family in FAMILIES.values():
        labels = ", ".join(f"`{label}`" for label in family.labels) or "\u2013"
        assert f"| `{family.name}` | {family.kind} | {labels} | {family.text} |" in page
