"""What the Go operator does in each transition, write by write (4.20): a generator stops after each, so that it can end there.

What a set is in between, this operator finds when it is started in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from nodes import NODES
from typing_extensions import override

from cocoon_operator.api import keys
from tests.e2e.operator.seat import Seat, Surroundings
from tests.e2e.swap.gowrites import BOX, GoOperator, preferred, required

Steps = Iterator[str]


class Member(Seat):
    """One sub-agent or toolbox of a set, with a memory that is compared, as main's is."""

    def __init__(self, main: Seat, slot: str) -> None:
        super().__init__(main.around, main.namespace, main.name)
        self.pod_name = f"{main.name}-{slot}"
        self.vm = f"vk-{main.namespace}-{main.name}-{slot}"


class Scene:
    """A set that the Go operator left after some of the steps of a timeline.

    ``end`` is what has to become of it: ``running``, ``suspended``, ``released``, ``dead letter`` or ``gone``. ``going`` are
    the slots whose pods have to go for that; all others have to stay as they are.
    """

    def __init__(self, around: Surroundings, namespace: str, name: str) -> None:
        self.name = name
        self.seat = Seat(around, namespace, name)
        self.go = GoOperator(self.seat)
        self.members: dict[str, Seat] = {"0": self.seat}
        self.end = "running"
        self.going: set[str] = set()
        self.stopped_at = ""
        self._uids: dict[str, str] = {}
        self._vm_ids: dict[str, str] = {}
        self._faults: list[tuple[str, int]] = []

    def play(self, timeline: Callable[[Scene], Steps], steps: int) -> None:
        """Let the Go operator do the first ``steps`` of a timeline, and die."""
        writes = timeline(self)
        for _ in range(steps):
            self.stopped_at = next(writes)
        self._look()

    def _look(self) -> None:
        for pod in self.go.live_pods():
            notes, slot = pod["metadata"]["annotations"], pod["metadata"]["labels"][keys.LABEL_SLOT]
            if slot in self.going:
                continue
            self._uids[slot] = pod["metadata"]["uid"]
            awake = notes.get(keys.LIFECYCLE_STATE) == "ready" and keys.HIBERNATE not in notes
            if awake and self.end == "running" and notes.get(keys.VM_ID):
                self._vm_ids[slot] = notes[keys.VM_ID]

    def member(self, slot: int | str) -> Seat:
        return self.members.setdefault(str(slot), Member(self.seat, str(slot)))

    def work(self, *slots: int | str) -> None:
        """Write a line into each of these VMs; from then on it has to be there. Cheaper than :meth:`Seat.work`."""
        for slot in slots:
            member, pod = self.member(slot), self.go.find(slot)
            assert pod is not None
            if keys.FORK_FROM in pod["metadata"]["annotations"] and not member.written:
                member.written = list(self.seat.written)
            line = f"line {len(member.written)} of {member.pod_name}"
            member.agent.write_work(pod["spec"]["nodeName"], member.vm, line)
            member.written.append(line)

    def break_boots(self, slot: int) -> None:
        """Let no VM of this member boot, until :meth:`repair`."""
        vm = self.member(slot).vm
        self._faults += [(node, self.seat.agent.fault(node, "vm.boot", vm=vm, message="no boot")) for node in NODES]

    def repair(self) -> None:
        """Let it boot, unless it shall be left as it is."""
        if self.end != "dead letter":
            for node, fault in self._faults:
                self.seat.agent.clear(node, fault)

    def up(self, *, subs: int = 0, **spec: Any) -> None:
        """A set that the Go operator has had running for a while."""
        for _ in creation(self, subs=subs, box=False, **spec):
            pass

    # -- what became of it --------------------------------------------------------------------------------------------

    def until_end(self, seconds: float) -> None:
        """Wait until it is where it has to be."""
        waits: dict[str, Callable[[float], None]] = {
            "running": self.seat.until_running,
            "suspended": self.seat.until_suspended,
            "released": self._until_released,
            "dead letter": self._until_left_alone,
            "gone": self.seat.until_gone,
        }
        waits[self.end](seconds)

    def _until_released(self, seconds: float) -> None:
        self.seat.until_suspended(seconds)
        self.seat.until_no_pod(seconds)

    def _until_left_alone(self, seconds: float) -> None:
        self.seat.until_condition("SnapshotCurrent", "NoSnapshot", seconds)

    def check(self) -> None:
        """Nothing is lost, nothing is rolled back, no pod was made anew that need not have been, no tag lags behind."""
        asleep = self.end in ("suspended", "released")
        for slot, member in self.members.items():
            if self.end == "gone":
                assert keys.TAG_HIBERNATE not in member.tags(), f"{self}: {slot}"
            elif asleep:
                assert member.saved_work() == member.written, f"{self}: {slot}"
            elif member.written:
                member.check_memory()
                assert keys.TAG_HIBERNATE not in member.tags(), f"{self}: {slot}"
        if self.end in ("gone", "released"):
            return
        found = {pod["metadata"]["labels"][keys.LABEL_SLOT]: pod for pod in self.go.live_pods()}
        assert {slot: found[slot]["metadata"]["uid"] for slot in self._uids if slot in found} == self._uids, f"{self}"
        vm_ids = {slot: found[slot]["metadata"]["annotations"][keys.VM_ID] for slot in self._vm_ids}
        assert vm_ids == self._vm_ids, f"{self}"
        if not asleep:
            assert self.seat.note(keys.HINT_NODE) is None, f"{self}"

    def wake(self) -> None:
        """Ask for it again after ``check``, if it sleeps."""
        if self.end in ("suspended", "released"):
            self.seat.edit(suspend=False)
            self.end, self._vm_ids = "running", {}
            if self.seat.find_pod() is None:
                self._uids = {}

    @override
    def __str__(self) -> str:
        return f"{self.name}, stopped at: {self.stopped_at}"


