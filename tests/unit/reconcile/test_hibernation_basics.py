"""What a CocoonHibernation says of itself, whatever it asks for: finalizer, condition, missing pods (contract 5.2)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cocoon_operator.api import conditions, keys
from cocoon_operator.api.answers import Absent, Done, Present, Unknown
from cocoon_operator.api.errors import ConflictError, UnavailableError
from cocoon_operator.api.hibernation import hibernation_from_object
from cocoon_operator.reconcile.hibernation.machine import Limits, Verdict
from cocoon_operator.reconcile.hibernation.report import status_of, tell
from tests.model.registry import ModelRegistry
from tests.model.world import ModelMeasures, ModelRecorder, World
from tests.unit.reconcile.holders import (
    held,
    phase,
    ready,
    says,
    since,
    solo,
    solo_held,
    stored,
    told,
    wants,
)
from tests.unit.reconcile.staging import (
    VM,
    annotations_of,
    bodies,
    heal,
    hibernation,
    refuse,
    rest,
    roles_up,
    up,
)

# -- finalizer ---------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S262")
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
async def test_the_finalizer_is_the_first_write_and_stands_before_those_of_others(world: World, pod: str) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod)
    world.api.patch("hibernation", "ns", pod, {"metadata": {"finalizers": ["x/y"]}}, by="user")
    mark = world.mark
    await world.run()
    assert world.writes(mark)[0] == f"patch hibernation/{pod}"
    (body,) = bodies(world, mark, f"patch hibernation/{pod}")
    assert body == {"metadata": {"finalizers": [keys.HIBERNATION_FINALIZER, "x/y"]}}


@pytest.mark.asyncio
@pytest.mark.scenario("S262")
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
@pytest.mark.parametrize("error", [UnavailableError("down"), ConflictError("changed")])
async def test_no_flag_is_set_before_the_finalizer_stands(world: World, pod: str, error: Any) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod)
    refuse(world, f"patch hibernation/{pod}", error)
    outcome = await world.run()
    assert outcome.error is error
    assert keys.HIBERNATE not in annotations_of(world, pod)
    heal(world)
    await rest(world)
    assert phase(world, pod) == "Hibernated"


# -- condition and generation ------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S263")
@pytest.mark.parametrize(
    ("phase_", "status", "reason", "message"),
    [
        ("Hibernated", "True", "Done", "Hibernated"),
        ("Active", "True", "Done", "Active"),
        ("Hibernating", "False", "Pending", "Hibernating"),
        ("Waking", "False", "Pending", "Waking"),
        ("Pending", "False", "Pending", "pod ns/demo-0 not yet present"),
        ("Failed", "False", "Failed", "spec.podRef.name is required"),
    ],
)
async def test_every_phase_has_its_condition(phase_: str, status: str, reason: str, message: str) -> None:
    target = hibernation_from_object({"metadata": {"generation": 7}})
    now = World().clock.now()
    why = message if phase_ in ("Pending", "Failed") else ""
    patch = status_of(target, Verdict(phase_), vm_name="", why=why, limits=Limits(), now=now)
    assert patch == {
        "observedGeneration": 7,
        "phase": phase_,
        "conditions": [
            {
                "type": "Ready",
                "status": status,
                "reason": reason,
                "message": message,
                "observedGeneration": 7,
                "lastTransitionTime": conditions.timestamp(now),
            }
        ],
    }


@pytest.mark.asyncio
@pytest.mark.scenario("S268")
async def test_a_newer_generation_is_written_though_the_phase_is_the_same(world: World) -> None:
    await roles_up(world, 1)
    hibernation(world, "demo-1")
    hibernation(world, "demo-7")
    await world.run()
    for name, desire in (("demo-1", "Wake"), ("demo-7", "Wake")):
        before, clock = phase(world, name), since(world, name)
        world.clock.advance(5)
        wants(world, desire, name)
        mark = world.mark
        await world.run()
        assert (phase(world, name), since(world, name)) == (before, clock)
        assert world.writes(mark) == [f"patch/status hibernation/{name}"]
        status = stored(world, name)["status"]
        assert (status["observedGeneration"], status["conditions"][0]["observedGeneration"]) == (2, 2)


@pytest.mark.asyncio
@pytest.mark.scenario("S269")
async def test_what_is_said_already_is_not_written_again(world: World) -> None:
    await up(world)
    for name in ("demo-7", "other"):
        hibernation(world, name)
    await rest(world)
    assert [phase(world, name) for name in ("demo-7", "other")] == ["Pending", "Pending"]
    mark = world.mark
    for _ in range(3):
        world.clock.advance(60)
        await world.run()
    assert world.writes(mark) == []


@pytest.mark.asyncio
async def test_conditions_of_others_are_kept(world: World) -> None:
    await up(world)
    hibernation(world)
    foreign = {"type": "Audited", "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    says(world, {"conditions": [foreign]})
    await rest(world)
    assert [entry["type"] for entry in stored(world)["status"]["conditions"]] == ["Audited", "Ready"]
    assert stored(world)["status"]["conditions"][0] == foreign


# -- pods that are not there -------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S264")
@pytest.mark.parametrize("pod", ["demo-1", "solo"])
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
async def test_without_its_pod_it_is_pending(world: World, pod: str, desire: str) -> None:
    await up(world)
    hibernation(world, pod, desire=desire)
    await world.run()
    assert phase(world, pod) == "Pending"
    assert ready(world, pod) == ("False", "Pending", f"pod ns/{pod} not yet present")
    assert "vmName" not in stored(world, pod)["status"]
    # A set hears of its pods; one of no set is looked at from time to time, should it not be followed.
    assert world.outcome.requeue_after == (30.0 if pod == "solo" else None)


@pytest.mark.asyncio
@pytest.mark.scenario("S265")
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
@pytest.mark.parametrize("desire", ["Hibernate", "Wake"])
async def test_without_a_vm_name_on_its_pod_it_is_pending(world: World, pod: str, desire: str) -> None:
    await up(world)
    await solo(world)
    world.api.patch("pod", "ns", pod, {"metadata": {"annotations": {keys.VM_NAME: None}}}, by="user")
    hibernation(world, pod, desire=desire)
    await world.run()
    assert ready(world, pod) == ("False", "Pending", f"pod ns/{pod} has no vm.cocoonstack.io/name annotation yet")
    assert keys.HIBERNATE not in annotations_of(world, pod)


@pytest.mark.asyncio
@pytest.mark.scenario("S266")
@pytest.mark.parametrize(
    ("pod", "desire", "before", "how"),
    [
        ("demo-0", "Hibernate", "Hibernated", "no pod"),
        ("demo-0", "Hibernate", "Hibernated", "no VM name"),
        ("demo-0", "Wake", "Hibernated", "no VM name"),
        ("demo-0", "Wake", "Waking", "no VM name"),
        ("solo", "Hibernate", "Hibernated", "no pod"),
        ("solo", "Hibernate", "Hibernated", "no VM name"),
        ("solo", "Wake", "Hibernated", "no pod"),
        ("solo", "Wake", "Waking", "no pod"),
        ("solo", "Wake", "Waking", "no VM name"),
    ],
)
async def test_the_phases_that_keep_a_vm_are_kept_without_a_pod(
    world: World, pod: str, desire: str, before: str, how: str
) -> None:
    """One that shall wake is made again by its set at once, from its tag."""
    await (held(world) if pod == "demo-0" else solo_held(world))
    if desire == "Wake":
        wants(world, "Wake", pod)
    says(world, {"phase": before}, pod)
    if how == "no pod":
        world.delete_pod(pod)
    else:
        world.api.patch("pod", "ns", pod, {"metadata": {"annotations": {keys.VM_NAME: None}}}, by="user")
    await world.run()
    assert phase(world, pod) == before
    assert world.tag(f"vk-ns-{pod}") is not None


@pytest.mark.asyncio
@pytest.mark.scenario("S267")
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
async def test_a_pod_that_goes_in_the_middle_of_its_save_is_waited_for(world: World, pod: str) -> None:
    await (up(world) if pod == "demo-0" else solo(world))
    hibernation(world, pod)
    await world.run()
    assert phase(world, pod) == "Hibernating"
    world.delete_pod(pod)
    await world.run()
    assert phase(world, pod) == "Pending"
    assert ready(world, pod)[2] == f"pod ns/{pod} not yet present"


@pytest.mark.asyncio
@pytest.mark.scenario("S267")
async def test_one_whose_save_is_on_record_is_hibernated_without_a_pod(world: World) -> None:
    await held(world)
    says(world, {"phase": "Hibernating"})
    world.delete_pod("demo-0")
    await rest(world)
    assert phase(world) == "Hibernated"
    assert world.pod() is None


@pytest.mark.asyncio
@pytest.mark.scenario("S271")
@pytest.mark.parametrize("pod", ["demo-1", "solo"])
async def test_a_pod_that_comes_later_is_put_to_sleep_then(world: World, pod: str) -> None:
    """Who runs for the pod's event is tested with the cache. A held member of a set is not made: its pod comes from outside."""
    await roles_up(world, 1)
    if pod == "demo-1":
        body = world.pod("demo-1")
        world.delete_pod("demo-1")
        hibernation(world, "demo-1")
        await rest(world)
        assert phase(world, "demo-1") == "Pending"
        assert body is not None
        for key in ("resourceVersion", "uid"):
            del body["metadata"][key]
        world.api.create("pod", {**body, "status": {"phase": "Pending"}}, by="go")
    else:
        hibernation(world, "solo")
        await rest(world)
        assert phase(world, "solo") == "Pending"
        await solo(world)
    await rest(world)
    assert phase(world, pod) == "Hibernated"


