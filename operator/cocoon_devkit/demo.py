"""``make demo``: a CocoonSet is created, suspended, woken and deleted on a real control plane, for everybody to see.

Only the hypervisor is imaginary. The operator runs as the chart's ServiceAccount, with the chart's rights and no others.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cocoon_devkit import checkout
from cocoon_devkit.agent.client import AgentClient
from cocoon_devkit.demostory import Story
from cocoon_devkit.demoview import View, view_for_output
from cocoon_devkit.demoworld import DemoWorld
from cocoon_devkit.dev import NODES, DevCluster, DevEnvironment, DevState
from cocoon_devkit.errors import DevkitError
from cocoon_devkit.operatoraudit import OperatorAudit
from cocoon_devkit.operatorprocess import OperatorOptions, OperatorProcess
from cocoon_devkit.process import Lifetime, tail
from cocoon_devkit.rawapi import proxied_api
from cocoon_devkit.scratch import Scratch
from cocoon_devkit.tools import say_on_stderr

EXAMPLE: Final = checkout.ROOT / "examples" / "cocoonset.yaml"
_LOG_LINES: Final = 15


@dataclass(frozen=True)
class Stage:
    """Everything that runs for the demo."""

    state: DevState
    cluster: DevCluster
    agent: AgentClient
    operator: OperatorProcess


def main(argv: Sequence[str] | None = None, folder: Path = checkout.DEV_STATE) -> int:
    """The exit code is 0 only if every state was really reached, 1 if not, 130 after Ctrl-C.

    ``folder`` is where a kept environment lives.
    """
    options = _parser().parse_args(argv)
    # SIGINT too: whoever is started in the background inherits that it is ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        run(view_for_output(), keep=folder if options.keep else None)
    except DevkitError as error:
        say_on_stderr(f"\ndemo: {error}")
        return 1
    except KeyboardInterrupt:
        say_on_stderr("\ndemo: stopped; nothing is left running")
        return 130
    return 0


def run(view: View, *, keep: Path | None = None) -> None:
    """Tell the whole story. Raises DevkitError, with nothing left running, when it is not as it says.

    ``keep`` is the folder of an environment that lives on afterwards.
    """
    began = time.monotonic()
    with _kept_environment(keep) if keep else _own_environment() as environment:
        stage = _set(environment, Lifetime.DETACHED if keep else Lifetime.BOUND)
        story = _tell(stage, view)
        view.summary(story.outcomes, time.monotonic() - began)
        if keep:
            view.say(_farewell(stage))


@contextlib.contextmanager
def _own_environment() -> Iterator[DevEnvironment]:
    """An environment for this run, which ends with it."""
    with Scratch("demo") as scratch:
        environment = DevEnvironment(scratch.path, lifetime=Lifetime.BOUND)
        try:
            yield environment
        finally:
            environment.down(say_on_stderr)


@contextlib.contextmanager
def _kept_environment(folder: Path) -> Iterator[DevEnvironment]:
    """A development environment that lives on if all goes well."""
    environment = DevEnvironment(folder)
    if environment.state() is not None:
        raise DevkitError("The development environment is in use; `make dev-down` stops it.")
    try:
        yield environment
    except BaseException:
        environment.down(say_on_stderr)
        raise


def _set(environment: DevEnvironment, lifetime: Lifetime) -> Stage:
    state = environment.up(say_on_stderr)
    cluster = DevCluster(state)
    agent = AgentClient(state.agent)
    agent.publish_image(_example()["spec"]["agent"]["image"])
    say_on_stderr("installing the chart's rights, starting the operator with them")
    operator = OperatorProcess.as_service_account(
        cluster,
        environment.folder / "operator",
        OperatorOptions(state.registry, log_level="info"),
        lifetime=lifetime,
    )
    operator.start()
    operator.wait_leading()
    return Stage(state, cluster, agent, operator)


def _tell(stage: Stage, view: View) -> Story:
    metadata = _example()["metadata"]
    with proxied_api(stage.cluster) as api:
        host, _, path = stage.state.registry.partition("/")
        world = DemoWorld(api, stage.agent, f"http://{host}/v2/{path}", NODES, metadata["namespace"], metadata["name"])
        story = Story(world, stage.cluster.kubectl, OperatorAudit(stage.cluster), view, _shown(EXAMPLE))
        try:
            story.tell()
        except DevkitError as error:
            raise DevkitError(
                f"{error}\nThe end of the operator's log:\n{tail(stage.operator.log, _LOG_LINES)}"
            ) from error
    return story


def _farewell(stage: Stage) -> str:
    return (
        f"\nIt still runs. For your shell:\n\n{stage.state.exports}\nexport PATH={stage.state.tools}:$PATH\n\n"
        f"  kubectl apply -f {_shown(EXAMPLE)}\n"
        f"  kubectl get cset --watch\n  tail -f {stage.operator.log}\n  make dev-down      # stops it"
    )


def _shown(file: Path) -> Path:
    """A file as one would name it from here."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def _example() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    return content


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cocoon_devkit.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running and say how to use and stop it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
