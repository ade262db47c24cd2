"""The CRDs as they are generated; what the API server makes of them is tested on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cocoon_operator.api import crd, quantity

_ROOT = Path(__file__).parents[3]


def _schema(kind: crd.Kind) -> dict[str, Any]:
    version: dict[str, Any] = crd.definition(kind)["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def _at(kind: crd.Kind, path: str) -> dict[str, Any]:
    """The schema node of a field, e.g. ``spec.toolboxes[].name``."""
    node = _schema(kind)
    for part in path.split("."):
        node = node["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            node = node["items"]
    return node


def _nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}" if path else name)
    for keyword in ("items", "additionalProperties"):
        if keyword in node:
            yield from _nodes(node[keyword], f"{path}[]")


def test_the_files_of_the_project_match_the_models() -> None:
    assert crd.stale(_ROOT / "crds") == []


@pytest.mark.parametrize("kind", crd.KINDS)
def test_a_schema_is_structural(kind: crd.Kind) -> None:
    for path, node in _nodes(_schema(kind)):
        assert not {"$ref", "$defs", "allOf", "oneOf", "not", "title", "const", "x-cocoon-crd-default"} & node.keys(), (
            path
        )
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            assert node["pattern"] == quantity.PATTERN, path
            assert "type" not in node, path
        else:
            assert "anyOf" not in node, path
            assert isinstance(node["type"], str), path
        assert "x-kubernetes-preserve-unknown-fields" not in node, path


@pytest.mark.parametrize("kind", crd.KINDS)
def test_every_field_is_described(kind: crd.Kind) -> None:
    bare = [path for path, node in _nodes(_schema(kind)) if "description" not in node]
    assert [path for path in bare if path != "metadata" and not path.endswith(("limits[]", "requests[]"))] == []


@pytest.mark.parametrize(
    ("path", "default"),
    [
        ("spec.snapshotPolicy", "always"),
        ("spec.hibernatePolicy", "retain"),
        ("spec.nodePool", "default"),
        ("spec.agent.replicas", 0),
        ("spec.agent.mode", "clone"),
        ("spec.agent.os", "linux"),
        ("spec.agent.backend", "cloud-hypervisor"),
        ("spec.agent.envFrom[].configMapRef.name", ""),
        ("spec.agent.envFrom[].secretRef.name", ""),
        ("spec.toolboxes[].mode", "run"),
        ("spec.toolboxes[].os", "linux"),
        ("spec.toolboxes[].backend", "cloud-hypervisor"),
    ],
)
def test_the_defaults_of_the_contract(path: str, default: Any) -> None:
    assert _at(crd.COCOON_SET, path)["default"] == default


def test_there_are_no_other_defaults() -> None:
    assert sum("default" in node for _, node in _nodes(_schema(crd.COCOON_SET))) == 12
    assert not any("default" in node for _, node in _nodes(_schema(crd.COCOON_HIBERNATION)))


@pytest.mark.parametrize(
    ("kind", "path", "required"),
    [
        (crd.COCOON_SET, "spec", ["agent"]),
        (crd.COCOON_SET, "spec.agent", ["image"]),
        (crd.COCOON_SET, "spec.toolboxes[]", ["name"]),
        (crd.COCOON_SET, "spec.agent.resources.claims[]", ["name"]),
        (crd.COCOON_SET, "status.agents[]", ["role", "slot"]),
        (crd.COCOON_SET, "status.toolboxes[]", ["name"]),
        (crd.COCOON_SET, "status.conditions[]", ["lastTransitionTime", "message", "reason", "status", "type"]),
        (crd.COCOON_HIBERNATION, "spec", ["desire", "podRef"]),
        (crd.COCOON_HIBERNATION, "spec.podRef", ["name"]),
    ],
)
def test_what_is_required(kind: crd.Kind, path: str, required: list[str]) -> None:
    assert sorted(_at(kind, path)["required"]) == required


@pytest.mark.parametrize("kind", crd.KINDS)
def test_w61_spec_is_asked_for_by_a_rule_since_required_would_lock_in_an_older_object_without_one(
    kind: crd.Kind,
) -> None:
    schema = _schema(kind)
    assert "required" not in schema
    [rule] = schema["x-kubernetes-validations"]
    assert (rule["fieldPath"], rule["reason"], rule["optionalOldSelf"]) == (".spec", "FieldValueRequired", True)


def test_a_rule_that_hangs_above_what_it_judges_looks_at_the_old_object() -> None:
    """Else a write to something else would be refused for what an older CRD let in (CS-3); the others are Go's own."""
    above = [
        *_schema(crd.COCOON_SET)["x-kubernetes-validations"],
        *_at(crd.COCOON_SET, "spec")["x-kubernetes-validations"],
    ]
    of_old = {
        "hibernatePolicy=release requires agent.replicas=0 and no toolboxes",
        "snapshotCompatibilityClass is immutable once set",
    }
    assert {rule["message"] for rule in above if "optionalOldSelf" not in rule} == of_old


@pytest.mark.parametrize("part", ["spec.agent", "spec.toolboxes", "spec.toolboxes[]"])
def test_a_rule_that_hangs_on_what_it_judges_is_skipped_where_nothing_changed(part: str) -> None:
    """A rule that looks at the old object never is; so none of these does."""
    rules = _at(crd.COCOON_SET, part)["x-kubernetes-validations"]
    assert rules
    assert [rule for rule in rules if "oldSelf" in rule["rule"]] == []


