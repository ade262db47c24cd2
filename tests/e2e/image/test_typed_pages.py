"""README and tutorial, typed command by command on a real control plane; what they print is what the pages show (W-48).

What a reader has and a test has not is put in its place, and only that: the registry of the examples is the test's, the
Deployment's pods are processes of the built image (``podprocess``, since a pod needs a kubelet), and what starts or stops a
whole environment is tested elsewhere (``NOT_TYPED``).
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from cocoon_devkit import checkout
from cocoon_devkit.dev import LEASE_NAMESPACE
from cocoon_devkit.process import Command, ManagedProcess
from cocoon_devkit.scratch import RECORDS
from tests.e2e.image.imagebuild import Image
from tests.e2e.image.podprocess import PodProcess
from tests.e2e.image.reader import Reader
from tests.e2e.image.typed import Shell, agrees, fences, inherited, typed

README = checkout.ROOT / "README.md"
TUTORIAL = checkout.ROOT / "docs" / "tutorial.md"

BACKGROUND = ".venv/bin/kopf run "
"""What the tutorial gives a terminal of its own."""

NOT_TYPED = {
    "git clone https://github.com/cocoonstack/cocoon-operator && cd cocoon-operator": "this is a checkout",
    "make setup": "ran before every test",
    "make demo": "tests/e2e/test_demo.py",
    "make dev-up": "tests/e2e/test_devkit_dev.py",
    'eval "$(.venv/bin/cocoon-devkit up)"': "tests/e2e/test_devkit_dev.py; here a test's cluster takes its place",
    "make dev-down": "tests/e2e/test_devkit_dev.py",
    "make test": "what CI runs",
    "make help": "shows the Makefile's own comments",
}
"""The commands of the fences ``sh``, each with who runs it."""


def test_every_command_of_the_pages_is_typed_or_accounted_for() -> None:
    told = set()
    for page in (README, TUTORIAL):
        for language, text in fences(page):
            assert language in {"console", "sh", "yaml"}, page
            if language == "sh":
                told |= {line.partition("  #")[0].strip() for line in text.splitlines()}
            if language == "console":
                assert text.startswith("$ ")
    assert told == set(NOT_TYPED)


@pytest.mark.parametrize(
    ("shown", "printed", "agreed"),
    [
        ("NAME   AGE\ndemo   5s", "NAME AGE\ndemo 1m30s\n", True),
        ("NAME   AGE\ndemo   5s", "NAME AGE\ndemo 5s\nother 5s\n", False),
        ("demo   Running", "demo Suspended", False),
        ("...", "anything\nat all", True),
        ('{"name":"...demo-0","tags":["hibernate"]}', '{"name":"pages/demo-0","tags":["hibernate"]}', True),
        ('{"name":"...demo-0","tags":["hibernate"]}', '{"name":"pages/demo-0","tags":[]}', False),
    ],
)
def test_what_a_page_shows_is_compared_word_by_word(shown: str, printed: str, agreed: bool) -> None:
    assert agrees(shown, printed) is agreed


def test_the_set_that_the_readme_shows_is_the_example() -> None:
    [shown] = [text for language, text in fences(README) if language == "yaml"]
    example = yaml.safe_load((checkout.ROOT / "examples" / "cocoonset.yaml").read_text())
    told = yaml.safe_load(shown)
    assert told["spec"].pop("suspend") is False
    assert told["metadata"]["name"] == example["metadata"]["name"]
    assert told["spec"].items() <= example["spec"].items()


@pytest.fixture
def shell(reader: Reader, tmp_path: Path) -> Shell:
    """What the reader's terminal knows before the first command."""
    told = {
        "KUBECONFIG": str(reader.cluster.kubeconfig),
        "OCI_REGISTRY": reader.snapshots,
        "COCOON_AGENT": reader.nodes.client._base,
    }
    return Shell(checkout.ROOT, tmp_path, {**inherited(reader.cluster.tools), **told})


def type_it(shell: Shell, command: str, shown: str) -> None:
    printed = shell.type(command)
    assert not shown or agrees(shown, printed), f"$ {command}\n{printed}\ninstead of\n{shown}"


def operators_pods(reader: Reader) -> list[dict[str, Any]]:
    """The pods of the Deployment, once its ReplicaSet has made them."""
    kubectl = reader.cluster.kubectl
    deadline = time.monotonic() + 30
    while True:
        wanted = kubectl.get("deployment", "cocoon-operator", "--namespace", "cocoon-system")["spec"]["replicas"]
        selector = ("--namespace", "cocoon-system", "--selector", "app.kubernetes.io/name=cocoon-operator")
        pods: list[dict[str, Any]] = kubectl.get("pods", *selector)["items"]
        if len(pods) == wanted:
            return pods
        assert time.monotonic() < deadline, f"{len(pods)} of {wanted} pods"
        time.sleep(0.1)


def as_nobody_touched_it(reader: Reader) -> None:
    """Whoever begins with the README has neither CRDs nor the namespace; another test may have brought them."""
    kubectl = reader.cluster.kubectl
    kubectl("delete", "--ignore-not-found", "-f", str(checkout.CRDS))
    kubectl("delete", "namespace", "--ignore-not-found", LEASE_NAMESPACE)


def test_w48_the_readme_from_nothing_to_a_suspended_set_and_back(
    reader: Reader, image: Image, shell: Shell, tmp_path: Path
) -> None:
    as_nobody_touched_it(reader)
    with ExitStack() as running:
        pods: list[PodProcess] = []
        for each in typed(README):
            command = each.command.replace("registry.example.com/cocoon", reader.snapshots)
            type_it(shell, command.replace("registry.example.com", reader.registry.address), each.output)
            if command.startswith("helm install"):
                pods = [PodProcess(reader.cluster, image, tmp_path, pod) for pod in operators_pods(reader)]
                for pod in pods:
                    running.enter_context(pod)
            if command.startswith("helm uninstall"):
                running.close()
    assert len(pods) == 2
    for pod in pods:
        assert pod.exit_code == 0
        assert "Traceback" not in pod.output()
        assert "Read-only file system" not in pod.output()
        assert [secret for secret in ("s3cret", *pod.tokens) if secret in pod.output()] == []


def as_dev_up_leaves_it(reader: Reader) -> None:
    """``cocoon-devkit up`` brings the CRDs and the namespace of the Lease, which nobody held before."""
    reader.cluster.apply_crds(checkout.CRDS)
    reader.cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}})
    reader.cluster.kubectl("delete", "leases", "--all", "--namespace", LEASE_NAMESPACE)


def test_w48_the_tutorial(reader: Reader, shell: Shell, tmp_path: Path) -> None:
    as_dev_up_leaves_it(reader)
    with ExitStack() as running:
        for each in typed(TUTORIAL):
            if each.command.startswith(BACKGROUND):
                log = tmp_path / "terminal.log"
                command = Command(
                    "terminal", ["bash", "-c", f"exec {each.command}"], log, env=shell.env, cwd=checkout.ROOT
                )
                process = ManagedProcess(command, tmp_path / RECORDS)
                running.callback(process.stop)
            else:
                type_it(shell, each.command, each.output)
