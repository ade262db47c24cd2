"""A task ends when it has to, also one that took the request to cancel for something else."""

from __future__ import annotations

import asyncio

import pytest

from cocoon_operator.engine import ending


class Stubborn:
    """Takes the first few requests to cancel for time-outs, as aiohttp does when both come in one moment."""

    def __init__(self, deaf: int) -> None:
        self.asked = 0
        self._deaf = deaf

    async def run(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.asked += 1
                if self.asked > self._deaf:
                    raise


async def _fail() -> None:
    raise RuntimeError("on purpose")


@pytest.mark.asyncio
@pytest.mark.parametrize("deaf", [0, 1, 3])
async def test_a_task_that_misses_the_request_is_asked_again(monkeypatch: pytest.MonkeyPatch, deaf: int) -> None:
    monkeypatch.setattr(ending, "_ASK_AGAIN", 0.01)
    stubborn = Stubborn(deaf)
    task = asyncio.create_task(stubborn.run())
    await asyncio.sleep(0)
    await ending.end([task])
    assert task.cancelled()
    assert stubborn.asked == deaf + 1


@pytest.mark.asyncio
async def test_a_task_that_never_ends_is_given_up_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ending, "_ASK_AGAIN", 0.001)
    stubborn = Stubborn(1000)
    task = asyncio.create_task(stubborn.run(), name="deaf")
    await asyncio.sleep(0)
    await ending.end([task])
    assert not task.done()
    assert "deaf" in capsys.readouterr().out
    stubborn._deaf = 0
    await ending.end([task])


@pytest.mark.asyncio
async def test_results_do_not_matter() -> None:
    tasks = [asyncio.create_task(_fail()), asyncio.create_task(asyncio.sleep(0))]
    await asyncio.sleep(0)
    await ending.end(tasks)
    assert all(task.done() for task in tasks)
    await ending.end([])
