"""The Dockerfile, what its build leaves, and the workflows: all that can be known of them without a Docker engine."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cocoon_devkit import checkout
from cocoon_devkit.chart import CHART
from cocoon_devkit.helm import Helm
from cocoon_devkit.scratch import Scratch
from tests.e2e.image.imagebuild import Image, read_dockerfile
from tests.e2e.image.podprocess import read_only_site

WORKFLOWS = sorted((checkout.ROOT / ".github" / "workflows").glob("*.yml"))
VERSION = tomllib.loads((checkout.ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def pod_spec(tools: Path) -> dict[str, Any]:
    """The pod of the chart's Deployment."""
    with Scratch("image-chart") as scratch:
        helm = Helm(tools / "helm", scratch.path)
        rendered = helm("template", "cocoon-operator", str(CHART), "--set", "registry=registry.example.com").stdout
    objects = [each for each in yaml.safe_load_all(rendered) if each]
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


# -- the Dockerfile ----------------------------------------------------------------------------------------------------


def test_every_stage_begins_with_the_same_base_named_by_its_digest() -> None:
    arguments, stages = read_dockerfile()
    assert [stage.base for stage in stages] == ["${PYTHON_IMAGE}@${PYTHON_DIGEST}"] * 2
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", arguments["PYTHON_DIGEST"])
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-[a-z]+", arguments["PYTHON_IMAGE"])


def test_it_runs_as_the_chart_says(pod_spec: dict[str, Any]) -> None:
    _, [_, final] = read_dockerfile()
    [container] = pod_spec["containers"]
    security = pod_spec["securityContext"]
    assert final.one("USER") == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert final.one("EXPOSE").split() == [str(port["containerPort"]) for port in container["ports"]]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "command" not in container


def test_every_package_is_installed_by_hash_and_none_is_built() -> None:
    _, [build, _] = read_dockerfile()
    installs = [command for rest in build.all("RUN") for command in rest.split("&&") if " install " in command]
    assert len(installs) == 3
    for command in installs:
        by_hash = "--require-hashes" in command and "--only-binary :all:" in command
        assert by_hash or "--no-deps --no-index /dist/" in command


# -- what it contains --------------------------------------------------------------------------------------------------


def test_it_holds_what_runs_and_nothing_else(image: Image) -> None:
    installed = importlib.metadata.distributions(path=[str(image.packages)])
    found = {each.metadata["Name"].lower().replace("_", "-"): each.version for each in installed}
    pinned = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (checkout.REQUIREMENTS / "image.txt").read_text(), re.MULTILINE))
    assert found.pop("cocoon-operator") == VERSION
    # Some pins are for other platforms.
    assert found.items() <= pinned.items()
    assert {"kopf", "aiohttp", "google-auth", "opentelemetry-sdk"} <= set(found)
    for absent in ("kubernetes_asyncio", "cocoon_devkit", "pip", "pytest", "hypothesis"):
        assert not list(image.packages.glob(f"{absent}*")), absent
    assert {file.name for file in (image.packages / "cocoon_operator" / "crds").iterdir()} == {
        file.name for file in checkout.CRDS.glob("*.yaml")
    }


def run(image: Image, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        image.argv(*args), env={**image.env, **env}, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_the_entry_point_tells_its_version_and_what_is_missing(image: Image, pod_spec: dict[str, Any]) -> None:
    assert run(image, "version").stdout.strip() == VERSION
    [container] = pod_spec["containers"]
    refused = run(image, *container["args"])
    assert refused.returncode == 1
    assert refused.stderr.startswith("cocoon-operator: OCI_REGISTRY must be set")


def test_the_imitated_file_system_is_read_only(image: Image, tmp_path: Path) -> None:
    """What the pages' test relies on: an operator that wrote a file would be found out."""
    site = read_only_site(tmp_path / "site")
    probe = [str(image.prefix / "bin" / "python"), "-c", f"open({str(tmp_path / 'written')!r}, 'w')"]
    env = {**image.env, "PYTHONPATH": str(site), "MOUNTED_SERVICE_ACCOUNT": str(tmp_path)}
    done = subprocess.run(probe, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "Read-only file system" in done.stderr
    assert not (tmp_path / "written").exists()


# -- the workflows -----------------------------------------------------------------------------------------------------


def test_the_workflows_are_well_formed(tools: Path) -> None:
    done = subprocess.run(
        [str(tools / "actionlint"), "-no-color", *map(str, WORKFLOWS)],
        cwd=checkout.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_action_is_pinned_by_its_commit_and_says_its_version() -> None:
    for workflow in WORKFLOWS:
        uses = re.findall(r"uses: (.+)", workflow.read_text())
        assert uses
        for line in uses:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_the_release_publishes_what_the_chart_names() -> None:
    release = yaml.safe_load((checkout.ROOT / ".github" / "workflows" / "release.yml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert release["env"]["IMAGE"] == values["image"]["repository"]
    assert (chart["version"], str(chart["appVersion"])) == (VERSION, VERSION)
