"""Why a question to the registry has no answer. Raised inside this package only: the client turns each into an answer.

A ``reason`` is one line for a person and is shown in conditions and events, so it holds neither secrets nor text that a
server chose, and it is the same for the same cause: a changed message is a status write.
"""

from __future__ import annotations

from typing import Final

_PASSING: Final = frozenset({"timeout", "connect", "lost"})


class RegistryError(Exception):
    """The registry, or something on the way to it, gave no answer that says anything.

    ``transient``: the same request may succeed in a moment. ``retry_after``: seconds the server asked to wait, if it did.
    """

    def __init__(self, reason: str, *, transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.transient = transient
        self.retry_after = retry_after


class NoAnswerError(RegistryError):
    """No HTTP answer arrived.

    ``kind`` is ``timeout``, ``connect``, ``lost``, ``tls``, ``certificate`` or ``invalid``, the code that a metric gets.
    """

    def __init__(self, reason: str, kind: str) -> None:
        super().__init__(reason, transient=kind in _PASSING)
        self.kind = kind


class AuthRefusedError(RegistryError):
    """The registry or its token service answered, and refused who asks: the request was not carried out."""


class CredentialsError(RegistryError):
    """Credentials are configured but cannot be had (broken file, failing helper). Never read as *anonymous*."""
