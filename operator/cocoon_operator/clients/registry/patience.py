"""How long and how often the registry is asked (contract 8.4, W-39)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_before_delay

from cocoon_operator.clients.registry.failures import NoAnswerError, RegistryError

T = TypeVar("T")

TRANSIENT_STATUSES: Final = frozenset({408, 429, 499, 500, 502, 503, 504, 522})


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of one question; all times in seconds.

    ``total`` bounds the whole question: handshake, token, every try and every pause. ``attempt`` bounds one HTTP request.
    Between tries it waits ``first_wait``, then twice as long and so on up to ``longest_wait``, each shortened by up to
    half at random; a ``Retry-After`` of the server is obeyed exactly, and ends the question when it does not fit ``total``.
    """

    total: float = 10.0
    attempt: float = 4.0
    tries: int = 3
    first_wait: float = 0.5
    longest_wait: float = 3.0

    async def persist(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer or patience is used up; then raise the last :class:`RegistryError`."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(_is_transient),
            stop=stop_after_attempt(self.tries) | stop_before_delay(self.total),
            wait=self._pause,
            reraise=True,
        )

        async def ask() -> T:  # tenacity awaits only what is written as ``async def``
            return await question()

        return await self.within_total(retrying(ask))

    async def within_total(self, work: Awaitable[T]) -> T:
        """Do work that is not repeated, bounded by ``total``; raise :class:`NoAnswerError` when it takes longer."""
        try:
            async with asyncio.timeout(self.total):
                return await work
        except TimeoutError:
            raise NoAnswerError(f"the registry gave no answer within {self.total:g} s", "timeout") from None

    def _pause(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, RegistryError) and error.retry_after is not None:
            return error.retry_after
        longest = min(self.longest_wait, self.first_wait * 2.0 ** (state.attempt_number - 1))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, RegistryError) and error.transient


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that ``Retry-After`` asks for (RFC 9110, 10.2.3: seconds or a date); None if it asks nothing."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
    except (ValueError, OverflowError):
        # A year or an offset that no clock has is an OverflowError.
        return None
