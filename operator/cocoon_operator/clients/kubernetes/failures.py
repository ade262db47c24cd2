"""From an answer, or the lack of one, to the error tree of :mod:`cocoon_operator.api.errors`."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec

from cocoon_operator.api.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)


class UnsentError(UnavailableError):
    """No connection could be made: the API server never saw the request."""

    outcome_known = True


class BusyError(UnavailableError):
    """A 5xx that says when to come back; ``retry_after`` is in seconds."""

    def __init__(self, message: str, *, status: int, reason: str, retry_after: float) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class FencedError(KubeError):
    """This process may not write: the Lease is not held, or not for long enough (I9). Nothing was sent."""


class _Status(msgspec.Struct, rename="camel"):
    message: str = ""
    reason: str = ""
    code: int = 0


_LONGEST_WAIT: Final = 86_400.0

_BY_CODE: Mapping[int, type[KubeError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    405: InvalidError,
    406: InvalidError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
}


def error_of_answer(code: int, headers: Mapping[str, str], body: bytes) -> KubeError:
    """Return the error for an answer that is not a success."""
    status = _read_status(body)
    message = status.message or f"HTTP {code}: {body[:200].decode(errors='replace')}"
    if code == 429:
        return ThrottledError(message, reason=status.reason, retry_after=_retry_after(headers, default=1.0))
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExistsError(message, status=code, reason=status.reason)
    kind = _BY_CODE.get(code)
    if kind is not None:
        return kind(message, status=code, reason=status.reason)
    if "Retry-After" in headers:
        wait = _retry_after(headers, default=1.0)
        return BusyError(message, status=code, reason=status.reason, retry_after=wait)
    return UnavailableError(message, status=code, reason=status.reason)


def error_of_status(body: bytes) -> KubeError:
    """Return the error that an ``ERROR`` event of a watch carries."""
    return error_of_answer(_read_status(body).code or 500, {}, body)


def error_of_transport(error: Exception) -> KubeError:
    """Return the error for a request that got no answer; it tells whether the request can have been seen."""
    text = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return UnsentError(text)
    if isinstance(error, asyncio.TimeoutError):
        return UnavailableError("the API server did not answer in time")
    return UnavailableError(text)


def retry_after(error: BaseException | None) -> float:
    """Return how long the API server asked to wait, in seconds; 0 when it did not say."""
    return error.retry_after if isinstance(error, ThrottledError | BusyError) else 0.0


def _read_status(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        return _Status()


def _retry_after(headers: Mapping[str, str], *, default: float) -> float:
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_WAIT)
    try:
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        # A year or an offset that no clock has is an OverflowError.
        return default
    return min(max(0.0, seconds), _LONGEST_WAIT)
