"""How often and how long a question is asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tenacity import AsyncRetrying, RetryCallState

from cocoon_operator.clients.registry.failures import NoAnswerError, RegistryError
from cocoon_operator.clients.registry.patience import Patience, parse_retry_after

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
SHORT = Patience(total=5, attempt=1, tries=3, first_wait=0.01, longest_wait=0.02)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("0", 0.0),
        (" 7 ", 7.0),
        ("9" * 400, 999_999_999.0),
        ("Tue, 01 Jan 2030 12:00:30 GMT", 30.0),
        ("Tue, 01 Jan 2030 11:00:00 GMT", 0.0),
        ("Tue, 01 Jan 2030 12:00:30 -0000", 30.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(("failures", "asked"), [(0, 1), (1, 2), (2, 3), (3, 3)])
@pytest.mark.asyncio
async def test_a_passing_failure_is_asked_again_up_to_three_times(failures: int, asked: int) -> None:
    calls = 0

    async def question() -> str:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise RegistryError("busy", transient=True)
        return "yes"

    if failures < SHORT.tries:
        assert await SHORT.persist(question) == "yes"
    else:
        with pytest.raises(RegistryError, match="busy"):
            await SHORT.persist(question)
    assert calls == asked


@pytest.mark.asyncio
async def test_a_lasting_failure_is_asked_once() -> None:
    calls = 0

    async def question() -> None:
        nonlocal calls
        calls += 1
        raise RegistryError("no")

    with pytest.raises(RegistryError, match="no"):
        await SHORT.persist(question)
    assert calls == 1


@pytest.mark.asyncio
async def test_a_wait_that_does_not_fit_the_budget_ends_the_question_at_once() -> None:
    calls = 0

    async def question() -> None:
        nonlocal calls
        calls += 1
        raise RegistryError("come back tomorrow", transient=True, retry_after=3600)

    with pytest.raises(RegistryError, match="tomorrow"):
        await SHORT.persist(question)
    assert calls == 1


@pytest.mark.asyncio
async def test_a_question_without_end_is_ended() -> None:
    async def question() -> None:
        raise NoAnswerError("hangs", "timeout")

    endless = Patience(total=0.2, attempt=0.1, tries=10_000, first_wait=0.05, longest_wait=0.05)
    with pytest.raises(RegistryError, match=r"hangs|gave no answer within 0\.2 s"):
        await endless.persist(question)


@pytest.mark.parametrize(
    ("error", "attempt", "least", "most"),
    [
        (RegistryError("busy", transient=True, retry_after=2.0), 1, 2.0, 2.0),
        (RegistryError("busy", transient=True, retry_after=0.0), 2, 0.0, 0.0),
        (RegistryError("busy", transient=True), 1, 0.25, 0.5),
        (RegistryError("busy", transient=True), 2, 0.5, 1.0),
        (RegistryError("busy", transient=True), 9, 1.5, 3.0),
    ],
)
def test_pauses_grow_with_jitter_and_retry_after_is_obeyed_exactly(
    error: RegistryError, attempt: int, least: float, most: float
) -> None:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempt
    state.set_exception((RegistryError, error, None))
    pauses = [Patience()._pause(state) for _ in range(50)]
    assert least <= min(pauses)
    assert max(pauses) <= most
    assert least == most or len(set(pauses)) > 1
