"""CocoonHibernations change hands: what the Go operator leaves at every step ends well, and it can read what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

import pytest

from cocoon_operator.api import keys
from cocoon_operator.reconcile.view import Outcome
from tests.model.apiserver import Object
from tests.model.judged import Crash, JudgedWorld
from tests.unit.reconcile.gohibernations import GoOperator, Steps, note
from tests.unit.reconcile.holders import ends, wants
from tests.unit.reconcile.staging import hibernation, judged_rest, look, saved

pytestmark = pytest.mark.asyncio


@dataclass
class Scene:
    """A pod of a set, or of none, with the Go operator over it."""

    world: JudgedWorld
    go: GoOperator
    pod: str

    @property
    def vm(self) -> str:
        return f"vk-ns-{self.pod}"

    def drain(self, steps: Steps) -> None:
        for _ in steps:
            look(self.world)

    def up(self) -> None:
        """A VM that runs and was worked in."""
        world = self.world
        world.agent.works = True
        if self.pod == "demo-0":
            world.apply()
        else:
            notes = {keys.VM_NAME: self.vm, keys.MANAGED: "true", keys.IMAGE: "base"}
            metadata = {"name": self.pod, "namespace": "ns", "annotations": notes, "labels": {}}
            world.api.create("pod", {"metadata": metadata, "spec": {}}, by="user")
        self.drain(self.go.runs())
        assert world.memory(self.vm)

    def held(self) -> None:
        """The same, put to sleep by a CocoonHibernation."""
        self.up()
        hibernation(self.world, self.pod)
        self.drain(self.go.runs())
        assert (phase(self.world, self.pod), self.world.memory(self.vm)) == ("Hibernated", None)

    def active(self) -> None:
        """The same, and woken again."""
        self.held()
        wants(self.world, "Wake", self.pod)
        self.drain(self.go.runs())
        assert (phase(self.world, self.pod), self.world.tag(self.vm)) == ("Active", None)

    def stale(self) -> None:
        """A tag of an earlier sleep lies behind the VM, as after a wake in place (W-17)."""
        saved(self.world, self.vm, memory=["old"])


def phase(world: JudgedWorld, name: str) -> str:
    found = world.api.get("hibernation", "ns", name)
    return "gone" if found is None else str(found["status"].get("phase", ""))


# -- what the Go operator is in the middle of -------------------------------------------------------------------------------


def falls_asleep(scene: Scene) -> Steps:
    scene.up()
    hibernation(scene.world, scene.pod)
    yield "user"
    yield from scene.go.runs()


def falls_asleep_over_a_stale_tag(scene: Scene) -> Steps:
    scene.up()
    scene.stale()
    hibernation(scene.world, scene.pod)
    yield "user"
    yield from scene.go.runs()


def wakes(scene: Scene) -> Steps:
    scene.held()
    wants(scene.world, "Wake", scene.pod)
    yield "user"
    yield from scene.go.runs()


def wakes_what_never_slept(scene: Scene) -> Steps:
    """S295, with a tag that the Go operator did not get to drop."""
    scene.up()
    scene.stale()
    hibernation(scene.world, scene.pod, desire="Wake")
    yield "user"
    yield from scene.go.runs()


def turns_round_asleep(scene: Scene) -> Steps:
    scene.up()
    hibernation(scene.world, scene.pod)
    scene.drain(islice(scene.go.runs(), 6))
    wants(scene.world, "Wake", scene.pod)
    yield "user"
    yield from scene.go.runs()


def turns_round_awake(scene: Scene) -> Steps:
    scene.held()
    wants(scene.world, "Wake", scene.pod)
    scene.drain(islice(scene.go.runs(), 4))
    wants(scene.world, "Hibernate", scene.pod)
    yield "user"
    yield from scene.go.runs()


def retries_a_save(scene: Scene) -> Steps:
    """S282: it fails, and is begun again in the next moment."""
    scene.up()
    scene.world.agent.fail.add("push")
    hibernation(scene.world, scene.pod)
    yield from scene.go.runs()
    scene.world.clock.advance(181)
    yield "three minutes"
    yield from scene.go.runs()
    assert phase(scene.world, scene.pod) == "Hibernating"


def retries_a_wake(scene: Scene) -> Steps:
    """S298."""
    scene.held()
    scene.world.agent.fail.add("wake")
    wants(scene.world, "Wake", scene.pod)
    yield from scene.go.runs()
    scene.world.clock.advance(301)
    yield "five minutes"
    yield from scene.go.runs()
    assert phase(scene.world, scene.pod) == "Waking"


def is_deleted_asleep(scene: Scene) -> Steps:
    """W-07: the only copy goes before the finalizer does."""
    scene.held()
    ends(scene.world, scene.pod)
    yield "user"
    yield from scene.go.hibernation_pass(scene.pod)


def is_deleted_while_it_saves(scene: Scene) -> Steps:
    scene.up()
    hibernation(scene.world, scene.pod)
    scene.drain(islice(scene.go.runs(), 5))
    ends(scene.world, scene.pod)
    yield "user"
    yield from scene.go.hibernation_pass(scene.pod)
    for _ in range(8):
        if scene.world.agent.step("ns", scene.pod):
            yield "agent"


def is_deleted_before_its_first_status(scene: Scene) -> Steps:
    """The flag is written first, so nothing but the pod tells that there is something to undo."""
    scene.up()
    hibernation(scene.world, scene.pod)
    for step in scene.go.runs():
        if step == "flag":
            break
    ends(scene.world, scene.pod)
    yield "user"
    for _ in range(8):
        if scene.world.agent.step("ns", scene.pod):
            yield "agent"


def is_deleted_while_it_wakes(scene: Scene) -> Steps:
    scene.held()
    wants(scene.world, "Wake", scene.pod)
    scene.drain(islice(scene.go.runs(), 3))
    ends(scene.world, scene.pod)
    yield "user"


def is_deleted_awake(scene: Scene) -> Steps:
    scene.active()
    ends(scene.world, scene.pod)
    yield "user"
    yield from scene.go.runs()


def two_fight(scene: Scene) -> Steps:
    """W-45: the older one asks for sleep."""
    scene.held()
    scene.world.clock.advance(1)
    hibernation(scene.world, "second", pod=scene.pod, desire="Wake")
    yield "user"
    yield from scene.go.runs(6)


def two_fight_the_other_way(scene: Scene) -> Steps:
    scene.up()
    hibernation(scene.world, scene.pod, desire="Wake")
    scene.drain(scene.go.runs())
    scene.world.clock.advance(1)
    hibernation(scene.world, "second", pod=scene.pod)
    yield "user"
    yield from scene.go.runs(6)


def loses_its_pod_asleep(scene: Scene) -> Steps:
    """S266."""
    scene.held()
    scene.world.delete_pod(scene.pod)
    yield "user"
    yield from scene.go.runs()


def loses_its_pod_waking(scene: Scene) -> Steps:
    scene.held()
    wants(scene.world, "Wake", scene.pod)
    scene.drain(islice(scene.go.runs(), 2))
    scene.world.delete_pod(scene.pod)
    yield "user"
    yield from scene.go.runs()


def vetoes_a_suspend(scene: Scene) -> Steps:
    """W-04: the flag goes forth and back."""
    scene.active()
    scene.world.edit(suspend=True)
    yield "user"
    yield from scene.go.runs(6)


def sleeps_under_an_edit(scene: Scene) -> Steps:
    """W-03: the stamp takes ``Hibernated`` back, the drift takes the pod, and the intent to restore is gone."""
    scene.held()
    scene.world.edit(agent={"network": "blue"})
    yield "user"
    for step in scene.go.runs():
        yield step
        if step == "pod":
            return


def wakes_a_released_seat(scene: Scene) -> Steps:
    """W-28: the set restores what its CocoonHibernation puts to sleep again."""
    scene.held()
    world = scene.world
    world.annotate({keys.DELETE_VM_NAMES: scene.vm, keys.HINT_NODE: "node-a"})
    world.edit(suspend=True, hibernatePolicy="release")
    world.delete_pod()
    scene.drain(scene.go.runs())
    yield "released"
    world.edit(suspend=False)
    yield "user"
    yield from scene.go.runs()


Timeline = Callable[[Scene], Steps]
ANYWHERE: Final[tuple[Timeline, ...]] = (
    falls_asleep,
    falls_asleep_over_a_stale_tag,
    wakes,
    wakes_what_never_slept,
    turns_round_asleep,
    turns_round_awake,
    retries_a_save,
    retries_a_wake,
    is_deleted_asleep,
    is_deleted_before_its_first_status,
    is_deleted_while_it_saves,
    is_deleted_while_it_wakes,
    is_deleted_awake,
    two_fight,
    two_fight_the_other_way,
)
ON_A_SET: Final[tuple[Timeline, ...]] = (
    loses_its_pod_asleep,
    loses_its_pod_waking,
    vetoes_a_suspend,
    sleeps_under_an_edit,
    wakes_a_released_seat,
)
OF_NO_SET: Final = [line for line in ANYWHERE if line not in (wakes_what_never_slept, two_fight_the_other_way)]
CASES: Final = [(line, "demo-0") for line in (*ANYWHERE, *ON_A_SET)] + [(line, "solo") for line in OF_NO_SET]


def stops(timeline: Timeline, pod: str) -> Iterator[tuple[Scene, str]]:
    """The world after each of the steps, and which one was the last."""
    for length in count(1):
        world = JudgedWorld()
        scene = Scene(world, GoOperator(world), pod)
        steps: list[str] = []
        for step in islice(timeline(scene), length):
            look(world)
            steps.append(step)
        if len(steps) < length:
            return
        yield scene, f"{length}: {steps[-1]}"


# -- and how it has to end ----------------------------------------------------------------------------------------------------


async def take_over(scene: Scene) -> None:
    """This operator starts over what is there, and everything that failed is whole again. Time goes on until it rests."""
    scene.world.agent.fail.clear()
    scene.world.start_operator()
    await later(scene)


async def later(scene: Scene) -> None:
    """The limits and rests of failures pass, until nobody asks for more time."""
    for _ in range(5):
        await judged_rest(scene.world)
        if scene.world.outcome == Outcome():
            return
        scene.world.clock.advance(200)


async def quiet(scene: Scene) -> bool:
    """Nothing is written any more, whatever time it gets."""
    mark = scene.world.mark
    for seconds in (1, 600):
        scene.world.clock.advance(seconds)
        await scene.world.run()
    return scene.world.writes(mark) == []


def living(scene: Scene) -> list[Object]:
    """The CocoonHibernations that are left, the one that decides first."""
    found = scene.world.api.list("hibernation")
    return sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])


def held_what(scene: Scene) -> list[str]:
    """What the VM held when it was last seen running."""
    assert scene.world.judge is not None
    return scene.world.judge.truth[scene.vm].memory


def copy_is_gone(scene: Scene) -> bool:
    """Whether there is neither a VM nor a tag that holds its work: the Go operator dropped the only copy."""
    content = scene.world.registry.content(scene.vm, "hibernate")
    return scene.world.memory(scene.vm) is None and (content is None or content["memory"] != held_what(scene))


OVERRULED: Final = {("Pending", "Hibernate"), ("Pending", "Wake"), ("Active", "Wake")}


def check_phases(scene: Scene) -> None:
    found = living(scene)
    for decider in found[:1]:
        desire, suspended = decider["spec"]["desire"], is_suspended(scene)
        wanted = {"Hibernated"} if desire == "Hibernate" else {"Active", "Pending"} if suspended else {"Active"}
        assert decider["status"]["phase"] in wanted
        assert decider["metadata"]["finalizers"] == [keys.HIBERNATION_FINALIZER]
        assert decider["status"].get("vmName", scene.vm) == scene.vm
    # One that is Active does nothing any more (W-20), so it does not take that back either.
    assert {(each["status"]["phase"], each["spec"]["desire"]) for each in found[1:]} <= OVERRULED


def is_suspended(scene: Scene) -> bool:
    return scene.pod == "demo-0" and bool(scene.world.set()["spec"].get("suspend"))


def check_vm(scene: Scene) -> None:
    decider = next(iter(living(scene)), None)
    asked = is_suspended(scene) or (decider is not None and decider["spec"]["desire"] == "Hibernate")
    assert not copy_is_gone(scene)
    if asked:
        assert scene.world.memory(scene.vm) is None
    else:
        assert scene.world.memory(scene.vm) == held_what(scene)
        assert scene.world.tag(scene.vm) is None


async def wake_all(scene: Scene) -> None:
    """The user asks for everything again."""
    for each in living(scene):
        ends(scene.world, each["metadata"]["name"])
    if scene.pod == "demo-0":
        scene.world.edit(suspend=False)
    elif flagged(scene) and not living(scene):
        # Nobody is left who could: of a pod of no set only a CocoonHibernation can be asked.
        hibernation(scene.world, scene.pod, desire="Wake")
        await later(scene)
        ends(scene.world, scene.pod)
    await later(scene)


def flagged(scene: Scene) -> bool:
    return note(scene.world.pod(scene.pod) or {"metadata": {}}, keys.HIBERNATE) == "true"


def nobody_asks(scene: Scene) -> bool:
    """The Go operator let the last CocoonHibernation of a pod of no set go, and left its flag (5.6)."""
    return scene.pod == "solo" and living(scene) == [] and flagged(scene)


@pytest.mark.scenario("S299", "S306")
@pytest.mark.parametrize(("timeline", "pod"), CASES, ids=lambda value: getattr(value, "__name__", value))
async def test_what_the_go_operator_left_ends_well(timeline: Timeline, pod: str) -> None:
    for scene, stop in stops(timeline, pod):
        try:
            if copy_is_gone(scene):
                await check_held(scene)
            else:
                await check_end(scene)
        except AssertionError as error:
            raise AssertionError(f"stopped after {stop}") from error


async def check_end(scene: Scene) -> None:
    """Nothing is lost, whoever decides gets what it asks for, and then there is rest; then everything is woken."""
    await take_over(scene)
    check_phases(scene)
    assert await quiet(scene)
    assert not copy_is_gone(scene)
    if not nobody_asks(scene):
        check_vm(scene)
    await wake_all(scene)
    assert living(scene) == []
    check_vm(scene)
    assert await quiet(scene)
    read_writes(scene)


async def check_held(scene: Scene) -> None:
    """W-07: nobody has the only copy but its node. The flag stays, since the agent would drop that one, too."""
    assert flagged(scene)
    await take_over(scene)
    assert flagged(scene)
    assert scene.world.memory(scene.vm) is None
    assert await quiet(scene)
    if scene.pod != "demo-0":
        return
    finding = scene.world.condition("Ready")
    assert (finding["status"], finding["reason"]) == ("False", "SnapshotMissing")
    assert keys.START_FRESH in finding["message"]
    # Whoever has it elsewhere puts it back.
    scene.world.registry.push(scene.vm, "hibernate", {"memory": held_what(scene), "image": "base", "id": "vm-1"})
    await later(scene)
    check_vm(scene)


async def test_a_tag_that_lies_behind_a_vm_of_no_set_is_left_to_its_next_sleep() -> None:
    """S295 on such a pod: a tag that this CocoonHibernation did not make may be somebody else's (W-63)."""
    for scene, stop in stops(wakes_what_never_slept, "solo"):
        await take_over(scene)
        assert phase(scene.world, "solo") == "Active", stop
        assert scene.world.memory(scene.vm) == held_what(scene), stop
        wants(scene.world, "Hibernate", "solo")
        await later(scene)
        assert not copy_is_gone(scene), stop
        await wake_all(scene)
        check_vm(scene)