# -- what cannot work --------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.scenario("S270")
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
@pytest.mark.parametrize("before", ["", "Pending", "Hibernating", "Hibernated", "Waking", "Active", "Failed"])
async def test_an_unknown_desire_is_failed_once(world: World, pod: str, before: str) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod, desire="Zzz", phase=before)
    await world.run()
    assert phase(world, pod) == "Failed"
    assert ready(world, pod) == ("False", "Failed", 'unknown desire "Zzz"')
    mark = world.mark
    await rest(world)
    assert world.writes(mark) == []
    assert keys.HIBERNATE not in annotations_of(world, pod)
    assert told(world, pod) == []
    wants(world, "Hibernate", pod)
    await rest(world)
    assert phase(world, pod) == "Hibernated"


@pytest.mark.asyncio
async def test_a_desire_that_becomes_unknown_lets_the_vm_go(world: World) -> None:
    await held(world)
    wants(world, "Nap")
    await rest(world)
    assert phase(world) == "Failed"
    assert (world.phase, world.memory(), world.tag()) == ("Running", ["work"], None)


# -- the double --------------------------------------------------------------------------------------------------------


@pytest.mark.scenario("S272")
def test_the_registry_of_these_tests_answers_as_a_registry_does() -> None:
    async def answers() -> list[Any]:
        registry = ModelRegistry()
        found: list[Any] = [await registry.probe(VM, "hibernate")]
        digest = registry.push(VM, "hibernate", {"memory": ["x"]})
        found += [await registry.probe(VM, "hibernate"), await registry.drop(VM, "hibernate")]
        found += [await registry.probe(VM, "hibernate"), registry.requests[2], digest]
        registry.down = "503"
        return [*found, await registry.probe(VM, "hibernate"), await registry.drop(VM, "hibernate")]

    absent, there, dropped, after, request, digest, unknown, not_dropped = asyncio.run(answers())
    assert (absent, there, after) == (Absent(), Present(digest), Absent())
    assert (dropped, request) == (Done(), f"DELETE {VM}:hibernate")
    assert (unknown, not_dropped) == (Unknown("503"), Unknown("503"))


