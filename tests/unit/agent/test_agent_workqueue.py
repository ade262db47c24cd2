"""The queue of keys: one worker a key, back-off, twenty attempts (R1.15)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cocoon_devkit.agent.settings import Windows
from cocoon_devkit.agent.workqueue import MAX_ATTEMPTS, RetryForeverError, WorkQueue

AT_ONCE = Windows(queue_base=0.0)


async def run(handler: Callable[[str], Awaitable[None]], *keys: str, seconds: float = 0.1) -> None:
    """Work on keys for a moment."""
    queue = WorkQueue(handler, 4, AT_ONCE)
    for key in keys:
        queue.add(key)
    queue.start()
    await asyncio.sleep(seconds)
    await queue.stop()


@pytest.mark.asyncio
@pytest.mark.scenario("N114")
async def test_a_key_is_worked_on_by_one_worker_and_again_after_news() -> None:
    active: dict[str, int] = {}
    done: list[str] = []
    queue: WorkQueue

    async def work(key: str) -> None:
        active[key] = active.get(key, 0) + 1
        assert active[key] == 1
        if done.count(key) == 0:
            queue.add(key)
            queue.add(key)
        await asyncio.sleep(0.01)
        active[key] -= 1
        done.append(key)

    queue = WorkQueue(work, 4, AT_ONCE)
    queue.add("a")
    queue.add("a")
    queue.add("b")
    queue.start()
    await asyncio.sleep(0.1)
    await queue.stop()
    assert sorted(done) == ["a", "a", "b", "b"]


@pytest.mark.asyncio
@pytest.mark.scenario("N027")
async def test_a_key_that_fails_is_tried_twenty_times_more() -> None:
    attempts: list[str] = []

    async def fail(key: str) -> None:
        attempts.append(key)
        raise ValueError

    await run(fail, "a")
    assert len(attempts) == MAX_ATTEMPTS + 1


@pytest.mark.asyncio
@pytest.mark.scenario("N165", "N170")
async def test_a_delete_that_kept_its_vm_is_tried_for_ever() -> None:
    attempts: list[str] = []

    async def fail(key: str) -> None:
        attempts.append(key)
        if len(attempts) < 3 * MAX_ATTEMPTS:
            raise RetryForeverError

    await run(fail, "a")
    assert len(attempts) == 3 * MAX_ATTEMPTS


@pytest.mark.asyncio
@pytest.mark.scenario("N016")
async def test_a_forgotten_key_is_not_tried_again() -> None:
    attempts: list[str] = []
    queue: WorkQueue

    async def fail(key: str) -> None:
        attempts.append(key)
        raise ValueError

    queue = WorkQueue(fail, 1, Windows(queue_base=0.05))
    queue.add("a")
    queue.start()
    await asyncio.sleep(0.02)
    queue.forget("a")
    await asyncio.sleep(0.1)
    await queue.stop()
    assert attempts == ["a"]


@pytest.mark.asyncio
@pytest.mark.scenario("N161")
async def test_the_earlier_of_two_delays_counts() -> None:
    attempts: list[str] = []

    async def work(key: str) -> None:
        attempts.append(key)

    queue = WorkQueue(work, 1, AT_ONCE)
    queue.start()
    queue.add_later("a", 60)
    queue.add_later("a", 0.01)
    queue.add_later("a", 60)
    await asyncio.sleep(0.1)
    await queue.stop()
    assert attempts == ["a"]
