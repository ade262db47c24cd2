"""Live snapshots: the request on a pod and the node agent's answer (node agent R3.16-R3.29, R5.2).

They are between an API user and the node agent. The operator neither reads nor writes them; this is the typed contract
for those who do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from cocoon_operator.api import keys

PUSHED: Final = "pushed"
FAILED: Final = "failed"

_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class _Answer(msgspec.Struct, frozen=True):
    ref: str | None = None
    state: str | None = None
    message: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The agent's answer: ``ref`` echoes the request byte for byte, ``state`` is ``pushed`` or ``failed`` (R3.19).

    The zero status means that there is no answer; it answers no request.
    """

    ref: str = ""
    state: str = ""
    message: str = ""

    @classmethod
    def parse(cls, annotations: Mapping[str, str] | None) -> SnapshotStatus:
        """Read the answer of a pod. Never raises: a missing or malformed one reads as the zero status (N143)."""
        text = (annotations or {}).get(keys.SNAPSHOT_STATUS)
        if not text:
            return cls()
        try:
            answer = _DECODER.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return cls()
        return cls(answer.ref or "", answer.state or "", answer.message or "")

    def answers(self, request: str) -> bool:
        """Whether this is the answer to a request; an older answer, or none, is not (N142)."""
        return request != "" and self.ref == request

    def to_patch(self) -> dict[str, str | None]:
        """Return the merge-patch map of the one key that carries the answer (R3.20)."""
        fields = {"ref": self.ref, "state": self.state, "message": self.message}
        return {keys.SNAPSHOT_STATUS: json.dumps(fields, separators=(",", ":"))}


class SnapshotReferenceError(ValueError):
    """The text of a request is no reference; the message names the problem."""


@dataclass(frozen=True, slots=True)
class SnapshotReference:
    """Where a live snapshot is pushed to, relative to the registry."""

    repo: str
    tag: str = keys.TAG_LATEST

    @property
    def text(self) -> str:
        """The reference with its tag, as the registry takes it."""
        return f"{self.repo}:{self.tag}"


def parse_reference(text: str) -> SnapshotReference:
    """Read ``repo[:tag]``; without a tag it is ``latest`` (R5.2, N132).

    Raises :class:`SnapshotReferenceError` for what is not relative to the registry: a port, a digest, upper-case
    letters in the repository, an empty repository or tag (R3.26, N156).
    """
    if "@" in text:
        raise SnapshotReferenceError("a digest is not allowed: name a tag")
    repo, colon, tag = text.partition(":")
    if not repo:
        raise SnapshotReferenceError("the repository is missing")
    if not _REPOSITORY.fullmatch(repo):
        raise SnapshotReferenceError(
            f"{repo!r} is not a repository: lower-case letters and digits, joined by '.', '_', '__' or dashes, "
            "in parts joined by '/'"
        )
    if not colon:
        return SnapshotReference(repo)
    if not tag:
        raise SnapshotReferenceError("the tag after ':' is missing")
    if "/" in tag:
        raise SnapshotReferenceError("a registry with a port is not allowed: the reference is relative to the registry")
    if not _TAG.fullmatch(tag):
        raise SnapshotReferenceError(
            f"{tag!r} is not a tag: up to 128 letters, digits, '_', '.' and '-', not starting with '.' or '-'"
        )
    return SnapshotReference(repo, tag)
