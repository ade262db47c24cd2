"""What the chart says about itself: its README, its entry in Artifact Hub, its versions, and what helm's linter says."""

from __future__ import annotations

import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendered import VALUES

from cocoon_devkit import chartreadme, checkout
from cocoon_devkit.chart import CHART
from cocoon_devkit.helm import Helm
from cocoon_operator.api.cocoonset import CocoonSetSpec
from cocoon_operator.api.crd import KINDS
from cocoon_operator.api.hibernation import CocoonHibernationSpec

SPECS = {"CocoonSet": CocoonSetSpec, "CocoonHibernation": CocoonHibernationSpec}


@pytest.fixture(scope="module")
def about() -> dict[str, Any]:
    """Chart.yaml."""
    return dict(yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8")))


def annotation(about: dict[str, Any], name: str) -> Any:
    return yaml.safe_load(about["annotations"][f"artifacthub.io/{name}"])


def test_the_readme_is_fresh() -> None:
    assert chartreadme.main(["--check"]) == 0


def test_the_readme_has_every_value() -> None:
    def leaves(path: str, value: Any, rows: set[str]) -> list[str]:
        if path in rows and not (isinstance(value, dict) and any(row.startswith(f"{path}.") for row in rows)):
            return []
        if not isinstance(value, dict) or not value:
            return [path]
        return [each for key, child in value.items() for each in leaves(f"{path}.{key}".strip("."), child, rows)]

    text = chartreadme.VALUES.read_text("utf-8")
    rows = {value.path for section in chartreadme.sections(text) for value in section.values}
    assert leaves("", yaml.safe_load(text), rows) == []


@pytest.mark.parametrize("text", ["a: 1\n", "# Words.\na: 1\n", "## Section\n\n# Words.\na: 1\nb: 2\n"])
def test_a_value_without_words_or_section_is_an_error(text: str) -> None:
    with pytest.raises(chartreadme.UndocumentedError):
        chartreadme.sections(text)


def test_a_mapping_is_one_row_unless_its_keys_have_words() -> None:
    text = "## A\n\n# One | two.\n# Three.\none: {x: 1}\n\n## B\n\n# Four.\ntwo:\n  # Five.\n  y: [z]\n"
    assert chartreadme.render(text) == (
        "### A\n\n| Value | Default | Meaning |\n|---|---|---|\n"
        '| `one` | `{"x": 1}` | One \\| two. Three. |\n\n'
        "### B\n\n| Value | Default | Meaning |\n|---|---|---|\n"
        '| `two` |  | Four. |\n| `two.y` | `["z"]` | Five. |\n'
    )


def test_versions_are_those_of_the_project(about: dict[str, Any]) -> None:
    version = tomllib.loads((checkout.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert about["version"] == about["appVersion"] == version
    [image] = annotation(about, "images")
    assert image["image"].endswith(f":{version}")


def test_artifact_hub_is_told_of_both_kinds(about: dict[str, Any]) -> None:
    assert {(each["kind"], each["name"], each["version"]) for each in annotation(about, "crds")} == {
        (kind.kind, f"{kind.plural}.cocoonset.cocoonstack.io", "v1") for kind in KINDS
    }
    examples = annotation(about, "crdsExamples")
    assert [each["kind"] for each in examples] == list(SPECS)
    for example in examples:
        SPECS[example["kind"]].model_validate(example["spec"])
    changes = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert {each["kind"] for each in annotation(about, "changes")} <= changes
    levels = ["basic install", "seamless upgrades", "full lifecycle", "deep insights", "auto pilot"]
    assert annotation(about, "operatorCapabilities") in levels


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    for values in (VALUES, {**VALUES, "watchNamespace": "team-a"}):
        flags = [f"--set={name}={value}" for name, value in values.items()]
        said = helm("lint", "--strict", str(CHART), *flags).stdout
        assert "1 chart(s) linted, 0 chart(s) failed" in said
        assert "[WARNING]" not in said


def test_a_package_has_what_the_chart_needs(helm: Helm, tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    [package] = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        packed = {name.removeprefix("cocoon-operator/") for name in archive.getnames()}
    wanted = {str(file.relative_to(CHART)) for file in CHART.rglob("*") if file.is_file()}
    assert wanted - packed == {".helmignore"} - packed
    assert packed <= wanted