async def test_w45_a_flag_that_a_younger_one_left_on_a_pod_of_no_set_stays_until_the_older_one_is_asked() -> None:
    """An ``Active`` one is inert (W-20); what the younger one put to sleep meanwhile is saved, and woken when asked for."""
    for scene, stop in stops(two_fight_the_other_way, "solo"):
        await take_over(scene)
        assert not copy_is_gone(scene), stop
        assert phase(scene.world, "second") == "Pending", stop
        for desire, end in (("Hibernate", "Hibernated"), ("Wake", "Active")):
            wants(scene.world, desire, "solo")
            await later(scene)
            assert phase(scene.world, "solo") == end, stop
        check_vm(scene)
        assert await quiet(scene), stop


# -- and back -----------------------------------------------------------------------------------------------------------------

PHASES: Final = {
    "Pending": ("False", "Pending"),
    "Hibernating": ("False", "Pending"),
    "Hibernated": ("True", "Done"),
    "Waking": ("False", "Pending"),
    "Active": ("True", "Done"),
    "Failed": ("False", "Failed"),
}
"""1.7 and 1.8: every phase that the Go operator knows, with what it writes as ``Ready``."""
SET_PHASES: Final = {"Pending", "Running", "Scaling", "Suspending", "Suspended", "Waking", "Migrating", "Failed"}
CONDITION: Final = {"type", "status", "reason", "message", "observedGeneration", "lastTransitionTime"}
ON_PODS: Final = {keys.GENERATION, keys.HIBERNATE, keys.KEEP_SNAPSHOT}
ON_SETS: Final = {keys.DELETE_VM_NAMES, keys.HINT_NODE, keys.SNAPSHOT_DIGESTS}
"""The first two are read by the Go operator (2.6), the last one it has never heard of."""


