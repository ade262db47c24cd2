"""How a person connects to a VM."""

from __future__ import annotations

import pytest

from cocoon_operator.api import keys
from cocoon_operator.api.conntype import connection_type, connection_type_of


@pytest.mark.scenario("S036")
@pytest.mark.parametrize(
    ("override", "vnc_port", "os", "expected"),
    [
        ("", 0, "linux", "ssh"),
        ("", 0, "macos", "ssh"),
        ("", 0, "", "ssh"),
        ("", 0, "windows", "rdp"),
        ("", 0, "android", "adb"),
        ("", 5901, "windows", "vnc"),
        ("", 5901, "android", "vnc"),
        ("rdp", 0, "linux", "rdp"),
        ("ssh", 5901, "windows", "ssh"),
    ],
)
def test_the_connection_type(override: str, vnc_port: int, os: str, expected: str) -> None:
    assert connection_type(override, vnc_port, os) == expected
    annotations = {keys.CONN_TYPE: override, keys.VNC_PORT: str(vnc_port), keys.OS: os}
    assert connection_type_of({key: value for key, value in annotations.items() if value}) == expected


@pytest.mark.scenario("S036")
def test_a_malformed_port_is_no_port() -> None:
    assert connection_type_of({keys.VNC_PORT: "many", keys.OS: "windows"}) == "rdp"