# -- the timelines -----------------------------------------------------------------------------------------------------


def creation(scene: Scene, *, subs: int = 1, box: bool = True, **spec: Any) -> Steps:
    """4.20, start of a set: with a sub-agent and a toolbox."""
    go = scene.go
    scene.seat.create(agent={"replicas": subs}, toolboxes=[BOX] if box else [], **spec)
    yield "the user's object"
    go.add_finalizer()
    yield "finalizer"
    go.create_main()
    yield "main"
    go.status("Pending")
    yield "status Pending"
    go.until_ready(0)
    go.until_live(0)
    scene.work(0)
    slots: list[int | str] = [*range(1, subs + 1), *(["db"] if box else [])]
    for slot in slots:
        go.create_box() if slot == "db" else go.create_sub(int(slot))
        yield f"pod {slot}"
    go.status("Scaling" if slots else "Running")
    yield "status Scaling"
    for slot in slots:
        go.until_ready(slot)
        go.until_live(slot)
        scene.work(slot)
    go.status("Running")
    yield "status Running"


def _fall_asleep(scene: Scene) -> Steps:
    go = scene.go
    scene.seat.edit(suspend=True)
    yield "suspend: true"
    go.stamp()
    yield "stamp"
    go.flag()
    yield "flag"
    go.status("Suspending")
    yield "status Suspending"
    go.until_asleep(0)
    yield "saved"


def retain(scene: Scene) -> Steps:
    """4.3."""
    scene.up()
    scene.end = "suspended"
    yield from _fall_asleep(scene)
    scene.go.status("Suspended")
    yield "status Suspended"


def release(scene: Scene) -> Steps:
    """4.5, 4.20."""
    go = scene.go
    scene.up(hibernatePolicy="release")
    scene.end = "released"
    scene.going = {"0"}
    yield from _fall_asleep(scene)
    go.names(scene.seat.vm)
    yield "names"
    go.hint()
    yield "hint"
    go.keep()
    yield "keep"
    before = go.live_pods()
    go.delete(0)
    yield "pod deleted"
    go.status("Suspended", before)
    yield "status Suspended with the old agents"
    go.until_no_pod(0)
    go.status("Suspended")
    yield "status Suspended"