async def test_every_phase_is_among_the_words_that_were_read() -> None:
    seen: set[str] = set()
    for timeline in (falls_asleep, wakes, two_fight):
        scene, _ = next(stops(timeline, "demo-0"))
        await take_over(scene)
        seen |= read_writes(scene)
    assert seen >= {"Pending", "Hibernating", "Hibernated", "Waking", "Active", "KeptAsleep", "NoSnapshot"}


def read_writes(scene: Scene) -> set[str]:
    """Hold every write of this operator against what the Go operator knows, but for pods and their making; phases and reasons."""
    seen: set[str] = set()
    for write in scene.world.api.writes:
        if write.by == "operator" and write.verb.startswith("patch"):
            read = read_status if write.verb == "patch/status" else read_metadata
            seen |= read(write.kind, write.body)
    return seen


def read_metadata(kind: str, body: Object) -> set[str]:
    metadata = body["metadata"]
    notes = metadata.get("annotations", {})
    assert body.keys() == {"metadata"}
    assert metadata.keys() <= {"annotations", "finalizers"}
    assert notes.keys() <= {"pod": ON_PODS, "set": ON_SETS}.get(kind, set())
    assert notes.get(keys.HIBERNATE) in ("true", None)
    assert set(metadata.get("finalizers", ())) <= {keys.SET_FINALIZER, keys.HIBERNATION_FINALIZER}
    return set()


