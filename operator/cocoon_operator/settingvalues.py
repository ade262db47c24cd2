"""How the texts of settings are read. What cannot be read is a :class:`ValueError` whose message says what to write."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from typing_extensions import override

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; an empty host means everywhere."""

    host: str
    port: int

    @override
    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_boolean(text: str) -> bool:
    """Read what Go's ``strconv.ParseBool`` does (S319)."""
    if text not in _TRUE | _FALSE:
        raise ValueError("write true or false")
    return text in _TRUE


def parse_integer(text: str) -> int:
    """Read what Go's ``strconv.Atoi`` does (S318)."""
    if not _INTEGER.match(text):
        raise ValueError("write a number")
    return int(text)


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration text (``10m``, ``1h30m``, ``1.5s``, ``0``)."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration: write for example 90s, 10m or 1h30m")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def parse_file(text: str) -> str:
    """Take the path of a file that can be read, or nothing."""
    if text:
        try:
            Path(text).open("rb").close()
        except OSError as error:
            raise ValueError(f"write the path of a file that can be read ({error.strerror})") from None
    return text


def show_duration(seconds: float) -> str:
    """Return a text that :func:`parse_duration` reads as this many seconds."""
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        hours, minutes = divmod(int(minutes), 60)
        return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    return f"{seconds:.12g}s"


def parse_address(text: str) -> Address | None:
    """Read ``[host]:port``, an IPv6 address in brackets; None for ``0`` or ``off``."""
    if text in {"0", "off"}:
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not _INTEGER.match(port) or not 0 <= int(port) <= 65535 or (":" in host and not bracketed):
        raise ValueError("write [host]:port, or 0 to switch it off")
    return Address(host[1:-1] if bracketed else host, int(port))


def parse_namespace(text: str) -> str:
    """Read the name of a namespace; "" is none."""
    if text and not _NAMESPACE.match(text):
        raise ValueError(f"{text!r} is no namespace: write lower-case letters, digits and '-', at most 63 of them")
    return text


def parse_endpoint(text: str) -> str:
    """Read the URL of a collector of traces; "" is none. A login in it is refused: it would be shown and logged."""
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or any(char in "@?#" or char.isspace() for char in text):
        raise ValueError("write http://host:port or https://host:port, and a login into OTEL_EXPORTER_OTLP_HEADERS")
    return text
