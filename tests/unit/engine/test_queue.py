"""At most one run of a key at a time, and as few as possible."""

from __future__ import annotations

import asyncio

import pytest

from cocoon_operator.engine.queue import Backoff, WorkQueue
from cocoon_operator.engine.store import Key

A, B = Key("ns", "a"), Key("ns", "b")
SOON = 0.02


async def nothing(queue: WorkQueue) -> bool:
    """Whether no key comes for a while."""
    try:
        async with asyncio.timeout(3 * SOON):
            key = await queue.get()
    except TimeoutError:
        return True
    queue.done(key)
    return False


@pytest.mark.asyncio
async def test_a_key_that_waits_is_one_run_however_often_it_is_asked_for() -> None:
    queue = WorkQueue()
    for _ in range(5):
        queue.add(A)
    assert len(queue) == 1
    queue.done(await queue.get())
    assert await nothing(queue)


@pytest.mark.asyncio
async def test_a_key_that_runs_is_not_given_out_again_but_runs_once_more() -> None:
    queue = WorkQueue()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert await nothing(queue)
    queue.done(A)
    assert await queue.get() == A
    queue.done(A)
    assert await nothing(queue)


@pytest.mark.asyncio
async def test_a_busy_key_does_not_starve_another() -> None:
    queue = WorkQueue()
    queue.add(A)
    queue.add(B)
    assert await queue.get() == A
    queue.add(A)
    queue.done(A)
    assert [await queue.get(), await queue.get()] == [B, A]


@pytest.mark.asyncio
async def test_a_key_comes_back_after_its_time_and_an_event_comes_first() -> None:
    queue = WorkQueue()
    queue.add(A)
    queue.done(await queue.get(), requeue_after=SOON)
    assert await queue.get() == A
    queue.done(A, requeue_after=60)
    queue.add(A)
    assert await queue.get() == A
    queue.done(A)
    assert await nothing(queue)


@pytest.mark.asyncio
async def test_a_run_replaces_the_timer_of_the_one_before() -> None:
    queue = WorkQueue()
    queue.add_after(A, SOON)
    queue.add(A)
    queue.done(await queue.get())
    assert await nothing(queue)


@pytest.mark.asyncio
async def test_the_earlier_of_two_timers_counts() -> None:
    queue = WorkQueue()
    queue.add_after(A, 60)
    queue.add_after(A, SOON)
    queue.add_after(A, 60)
    assert await queue.get() == A


@pytest.mark.asyncio
async def test_failures_wait_longer_each_time_until_a_success() -> None:
    queue = WorkQueue(backoff=Backoff(first=100, longest=1000, jitter=0))
    loop = asyncio.get_running_loop()
    waits = []
    for failed in (True, True, True, True, True, False, True):
        queue.add(A)
        queue.done(await queue.get(), failed=failed)
        timer = queue._timers.get(A)
        waits.append(round(timer.when() - loop.time()) if timer is not None else None)
    queue.close()
    assert waits == [100, 200, 400, 800, 1000, None, 100]


@pytest.mark.asyncio
async def test_a_failure_with_a_deadline_runs_at_the_earlier_of_both() -> None:
    queue = WorkQueue(backoff=Backoff(first=60))
    queue.add(A)
    queue.done(await queue.get(), failed=True, requeue_after=SOON)
    assert await queue.get() == A


def test_jitter_only_shortens_and_large_counts_do_not_overflow() -> None:
    backoff = Backoff(first=1, longest=300, jitter=0.25)
    assert backoff.delay(1, lambda: 1.0) == 0.75
    assert backoff.delay(10_000, lambda: 0.0) == 300


@pytest.mark.asyncio
async def test_a_forgotten_key_leaves_no_timer_and_no_failures() -> None:
    queue = WorkQueue(backoff=Backoff(first=SOON))
    queue.add(A)
    queue.done(await queue.get(), failed=True)
    queue.forget(A)
    assert await nothing(queue)
    assert not queue._failures


@pytest.mark.asyncio
async def test_a_closed_queue_takes_and_gives_nothing_but_lets_runs_end() -> None:
    queue = WorkQueue()
    queue.add(A)
    queue.add(B)
    await queue.get()
    queue.add_after(B, SOON)
    queue.close()
    queue.add(A)
    queue.done(A, requeue_after=SOON)
    await queue.still()
    assert len(queue) == 0
    assert await nothing(queue)
