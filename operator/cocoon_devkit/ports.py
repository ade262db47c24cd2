"""Ports on 127.0.0.1 that nobody uses."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 10_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


def free_ports(count: int) -> list[int]:
    """``count`` different ports that could be bound a moment ago.

    They lie below the range from which the kernel takes ports for outgoing connections: a server that is stopped and
    started again on its port would otherwise now and then find a client of somebody else there.
    """
    highest = _first_ephemeral_port() - 1
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                return ports
            port = random.randint(LOWEST, highest)  # noqa: S311 (not a secret)
            if port not in ports and _hold(port, held):
                ports.append(port)
    raise OSError(f"no {count} free ports on {LOOPBACK} between {LOWEST} and {highest}")


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections on the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _first_ephemeral_port() -> int:
    try:
        return max(int(_EPHEMERAL_RANGE.read_text().split()[0]), LOWEST + 1000)
    except (OSError, ValueError, IndexError):
        return 30_000


def _hold(port: int, held: contextlib.ExitStack) -> bool:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((LOOPBACK, port))
    except OSError:
        listener.close()
        return False
    held.enter_context(listener)
    return True