def wake(scene: Scene) -> Steps:
    """4.7, 4.20."""
    go = scene.go
    _play(release(scene))
    scene.end, scene.going = "running", set()
    node = str(scene.seat.note(keys.HINT_NODE))
    scene.seat.edit(suspend=False)
    yield "suspend: false"
    go.status("Waking")
    yield "status Waking"
    go.create_main(restore=True, affinity=preferred(node))
    yield "pod"
    go.status("Waking")
    yield "status Waking with the agent"
    go.until_live(0)
    scene.work(0)
    yield "live"
    scene.seat.drop_tag()
    yield "tag dropped"
    go.drop_hint()
    yield "hint removed"
    go.status("Running")
    yield "status Running"


def unsuspend(scene: Scene) -> Steps:
    """4.8: no tag is ever dropped, so a stale one lies behind the running VM (W-17)."""
    go = scene.go
    _play(retain(scene))
    scene.end = "running"
    scene.seat.edit(suspend=False)
    yield "suspend: false"
    go.stamp()
    yield "stamp"
    go.unflag()
    yield "flag cleared"
    go.until_live(0)
    scene.work(0)
    yield "live"
    go.status("Running")
    yield "status Running over a stale tag"


def again(scene: Scene) -> Steps:
    """A second sleep, over the stale tag of the first."""
    _play(unsuspend(scene))
    scene.end = "suspended"
    yield from (step for step in _fall_asleep(scene) if step in ("flag", "saved"))


def migration(scene: Scene) -> Steps:
    """4.6, 4.20."""
    go = scene.go
    scene.up()
    scene.going = {"0"}
    other = {"n1": "n2", "n2": "n1"}[scene.seat.node]
    scene.seat.edit(nodeName=other)
    yield "nodeName"
    go.stamp()
    yield "stamp"
    go.status("Migrating")
    yield "status Migrating"
    go.flag()
    yield "flag"
    go.until_asleep(0)
    yield "saved"
    go.delete(0)
    go.until_no_pod(0)
    yield "pod deleted"
    go.create_main(restore=True, affinity=required(other))
    scene.going = set()
    yield "pod on the other node"
    go.status("Migrating", [])
    yield "status Migrating without agents"
    go.until_live(0)
    scene.work(0)
    yield "live"
    scene.seat.drop_tag()
    yield "tag dropped"
    go.status("Running")
    yield "status Running"


def scale_up(scene: Scene) -> Steps:
    """4.10."""
    go = scene.go
    scene.up()
    scene.seat.edit(agent={"replicas": 2})
    yield "replicas: 2"
    go.stamp()
    yield "stamp"
    for slot in (1, 2):
        go.create_sub(slot)
        yield f"sub-agent {slot}"
    go.status("Scaling")
    yield "status Scaling"
    for slot in (1, 2):
        go.until_ready(slot)
        go.until_live(slot)
        scene.work(slot)
    go.status("Running")
    yield "status Running"


def scale_down(scene: Scene) -> Steps:
    """4.10: the name of what was removed is forgotten (W-16)."""
    go = scene.go
    scene.up(subs=2)
    scene.going = {"2"}
    scene.member(2).written.clear()
    scene.seat.edit(agent={"replicas": 1})
    yield "replicas: 1"
    go.stamp()
    yield "stamp"
    go.delete(2)
    yield "sub-agent deleted"
    go.until_no_pod(2)
    go.status("Running")
    yield "status Running"


def rebuild(scene: Scene) -> Steps:
    """4.10: history, delete, create."""
    go = scene.go
    _lose_sub_agent(scene)
    yield "sub-agent failed"
    go.history(1, 1)
    yield "history"
    go.delete(1)
    go.until_no_pod(1)
    yield "sub-agent deleted"
    scene.repair()
    go.create_sub(1)
    scene.going = set()
    yield "sub-agent"
    go.until_ready(1)
    go.status("Running")
    yield "status Running"


