"""``cocoon-devkit``: the development environment from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from cocoon_devkit.dev import DevEnvironment
from cocoon_devkit.errors import DevkitError
from cocoon_devkit.tools import INTERRUPTED, find_tools, say_on_stderr

Action = Callable[[], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 when it did what it says, 1 when it could not."""
    arguments = _parser().parse_args(argv)
    action: Action = arguments.action
    try:
        return action()
    except DevkitError as error:
        say_on_stderr(f"cocoon-devkit: {error}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def up() -> int:
    """Start the environment; the shell's export lines go to standard output, all else to standard error."""
    state = DevEnvironment().up(say_on_stderr)
    print(state.exports)
    return 0


def down() -> int:
    """Stop the environment."""
    stopped = DevEnvironment().down(say_on_stderr)
    say_on_stderr(f"stopped {', '.join(record.name for record in stopped)}" if stopped else "nothing was running")
    return 0


def status() -> int:
    """Print the processes and how to reach them; the exit code is 1 when something does not run."""
    state = DevEnvironment().state()
    if state is None:
        say_on_stderr("the development environment does not run; `make dev-up` starts it")
        return 1
    for record in sorted(state.processes, key=lambda record: record.name):
        print(f"# {record.name:<24} {'running' if record.alive else 'ended':<8} pid {record.pid}")
    print(state.exports)
    return 0 if all(record.alive for record in state.processes) else 1


def tools() -> int:
    """Build the binaries that are missing and print their folder."""
    print(find_tools())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cocoon-devkit", description="A local cluster for work on the operator.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    described: dict[str, tuple[Action, str]] = {
        "up": (up, "start cluster, registry and nodes; print the lines for your shell"),
        "down": (down, "stop them and remove their data"),
        "status": (status, "show what runs and how to reach it"),
        "tools": (tools, "build the binaries that are missing; print their folder"),
    }
    for name, (action, text) in described.items():
        commands.add_parser(name, help=text, description=text).set_defaults(action=action)
    return parser


if __name__ == "__main__":
    sys.exit(main())
