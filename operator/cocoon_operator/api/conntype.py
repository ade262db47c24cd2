"""How a person connects to a VM, for the status (contract 2.10, S036)."""

from __future__ import annotations

from collections.abc import Mapping

from cocoon_operator.api import keys
from cocoon_operator.api.enums import ConnType, OperatingSystem
from cocoon_operator.api.lifecycle import RuntimeInfo


def connection_type(override: str, vnc_port: int, os: str) -> str:
    """Return what the user chose, else ``vnc`` where a VNC port is known, else what fits the OS (S036)."""
    if override:
        return override
    if vnc_port > 0:
        return ConnType.VNC
    if os == OperatingSystem.ANDROID:
        return ConnType.ADB
    if os == OperatingSystem.WINDOWS:
        return ConnType.RDP
    return ConnType.SSH


def connection_type_of(annotations: Mapping[str, str]) -> str:
    """Return the connection type by a pod's annotations."""
    return connection_type(
        annotations.get(keys.CONN_TYPE, ""),
        RuntimeInfo.read(annotations).vnc_port,
        annotations.get(keys.OS, ""),
    )