def dead_letter(scene: Scene) -> Steps:
    """4.10: four attempts are over."""
    _lose_sub_agent(scene)
    scene.end, scene.going = "dead letter", set()
    scene.go.history(1, 4)
    scene.go.dead_letter(1)
    scene.go.status("Scaling")
    yield "dead letter"


def _lose_sub_agent(scene: Scene) -> None:
    scene.up()
    scene.going = {"1"}
    scene.seat.edit(agent={"replicas": 1})
    scene.go.stamp()
    scene.break_boots(1)
    scene.go.create_sub(1)
    scene.go.until_failed(1)


def deletion(scene: Scene) -> Steps:
    """4.12, of a set that sleeps."""
    go = scene.go
    _play(retain(scene))
    scene.end, scene.going = "gone", {"0"}
    scene.seat.delete()
    yield "the user's DELETE"
    go.names(scene.seat.vm)
    yield "names"
    go.delete(0)
    yield "pod deleted"
    go.until_no_pod(0)
    yield "pod gone"
    scene.seat.drop_tag()
    yield "tag dropped"


# -- what else it can leave --------------------------------------------------------------------------------------------


def hint_without_a_wake(scene: Scene) -> Steps:
    """A release that was taken back before the pod went: the hint stays (W-46)."""
    _play(unsuspend(scene))
    scene.go.hint()
    yield "running, with a hint"


def phase_without_a_pod(scene: Scene) -> Steps:
    """Somebody deleted the sleeping pod of a retain set while nobody operated."""
    _play(retain(scene))
    scene.going = {"0"}
    scene.go.delete(0)
    scene.go.until_no_pod(0)
    yield "phase Suspended"


def phase_without_a_vm(scene: Scene) -> Steps:
    """Somebody deleted the pod of a running set: its VM is given up, by the node agent, and boots fresh."""
    scene.up()
    scene.going = {"0"}
    scene.go.delete(0)
    scene.go.until_no_pod(0)
    scene.seat.written.clear()
    yield "phase Running"


def failed_restore_of_a_seat(scene: Scene) -> Steps:
    """``Waking`` was overwritten by ``Failed``, then the pod went: only hint and tag know of the sleep (W-02)."""
    _play(release(scene))
    scene.end, scene.going = "running", set()
    scene.seat.edit(suspend=False)
    scene.go.status("Failed")
    yield "phase Failed"


def failed_restore_of_a_migration(scene: Scene) -> Steps:
    """``Migrating`` was overwritten by ``Failed``, the pod went, and the user took the move back: only the tag knows (W-02)."""
    writes = migration(scene)
    for _ in range(5):
        next(writes)
    scene.go.status("Failed")
    scene.go.delete(0)
    scene.go.until_no_pod(0)
    scene.seat.edit(nodeName=None)
    yield "phase Failed"


def _play(writes: Steps) -> None:
    for _ in writes:
        pass


Timeline = Callable[[Scene], Steps]
TIMELINES: Final[dict[str, tuple[Timeline, int]]] = {
    "creation": (creation, 8),
    "retain": (retain, 6),
    "release": (release, 11),
    "wake": (wake, 8),
    "unsuspend": (unsuspend, 5),
    "again": (again, 2),
    "migration": (migration, 11),
    "scale-up": (scale_up, 6),
    "scale-down": (scale_down, 4),
    "rebuild": (rebuild, 5),
    "dead-letter": (dead_letter, 1),
    "deletion": (deletion, 5),
    "hint-without-a-wake": (hint_without_a_wake, 1),
    "phase-without-a-pod": (phase_without_a_pod, 1),
    "phase-without-a-vm": (phase_without_a_vm, 1),
    "failed-restore-of-a-seat": (failed_restore_of_a_seat, 1),
    "failed-restore-of-a-migration": (failed_restore_of_a_migration, 1),
}
"""Every timeline and how many steps it has; each step is a scene of its own."""
