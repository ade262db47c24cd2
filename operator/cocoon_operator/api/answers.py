"""What the registry can answer about a manifest: three values, never two.

*Unknown* is not *absent*: a registry that errs, times out or refuses credentials says nothing about a VM's state
(invariant I6). Only a 404 of the manifest request itself is :class:`Absent`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Present:
    """The manifest exists. ``digest`` is its ``sha256:...``; ``base_image`` the image the VM was made from, "" if untold.

    ``base_image`` is filled only by a request that fetched the manifest (``Registry.inspect``), not by a probe.
    """

    digest: str
    base_image: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """The registry answered the manifest request with 404."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer that says anything. ``reason`` is one line for a person, without secrets."""

    reason: str


Answer: TypeAlias = Present | Absent | Unknown


@dataclass(frozen=True, slots=True)
class Done:
    """The registry confirmed the write; for a drop also that there was nothing to drop."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The registry answered, and said no (4xx other than 404): the tag is as it was."""

    reason: str


WriteAnswer: TypeAlias = Done | Refused | Unknown
