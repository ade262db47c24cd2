"""Workers run keys side by side, never one twice at once, and outlive every mistake of a pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cocoon_operator.api.errors import UnavailableError
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.controller import Controller
from cocoon_operator.engine.queue import Backoff, WorkQueue
from cocoon_operator.engine.store import Key
from cocoon_operator.reconcile.objects import set_from_object
from cocoon_operator.reconcile.view import Outcome, View
from tests.unit.kubernetes.waiting import until


class Script:
    """A reconciler and a settler that do what a test says, and remember what they were asked."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self.forgotten: list[Key] = []
        self.on_pass: Callable[[View], Awaitable[Outcome]] | None = None
        self.on_settle: Callable[[Key], None] | None = None

    async def reconcile(self, view: View) -> Outcome:
        self.views.append(view)
        return await self.on_pass(view) if self.on_pass is not None else Outcome()

    def forget(self, namespace: str, name: str) -> None:
        self.forgotten.append(Key(namespace, name))

    async def settle(self, key: Key) -> None:
        if self.on_settle is not None:
            self.on_settle(key)


class Bench:
    """A controller over an empty cluster."""

    def __init__(self, workers: int = 2) -> None:
        self.script = Script()
        self.results: list[str] = []
        self.queue = WorkQueue(backoff=Backoff(first=0.01, longest=0.05))
        self.cache = Cache(self.queue.add)
        self.controller = Controller(
            "cocoonset",
            cache=self.cache,
            queue=self.queue,
            world=self.script,
            reconciler=self.script,
            clock=SystemClock(),
            workers=workers,
            observe=lambda result, _: self.results.append(result),
        )

    def create_set(self, name: str) -> Key:
        metadata = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": str(100 + len(self.cache.sets))}
        self.cache.see_set(set_from_object({"metadata": metadata, "spec": {}}))
        return Key("ns", name)

    async def run(self, happened: Callable[[], bool]) -> None:
        self.controller.start()
        await until(happened)
        assert await self.controller.drain(1.0)


@pytest.mark.parametrize("workers", [0, -1])
@pytest.mark.scenario("S310")
def test_a_controller_without_workers_is_refused(workers: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1, got {workers}"):
        Bench(workers)


@pytest.mark.asyncio
async def test_a_pass_sees_the_set_and_its_result_is_told() -> None:
    bench = Bench()
    bench.create_set("a")
    await bench.run(lambda: bench.results == ["success"])
    (view,) = bench.script.views
    assert view.set is not None
    assert view.set.name == "a"
    assert bench.script.forgotten == []


@pytest.mark.asyncio
async def test_w39_a_set_that_hangs_delays_no_other() -> None:
    bench = Bench(workers=2)
    never = asyncio.Event()

    async def hang(view: View) -> Outcome:
        assert view.set is not None
        if view.set.name == "a":
            await never.wait()
        return Outcome()

    bench.script.on_pass = hang
    for name in ("a", "b", "c", "d"):
        bench.create_set(name)
    bench.controller.start()
    await until(lambda: len(bench.results) == 3)
    never.set()
    await until(lambda: len(bench.results) == 4)
    await bench.controller.cancel()


@pytest.mark.asyncio
async def test_one_set_is_never_run_twice_at_once() -> None:
    bench = Bench(workers=4)
    running: list[int] = [0]
    most: list[int] = [0]

    async def slow(view: View) -> Outcome:
        running[0] += 1
        most[0] = max(most[0], running[0])
        bench.queue.add(Key("ns", "a"))
        await asyncio.sleep(0.01)
        running[0] -= 1
        return Outcome()

    bench.script.on_pass = slow
    bench.create_set("a")
    await bench.run(lambda: len(bench.results) >= 4)
    assert most == [1]


@pytest.mark.asyncio
async def test_an_error_that_is_raised_or_returned_runs_again_with_back_off() -> None:
    bench = Bench()
    endings: list[Any] = [ValueError("a mistake"), UnavailableError("down"), Outcome(error=UnavailableError("down"))]

    async def fail(_: View) -> Outcome:
        ending = endings.pop(0) if endings else Outcome()
        if isinstance(ending, Exception):
            raise ending
        assert isinstance(ending, Outcome)
        return ending

    bench.script.on_pass = fail
    bench.create_set("a")
    await bench.run(lambda: bench.results == ["error", "error", "error", "success"])


@pytest.mark.asyncio
async def test_no_pass_runs_on_a_view_that_is_in_doubt() -> None:
    bench = Bench()
    doubts = [True, True]

    def settle(_: Key) -> None:
        if doubts:
            doubts.pop()
            raise UnavailableError("cannot look")

    bench.script.on_settle = settle
    bench.create_set("a")
    await bench.run(lambda: bench.results == ["error", "error", "success"])
    assert len(bench.script.views) == 1


@pytest.mark.asyncio
async def test_outcomes_set_the_next_run() -> None:
    bench = Bench()
    outcomes = [Outcome(requeue_after=0.01), Outcome()]

    async def next_outcome(_: View) -> Outcome:
        return outcomes.pop(0)

    bench.script.on_pass = next_outcome
    bench.create_set("a")
    await bench.run(lambda: bench.results == ["requeue_after", "success"])


@pytest.mark.asyncio
async def test_a_set_that_is_gone_is_seen_as_gone_and_forgotten() -> None:
    bench = Bench()
    key = bench.create_set("a")
    await bench.run(lambda: bench.results == ["success"])
    bench = Bench()
    bench.queue.add(key)
    await bench.run(lambda: bench.results == ["success"])
    assert bench.script.views[0].set is None
    assert bench.script.forgotten == [key]


@pytest.mark.asyncio
async def test_draining_lets_a_pass_end_and_starts_no_other() -> None:
    bench = Bench(workers=1)
    ended: list[str] = []

    async def slow(view: View) -> Outcome:
        assert view.set is not None
        await asyncio.sleep(0.05)
        ended.append(view.set.name)
        return Outcome()

    bench.script.on_pass = slow
    bench.create_set("a")
    bench.create_set("b")
    bench.controller.start()
    await until(lambda: len(bench.script.views) == 1)
    assert await bench.controller.drain(1.0)
    assert ended == ["a"]


@pytest.mark.asyncio
async def test_a_pass_that_does_not_end_is_cancelled_in_the_end() -> None:
    bench = Bench(workers=1)

    async def hang(_: View) -> Outcome:
        await asyncio.sleep(30)
        return Outcome()

    bench.script.on_pass = hang
    bench.create_set("a")
    bench.controller.start()
    await until(lambda: len(bench.script.views) == 1)
    assert not await bench.controller.drain(0.05)
    assert not bench.queue.running


@pytest.mark.asyncio
async def test_i9_a_pass_that_takes_the_end_for_a_time_out_ends_all_the_same() -> None:
    """Requests end with the Lease, in the moment in which the workers are cancelled."""
    bench = Bench()

    async def deaf(_: View) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise UnavailableError("the API server did not answer in time") from None
        raise AssertionError("nothing ever sets the event")

    bench.script.on_pass = deaf
    bench.create_set("demo")
    bench.controller.start()
    await until(lambda: bool(bench.queue.running))
    async with asyncio.timeout(3):
        await bench.controller.cancel()
    assert bench.results == ["error"]
    assert bench.queue.running == frozenset()