def test_the_limits_are_those_of_the_contract() -> None:
    assert Limits() == Limits(timedelta(minutes=3), timedelta(minutes=5))


@pytest.mark.scenario("S282", "S298")
@pytest.mark.parametrize(
    ("phase_", "message", "event"),
    [
        (
            "Hibernating",
            "hibernate not confirmed within 7s",
            ("HibernateTimedOut", f"snapshot {VM} not confirmed in the registry within 7s"),
        ),
        (
            "Waking",
            "wake timed out after 1m30s; vk-cocoon never reported the container running",
            ("WakeTimedOut", "vk-cocoon did not report the container running within 1m30s"),
        ),
    ],
)
def test_other_limits_are_in_the_messages(phase_: str, message: str, event: tuple[str, str]) -> None:
    limits = Limits(timedelta(seconds=7), timedelta(seconds=90))
    now = World().clock.now()
    before = hibernation_from_object(
        {
            "metadata": {"name": "demo-0", "namespace": "ns"},
            "spec": {"podRef": {"name": "demo-0"}, "desire": "Hibernate" if phase_ == "Hibernating" else "Wake"},
            "status": {"phase": phase_},
        }
    )
    patch = status_of(before, Verdict("Failed"), vm_name=VM, why="", limits=limits, now=now)
    assert patch["conditions"][0]["message"] == message
    recorder = ModelRecorder()
    after = replace(before, phase="Failed")
    tell(before, after, vm_name=VM, limits=limits, now=now, recorder=recorder, measures=ModelMeasures())
    assert recorder.events == [("demo-0", "Warning", *event)]


