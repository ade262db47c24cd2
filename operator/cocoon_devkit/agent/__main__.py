"""``python -m cocoon_devkit.agent``: several imaginary nodes in one process, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from cocoon_devkit.agent.fakenodes import FakeNodes
from cocoon_devkit.agent.settings import CACHE_RECLAIM, SWITCHES, Capacity, NodeSettings, Speeds, Windows


def parser() -> argparse.ArgumentParser:
    """Return the command line; seconds are real seconds, windows are scaled by ``--time-scale``."""
    parse = argparse.ArgumentParser(prog="python -m cocoon_devkit.agent", description=__doc__)
    add = parse.add_argument
    add("--kubeconfig", type=Path, help="default: where kubectl looks")
    add("--registry", default="", help="HOST:PORT[/prefix]; without it the agent has no registry")
    add("--registry-username", default="")
    add("--registry-password", default="")
    add("--registry-tls", action="store_true", help="speak https to the registry")
    add("--registry-ca", type=Path, help="a certificate to trust; speaks https to the registry")
    add("--registry-gate", action="store_true", help="reach the registry through a gate that can spoil answers")
    add("--node", action="append", required=True, dest="nodes", metavar="NAME", help="may be given several times")
    add("--pool", default="default")
    add("--cpu-class", default="", help="value of the label cocoonstack.io/snapshot-cpu-class")
    add("--state-dir", type=Path, required=True, help="VM records and local snapshots; they survive a restart")
    add("--control-port", type=int, default=0)
    for switch, known in SWITCHES.items():
        add(f"--{switch.replace('_', '-')}", default=known[0], choices=known)
    add("--cache-reclaim", nargs="*", default=list(CACHE_RECLAIM), choices=CACHE_RECLAIM)
    for name, seconds in (("boot", 0.2), ("save", 0.2), ("push", 0.0), ("pull", 0.0), ("probe", 0.0)):
        add(f"--{name}-seconds", type=float, default=seconds)
    add(
        "--time-scale",
        type=float,
        default=1.0,
        help="factor on the agent's own windows (15 s retry, 45 s IP wait, ...)",
    )
    defaults = Capacity()
    add("--cpu", type=int, default=defaults.cpu)
    add("--memory-gib", type=int, default=defaults.memory >> 30)
    add("--storage-gib", type=int, default=defaults.storage >> 30)
    add("--pods", type=int, default=defaults.pods)
    add("--reserve-percent", type=int, default=defaults.reserve)
    return parse


def settings_of(options: argparse.Namespace) -> NodeSettings:
    """Return the template of all nodes. Raises :class:`ValueError` on a value that makes no sense (N004)."""
    return NodeSettings(
        name="",
        state_dir=options.state_dir,
        registry=options.registry,
        registry_username=options.registry_username,
        registry_password=options.registry_password,
        registry_tls=options.registry_tls,
        registry_ca=options.registry_ca,
        pool=options.pool,
        cpu_class=options.cpu_class,
        orphan_policy=options.orphan_policy,
        live_snapshot=options.live_snapshot,
        storage_allocatable=options.storage_allocatable,
        cache_reclaim=options.cache_reclaim,
        capacity=Capacity(
            cpu=options.cpu,
            memory=options.memory_gib << 30,
            storage=options.storage_gib << 30,
            pods=options.pods,
            reserve=options.reserve_percent,
        ),
        speeds=Speeds(
            boot=options.boot_seconds,
            save=options.save_seconds,
            push=options.push_seconds,
            pull=options.pull_seconds,
            probe=options.probe_seconds,
        ),
        windows=Windows(scale=options.time_scale),
    )


async def serve(options: argparse.Namespace) -> None:
    """Run the nodes until SIGTERM or SIGINT; Node objects stay (R1.6)."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    nodes = FakeNodes(
        options.kubeconfig,
        settings_of(options),
        options.nodes,
        control_port=options.control_port,
        registry_gate=options.registry_gate,
    )
    async with nodes:
        print(json.dumps({"control": nodes.control}), flush=True)
        await stopped.wait()


def main() -> int:
    """Return the exit code: 0 after a signal, 2 for options that make no sense, 1 when the start failed."""
    options = parser().parse_args()
    try:
        asyncio.run(serve(options))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001  (one sentence for a person, whatever it is)
        print(f"the node agent could not start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
