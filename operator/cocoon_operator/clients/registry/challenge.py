"""What a 401 asks for: a parser of ``WWW-Authenticate`` (RFC 7235, section 2.1 and 4.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the grammar's token, no secret
_SEPARATORS: Final = re.compile(r"[ \t,]*")
_SCHEME: Final = re.compile(rf"({_TOKEN})(?:([ \t]+)|(?=,)|$)")
_PARAMETER: Final = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))')
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?=,|$)")
_SUPPORTED: Final = ("bearer", "basic")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge. Scheme and parameter names are lower case; values are as sent, unquoted."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """Return a parameter, "" when it was not sent."""
        return self.parameters.get(name, "")


def parse_challenges(header: str) -> list[Challenge]:
    """Parse one header, which may carry several challenges. What is not understood ends the list: it is no challenge."""
    challenges: list[Challenge] = []
    at = _skip_separators(header, 0)
    while scheme := _SCHEME.match(header, at):
        parameters: dict[str, str] = {}
        at = scheme.end()
        if scheme[2]:
            parameters, at = _parse_parameters(header, at)
        challenges.append(Challenge(scheme[1].lower(), parameters))
        at = _skip_separators(header, at)
    return challenges


def choose_challenge(headers: Iterable[str]) -> Challenge | None:
    """Return the first challenge that this client can meet: Bearer with a realm, or Basic."""
    for header in headers:
        for challenge in parse_challenges(header):
            if challenge.scheme in _SUPPORTED and (challenge.scheme == "basic" or challenge.get("realm")):
                return challenge
    return None


def _parse_parameters(header: str, at: int) -> tuple[dict[str, str], int]:
    parameters: dict[str, str] = {}
    while parameter := _PARAMETER.match(header, at):
        name, quoted, token = parameter.groups()
        value = token if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        parameters.setdefault(name.lower(), value)
        at = _skip_separators(header, parameter.end())
    if not parameters and (opaque := _TOKEN68.match(header, at)):
        at = opaque.end()
    return parameters, at


def _skip_separators(header: str, at: int) -> int:
    match = _SEPARATORS.match(header, at)
    return at if match is None else match.end()