# -- one beside the others -----------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_one_whose_status_cannot_be_written_keeps_no_other_from_it(world: World) -> None:
    await roles_up(world, 2)
    for pod in ("demo-1", "demo-2"):
        hibernation(world, pod)
    refuse(world, "patchstatus hibernation/demo-1", UnavailableError("down"))
    outcome = await world.run()
    assert isinstance(outcome.error, UnavailableError)
    assert (phase(world, "demo-1"), phase(world, "demo-2")) == ("", "Hibernating")
    assert annotations_of(world, "demo-1")[keys.HIBERNATE] == "true"
    heal(world)
    await rest(world)
    assert (phase(world, "demo-1"), phase(world, "demo-2")) == ("Hibernated", "Hibernated")


@pytest.mark.asyncio
async def test_likewise_on_pods_of_no_set(world: World) -> None:
    await solo(world)
    hibernation(world, "solo")
    world.clock.advance(1)
    hibernation(world, "a-second", pod="solo")
    refuse(world, "patchstatus hibernation/solo", UnavailableError("down"))
    outcome = await world.run()
    assert isinstance(outcome.error, UnavailableError)
    assert (phase(world, "solo"), phase(world, "a-second")) == ("", "Pending")
    heal(world)
    await rest(world)
    assert (phase(world, "solo"), phase(world, "a-second")) == ("Hibernated", "Pending")


@pytest.mark.asyncio
@pytest.mark.parametrize("pod", ["demo-0", "solo"])
async def test_one_that_goes_under_its_own_pass_is_nothing_to_worry_about(world: World, pod: str) -> None:
    await up(world)
    await solo(world)
    hibernation(world, pod, desire="Wake")

    def vanish(moment: str, happening: str) -> None:
        if (moment, happening) == ("before", f"patchstatus hibernation/{pod}"):
            world.api.remove("hibernation", "ns", pod)

    world.hook = vanish
    outcome = await world.run()
    assert outcome.error is None
    heal(world)
    await rest(world)
    assert world.memory(f"vk-ns-{pod}") == ["work"]