def test_a_refusal_names_a_field_that_exists() -> None:
    for kind in crd.KINDS:
        for path, node in _nodes(_schema(kind)):
            for rule in node.get("x-kubernetes-validations", ()):
                field = rule.get("fieldPath", "").removeprefix(".")
                assert not field or field in node["properties"], f"{path}: {field}"


@pytest.mark.parametrize(
    ("path", "bounds"),
    [
        ("spec.agent.replicas", {"format": "int32", "minimum": 0}),
        ("spec.agent.probePort", {"format": "int32", "minimum": 0, "maximum": 65535}),
        ("spec.toolboxes[].vncPort", {"format": "int32", "minimum": 0, "maximum": 65535}),
        ("status.toolboxes[].vncPort", {"format": "int32"}),
        ("status.agents[].slot", {"format": "int32"}),
        ("status.readyAgents", {"format": "int32"}),
        ("status.observedGeneration", {"format": "int64"}),
        ("status.conditions[].observedGeneration", {"format": "int64", "minimum": 0}),
        ("status.conditions[].message", {"maxLength": 32768}),
        ("status.conditions[].lastTransitionTime", {"format": "date-time"}),
        ("status.agents[].phase", {}),
        ("spec.agent.image", {"minLength": 1, "maxLength": 4096}),
        ("spec.toolboxes[].image", {"maxLength": 4096}),
        ("spec.toolboxes[].name", {"minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}),
        (
            "spec.snapshotCompatibilityClass",
            {"maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"},
        ),
        ("status.agents[].snapshotDigest", {}),
        ("status.toolboxes[].snapshotDigest", {}),
    ],
)
def test_bounds_are_exactly_those_of_the_contract(path: str, bounds: dict[str, Any]) -> None:
    node = _at(crd.COCOON_SET, path)
    ignored = {"type", "description", "default"}
    assert {keyword: value for keyword, value in node.items() if keyword not in ignored} == bounds


@pytest.mark.parametrize(
    ("kind", "path", "key"),
    [
        (crd.COCOON_SET, "status.agents", "slot"),
        (crd.COCOON_SET, "status.toolboxes", "name"),
        (crd.COCOON_SET, "status.conditions", "type"),
        (crd.COCOON_SET, "spec.agent.resources.claims", "name"),
        (crd.COCOON_HIBERNATION, "status.conditions", "type"),
    ],
)
def test_lists_that_are_merged_by_a_key(kind: crd.Kind, path: str, key: str) -> None:
    node = _at(kind, path)
    assert (node["x-kubernetes-list-type"], node["x-kubernetes-list-map-keys"]) == ("map", [key])


def test_references_to_config_maps_and_secrets_are_atomic() -> None:
    for name in ("configMapRef", "secretRef"):
        assert _at(crd.COCOON_SET, f"spec.agent.envFrom[].{name}")["x-kubernetes-map-type"] == "atomic"


def test_a_toolbox_has_no_field_that_only_agents_have() -> None:
    assert (
        not {"envFrom", "serviceAccountName", "replicas"} & _at(crd.COCOON_SET, "spec.toolboxes[]")["properties"].keys()
    )


@pytest.mark.scenario("S016")
def test_names_columns_and_subresources() -> None:
    cocoon_set, hibernation = (crd.definition(kind)["spec"] for kind in crd.KINDS)
    assert cocoon_set["names"] == {
        "kind": "CocoonSet",
        "listKind": "CocoonSetList",
        "plural": "cocoonsets",
        "singular": "cocoonset",
        "shortNames": ["cs", "cocoonsets", "cset"],
        "categories": ["cocoon"],
    }
    assert hibernation["names"]["shortNames"] == ["ch", "cocoonhibernations"]
    assert [column["name"] for column in cocoon_set["versions"][0]["additionalPrinterColumns"]] == [
        "Phase",
        "Ready",
        "Desired",
        "Age",
    ]
    assert [column["name"] for column in hibernation["versions"][0]["additionalPrinterColumns"]] == [
        "Pod",
        "Desire",
        "Phase",
        "Age",
    ]
    for spec in (cocoon_set, hibernation):
        assert spec["scope"] == "Namespaced"
        assert spec["versions"][0]["subresources"] == {"status": {}}


def test_the_command_writes_checks_and_names_what_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "crds"
    assert crd.main(["--output", str(output), "--check"]) == 1
    assert not output.exists()
    assert crd.main(["--output", str(output)]) == 0
    assert crd.main(["--output", str(output), "--check"]) == 0
    capsys.readouterr()

    stale = output / "cocoonset.cocoonstack.io_cocoonsets.yaml"
    stale.write_text(stale.read_text() + "# edited\n")
    assert crd.main(["--output", str(output), "--check"]) == 1
    message = capsys.readouterr().err
    assert str(stale) in message
    assert "make generate" in message
    assert "cocoonhibernations" not in message
    assert stale.read_text().endswith("# edited\n")


def test_the_files_are_plain_yaml_of_one_definition_each(tmp_path: Path) -> None:
    crd.write(tmp_path)
    for kind in crd.KINDS:
        text = (tmp_path / kind.file_name).read_text()
        assert yaml.safe_load(text) == crd.definition(kind)
        assert "&id" not in text