def read_status(kind: str, body: Object) -> set[str]:
    status = body["status"]
    for condition in status.get("conditions", ()):
        assert condition.keys() == CONDITION
    if kind == "set":
        assert status.get("phase", "Pending") in SET_PHASES
        return {condition["reason"] for condition in status.get("conditions", ())}
    assert status.keys() <= {"observedGeneration", "phase", "vmName", "conditions"}
    phase_ = status.get("phase")
    assert phase_ is None or phase_ in PHASES
    for condition in status.get("conditions", ()):
        assert condition["type"] == "Ready"
        assert phase_ is None or (condition["status"], condition["reason"]) == PHASES[phase_]
    return {phase_} if phase_ else set()


async def begins(scene: Scene, calls: int) -> bool:
    """This operator works until it ends right after one of its calls; whether it got that far."""
    scene.world.start_operator()
    scene.world.calls = 0
    scene.world.fault = (calls, "crash after")
    try:
        await judged_rest(scene.world)
    except Crash:
        return True
    finally:
        scene.world.fault = None
    return False


Asks = Callable[[Scene], None]


def asks_for_sleep(scene: Scene) -> None:
    scene.up()
    hibernation(scene.world, scene.pod)


def asks_to_wake(scene: Scene) -> None:
    scene.held()
    wants(scene.world, "Wake", scene.pod)


def asks_no_more(scene: Scene) -> None:
    scene.held()
    ends(scene.world, scene.pod)


@pytest.mark.parametrize("pod", ["demo-0", "solo"])
@pytest.mark.parametrize(
    ("asks", "end"), [(asks_for_sleep, "Hibernated"), (asks_to_wake, "Active"), (asks_no_more, "gone")]
)
async def test_what_this_operator_left_is_ended_by_the_go_operator_and_taken_back(
    asks: Asks, end: str, pod: str
) -> None:
    """At rest, and after each call of a transition. Then the Go operator rests, and this one agrees without losing anything."""
    for calls in count(1):
        world = JudgedWorld()
        scene = Scene(world, GoOperator(world), pod)
        asks(scene)
        midway = await begins(scene, calls)
        if asks is asks_no_more and living(scene):
            # The Go operator would drop the only copy, as it always did (W-07): this one has to end what it began.
            assert midway
            continue
        scene.drain(scene.go.runs())
        assert not copy_is_gone(scene), calls
        assert list(scene.go.runs()) == [], calls
        assert phase(world, pod) == end, calls
        await check_end(scene)
        if not midway:
            return
