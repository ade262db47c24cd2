"""Names of the registry: ``OCI_REGISTRY``, repositories, tags and digests (contract 8.4)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from cocoon_operator.clients.registry.failures import RegistryError

DOCKER_HUB: Final = "index.docker.io"
EXAMPLE: Final = "registry.example.com/cocoon"

_COMPONENT: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HOST: Final = re.compile(
    r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::(?P<port>[0-9]{1,5}))?"
)
_LONGEST_REPOSITORY: Final = 255
_PRIVATE: Final = tuple(ipaddress.ip_network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


class InvalidRegistryError(ValueError):
    """``OCI_REGISTRY`` cannot be used; the message is one sentence that says what to write instead."""


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """A registry and the path below which the repositories lie.

    ``host`` is ``name[:port]`` as it goes into an URL, ``path`` has no slash at either end and may be empty.
    """

    host: str
    path: str = ""

    @property
    def hostname(self) -> str:
        """The host without port and without the brackets of an IPv6 address."""
        match = _HOST.fullmatch(self.host)
        return match["name"].strip("[]").lower() if match else self.host

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes to try, best first: plain http only for a registry of this machine or a private network."""
        may_be_plain = is_loopback(self.hostname) or _is_private(self.hostname)
        return ("https", "http") if may_be_plain else ("https",)

    def repository(self, vm_name: str) -> str:
        """Return the repository of a VM, or raise :class:`RegistryError` if no repository can have that name."""
        name = f"{self.path}/{vm_name}" if self.path else vm_name
        if not re.fullmatch(_COMPONENT, vm_name) or len(name) > _LONGEST_REPOSITORY:
            raise RegistryError(f"{vm_name!r} cannot be the name of a repository")
        return name


def parse_registry(text: str) -> RegistryAddress:
    """Parse the value of ``OCI_REGISTRY``: ``host[:port][/path]`` without a scheme (S317, contract 8.4).

    A first component without ``.`` and ``:`` that is not ``localhost`` is a namespace of Docker Hub.
    Raises :class:`InvalidRegistryError`.
    """
    _refuse_common_mistakes(text)
    first, _, rest = text.partition("/")
    if first != "localhost" and not any(mark in first for mark in ".:"):
        first, rest = DOCKER_HUB, text
    if first == "docker.io":
        first = DOCKER_HUB
    _check_host(first)
    if first == DOCKER_HUB and not rest:
        raise InvalidRegistryError(
            "OCI_REGISTRY names Docker Hub without a namespace: write docker.io/<your namespace>"
        )
    if rest and not _PATH.fullmatch(rest):
        raise InvalidRegistryError(
            f"OCI_REGISTRY has the path {rest!r}, which no repository can have: use lower-case letters, digits and single"
            f" '.', '_', '-' between them, no tag and no digest, for example {EXAMPLE}"
        )
    return RegistryAddress(first, rest)


def _refuse_common_mistakes(text: str) -> None:
    if not text:
        raise InvalidRegistryError(f"OCI_REGISTRY must be set: write host[:port][/path], for example {EXAMPLE}")
    if text != text.strip() or any(char.isspace() for char in text):
        raise InvalidRegistryError("OCI_REGISTRY contains white space: remove it")
    if "://" in text:
        raise InvalidRegistryError(
            f"OCI_REGISTRY must not have a scheme: write {EXAMPLE}, not https://{EXAMPLE}"
            " (http is chosen by itself for localhost and private addresses)"
        )
    if "@" in text:
        raise InvalidRegistryError(
            f"OCI_REGISTRY must hold neither credentials nor a digest: write {EXAMPLE} and put credentials into a docker config"
        )
    if text.startswith("/") or text.endswith("/"):
        raise InvalidRegistryError(f"OCI_REGISTRY must neither begin nor end with a slash: write {EXAMPLE}")


def _check_host(host: str) -> None:
    match = _HOST.fullmatch(host)
    if match is None or ".." in host:
        raise InvalidRegistryError(
            f"OCI_REGISTRY has the host {host!r}, which is none: write host[:port][/path], e.g. {EXAMPLE}"
        )
    if match["port"] is not None and not 0 < int(match["port"]) < 65536:
        raise InvalidRegistryError(f"OCI_REGISTRY has the port {match['port']}: use one from 1 to 65535")
    if match["name"].startswith("["):
        try:
            ipaddress.IPv6Address(match["name"].strip("[]"))
        except ValueError:
            raise InvalidRegistryError(f"OCI_REGISTRY has the host {host!r}, which is no IPv6 address") from None


def is_digest(reference: str) -> bool:
    """Tell a well-formed ``sha256:<64 hex digits>``; other algorithms are not in use with snapshots."""
    return _DIGEST.fullmatch(reference) is not None


def is_tag(reference: str) -> bool:
    """Tell a well-formed tag."""
    return _TAG.fullmatch(reference) is not None


def is_loopback(hostname: str) -> bool:
    """Tell whether traffic to this host stays on this machine: ``localhost``, ``*.localhost`` or a loopback address."""
    if hostname == "localhost" or hostname.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False


def _is_private(hostname: str) -> bool:
    try:
        address = ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return any(address in block for block in _PRIVATE)
