"""Something comes between any two steps of a hibernation or a wake: an edit, a new process, a call that breaks (design 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from cocoon_operator.api import keys
from tests.model.judged import JudgedWorld
from tests.unit.reconcile.holders import ends, gone, phase, solo, wants
from tests.unit.reconcile.staging import (
    annotations_of,
    hibernation,
    judged_rest,
    look,
    rest,
    restless,
    roles_up,
)

pytestmark = pytest.mark.asyncio

PODS = pytest.mark.parametrize("pod", ["demo-0", "demo-1", "solo"])
"""A main agent, a sub-agent, and a pod of no set."""
LIMIT = 60
"""More small steps than any transition has."""


async def ready_made(pod: str) -> JudgedWorld:
    """A set that runs, with work in every VM it needs for this; or a pod of no set."""
    world = JudgedWorld()
    if pod == "solo":
        await solo(world, memory="work of vk-ns-solo")
    else:
        await roles_up(world, 1 if pod == "demo-1" else 0)
    look(world)
    return world


async def begun(pod: str, transition: str) -> JudgedWorld:
    """A hibernation or a wake that somebody has just asked for, and of which nobody knows yet."""
    world = await ready_made(pod)
    hibernation(world, pod)
    if transition == "wake":
        await rest(world)
        assert phase(world, pod) == "Hibernated"
        wants(world, "Wake", pod)
    return world


def has_work(world: JudgedWorld, pod: str) -> bool:
    """Whether the VM runs with all that was done in it."""
    return f"work of vk-ns-{pod}" in (world.memory(f"vk-ns-{pod}") or [])


def is_saved(world: JudgedWorld, pod: str) -> bool:
    """Whether the VM sleeps, and its tag has all that was done in it."""
    content = world.registry.content(f"vk-ns-{pod}", "hibernate")
    asleep = world.memory(f"vk-ns-{pod}") is None and content is not None
    return asleep and f"work of vk-ns-{pod}" in content["memory"]  # type: ignore[index]


def nothing_is_left(world: JudgedWorld, pod: str) -> bool:
    """Whether no tag lies behind a living VM, and the set, if there is one, runs and knows that."""
    kept = [repo for repo, tag in world.registry.tags if tag == "hibernate"]
    if pod == "solo":
        return kept == []
    return kept == [] and (world.phase, world.condition("SnapshotCurrent")["reason"]) == ("Running", "NoSnapshot")


async def at_every_step(
    pod: str, transition: str, intervene: Callable[[JudgedWorld], Awaitable[None]]
) -> list[JudgedWorld]:
    """The transition once for each number of small steps, with something that comes after so many of them; each at its end."""
    worlds = []
    for steps in range(LIMIT):
        world = await begun(pod, transition)
        over = await restless(world, steps)
        await intervene(world)
        await judged_rest(world)
        worlds.append(world)
        if over:
            return worlds
    raise AssertionError("the transition does not end")


# -- somebody changes their mind ---------------------------------------------------------------------------------------


@PODS
async def test_a_hibernation_that_is_taken_back(pod: str) -> None:
    async def intervene(world: JudgedWorld) -> None:
        wants(world, "Wake", pod)

    worlds = await at_every_step(pod, "hibernate", intervene)
    assert len(worlds) > 8
    for steps, world in enumerate(worlds):
        assert (phase(world, pod), has_work(world, pod), nothing_is_left(world, pod)) == ("Active", True, True), steps


@PODS
async def test_a_wake_that_is_taken_back(pod: str) -> None:
    async def intervene(world: JudgedWorld) -> None:
        wants(world, "Hibernate", pod)

    worlds = await at_every_step(pod, "wake", intervene)
    assert len(worlds) > 8
    for steps, world in enumerate(worlds):
        assert (phase(world, pod), is_saved(world, pod)) == ("Hibernated", True), steps


@PODS
@pytest.mark.parametrize("transition", ["hibernate", "wake"])
async def test_it_is_deleted(pod: str, transition: str) -> None:
    async def intervene(world: JudgedWorld) -> None:
        ends(world, pod)

    for steps, world in enumerate(await at_every_step(pod, transition, intervene)):
        assert (gone(world, pod), has_work(world, pod), nothing_is_left(world, pod)) == (True, True, True), steps
        assert keys.HIBERNATE not in annotations_of(world, pod), steps


@pytest.mark.parametrize("pod", ["demo-0", "demo-1"])
@pytest.mark.parametrize("transition", ["hibernate", "wake"])
async def test_its_set_is_suspended_and_resumed(pod: str, transition: str) -> None:
    async def intervene(world: JudgedWorld) -> None:
        world.edit(suspend=True)
        await judged_rest(world)
        assert world.phase == "Suspended"
        assert is_saved(world, pod)
        world.edit(suspend=False)

    for steps, world in enumerate(await at_every_step(pod, transition, intervene)):
        if transition == "wake":
            assert (phase(world, pod), has_work(world, pod), nothing_is_left(world, pod)) == ("Active", True, True), (
                steps
            )
        else:
            assert (phase(world, pod), is_saved(world, pod)) == ("Hibernated", True), steps


@PODS
async def test_another_one_takes_over(pod: str) -> None:
    """The older one is deleted at any moment; the younger one wants the same, and gets it without a wake in between."""

    async def intervene(world: JudgedWorld) -> None:
        world.clock.advance(1)
        hibernation(world, "younger", pod=pod)
        ends(world, pod)

    for steps, world in enumerate(await at_every_step(pod, "hibernate", intervene)):
        assert gone(world, pod), steps
        assert (phase(world, "younger"), is_saved(world, pod)) == ("Hibernated", True), steps
        assert not [line for line in world.agent.history if line.startswith(f"restored vk-ns-{pod}")], steps


# -- the operator, and its calls ---------------------------------------------------------------------------------------


@PODS
@pytest.mark.parametrize("transition", ["hibernate", "wake"])
async def test_another_process_goes_on(pod: str, transition: str) -> None:
    async def intervene(world: JudgedWorld) -> None:
        world.start_operator()

    for steps, world in enumerate(await at_every_step(pod, transition, intervene)):
        if transition == "wake":
            assert (phase(world, pod), has_work(world, pod), nothing_is_left(world, pod)) == ("Active", True, True), (
                steps
            )
        else:
            assert (phase(world, pod), is_saved(world, pod)) == ("Hibernated", True), steps
        told = [reason for who, _, reason, _ in world.recorder.events if who == pod]
        assert told == (["Hibernated", "WokenActive"] if transition == "wake" else ["Hibernated"]), steps


@PODS
@pytest.mark.parametrize("transition", ["hibernate", "wake"])
@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost before", "lost after"])
async def test_a_call_that_breaks_loses_nothing(pod: str, transition: str, kind: str) -> None:
    """At each call of the transition in turn; a lost answer may mean either."""
    for call in range(1, LIMIT):
        world = await begun(pod, transition)
        world.calls, world.fault = 0, (call, kind)
        for _ in range(9):
            world.observe()
            await world.one_run()
            for _ in range(2):
                world.agent.step("ns", pod)
            look(world)
            world.clock.advance(1)
        broke, world.fault = world.fault is None, None
        await judged_rest(world)
        if transition == "wake":
            assert (phase(world, pod), has_work(world, pod), nothing_is_left(world, pod)) == ("Active", True, True), (
                call
            )
        else:
            assert (phase(world, pod), is_saved(world, pod)) == ("Hibernated", True), call
        if not broke and world.calls < call:
            return
    raise AssertionError("the transition has no end of calls")
