"""From the Go operator to this one after every write of every transition, and back: same Lease, same pods, nothing lost."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

import pytest
from nodes import NODES

from cocoon_devkit.audit import AuditEvent
from cocoon_devkit.cluster import Cluster
from cocoon_devkit.operatorprocess import OperatorProcess
from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys
from tests.e2e.ha.conftest import NewHome
from tests.e2e.ha.halfway import Halfway
from tests.e2e.ha.holder import FOREIGN, ForeignHolder
from tests.e2e.ha.reigns import Reigns
from tests.e2e.ha.replicas import Home
from tests.e2e.operator.seat import Seat, Surroundings
from tests.e2e.swap import goreads
from tests.e2e.swap.gopasses import GoPasses
from tests.e2e.swap.gowrites import GoOperator
from tests.e2e.swap.timelines import TIMELINES, Member, Scene

AT_ONCE: Final = 16
"""Scenes that are made at the same time."""
LETTERS: Final = "abcdefghijk"
PATIENCE: Final = 90.0
"""Seconds for the first scene that is looked at; all run at once."""


class Fleet:
    """All scenes of all timelines, in one namespace; an operator is started over them when they stand."""

    def __init__(self, around: Surroundings, namespace: str) -> None:
        plan = [(name, step) for name, (_, steps) in TIMELINES.items() for step in range(1, steps + 1)]
        self.scenes: dict[str, list[Scene]] = {name: [] for name in TIMELINES}
        for name, step in plan:
            self.scenes[name].append(Scene(around, namespace, f"{name}-{LETTERS[step - 1]}"))

    def play(self) -> None:
        """Let the Go operator begin with all of them, and leave each at another point."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            plays = [
                pool.submit(scene.play, TIMELINES[name][0], step)
                for name, scenes in self.scenes.items()
                for step, scene in enumerate(scenes, 1)
            ]
            for play in plays:
                play.result()

    def repair(self) -> None:
        for scenes in self.scenes.values():
            for scene in scenes:
                scene.repair()

    def all(self) -> list[Scene]:
        return [scene for scenes in self.scenes.values() for scene in scenes]

    def at_rest(self) -> list[Scene]:
        """All of them, once each is where it has to be."""
        for scene in self.all():
            scene.until_end(PATIENCE)
        return self.all()


@pytest.fixture(scope="module")
def go_home(new_home: NewHome) -> Home:
    return new_home()


@pytest.fixture(scope="module")
def operator(go_home: Home) -> Iterator[OperatorProcess]:
    """This operator, not started yet."""
    process = go_home.replica("first")
    yield process
    process.stop()


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, surroundings: Surroundings, go_home: Home, operator: OperatorProcess) -> Iterator[Fleet]:
    """What the Go operator left, its Lease too, under this one."""
    namespace = f"swap-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "namespace", namespace)
    fleet = Fleet(surroundings, namespace)
    fleet.play()
    ForeignHolder.take(surroundings.api, go_home, timedelta(0))
    operator.start()
    operator.wait_leading()
    fleet.repair()
    yield fleet
    for node in NODES:
        surroundings.agent.clear(node)
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def writes_of(home: Home) -> list[AuditEvent]:
    """What this operator wrote to sets and pods, and was not refused."""
    written = Reigns(home, home.since).by(home.user("first"))
    return [
        event
        for event in written
        if event.object_ref.resource in ("cocoonsets", "pods") and event.response_status.code < 300
    ]


# -- there -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TIMELINES)
def test_what_the_go_operator_left_ends_well(fleet: Fleet, name: str) -> None:
    for scene in fleet.scenes[name]:
        scene.until_end(PATIENCE)
    for scene in fleet.scenes[name]:
        scene.check()
        scene.wake()
    for scene in fleet.scenes[name]:
        scene.until_end(PATIENCE)
        scene.check()


def test_w42_it_takes_the_go_operators_lease_and_writes_nothing_before(fleet: Fleet, go_home: Home) -> None:
    reigns = Reigns(go_home, go_home.since)
    reigns.prove()
    first, second = reigns.terms[:2]
    assert (first.holder, second.user) == (FOREIGN, go_home.user("first"))
    lease = fleet.all()[0].seat.api.call("GET", go_home.lease_path)["spec"]
    assert lease["leaseTransitions"] == 8


def test_a_set_at_rest_changes_hands_without_a_write_to_its_pods(fleet: Fleet, go_home: Home) -> None:
    """What the operator learns about it goes into its status, once."""
    scene = fleet.scenes["creation"][-1]
    written = [
        f"{event.verb} {event.object_ref.resource}/{event.object_ref.subresource}"
        for event in writes_of(go_home)
        if event.object_ref.name.startswith(scene.name)
    ]
    assert written == ["patch cocoonsets/status"]


# -- and back ----------------------------------------------------------------------------------------------------------

OURS_ON_PODS: Final = frozenset({keys.APPLIED_RESOURCES})
"""Unknown annotations are no drift (3.6)."""
OURS_ON_SETS: Final = frozenset(
    {
        keys.SNAPSHOT_DIGESTS,
        keys.REMOVING_VM_NAMES,
        keys.TOOLBOX_REBUILD_HISTORY,
        keys.START_FRESH,
    }
)
"""Annotations of a set start no pass (4.0), and none of these is read."""
OURS_IN_STATUS: Final = frozenset({"snapshotDigest"})
"""Lists are built anew from the pods (1.5), unknown fields are not decoded; conditions of other types are kept (1.7)."""
NOT_WRITTEN: Final = frozenset(
    {
        # By users, or by the node agent.
        keys.DEAD_LETTER_POLICY,
        keys.LIFECYCLE_STATE,
        keys.LIFECYCLE_GENERATION,
        keys.LIFECYCLE_MESSAGE,
        keys.SNAPSHOT_REQUEST,
        keys.SNAPSHOT_STATUS,
        keys.MANIFEST_BASE_IMAGE,
        # No annotations.
        keys.GROUP,
        keys.API_VERSION,
        keys.SET_FINALIZER,
        keys.HIBERNATION_FINALIZER,
        keys.LEASE_NAME,
        keys.EVENT_COMPONENT,
        keys.PROVIDER_TOLERATION,
        keys.NODE_POOL,
        keys.NODE_CPU_CLASS,
        keys.NODE_HOSTNAME,
        *goreads.POD_LABELS,
    }
)
EVERYTHING: Final[Obj] = {
    "storage": "1536Mi",
    "network": "bridge0",
    "forcePull": True,
    "noDirectIO": True,
    "connType": "vnc",
    "probePort": 22,
    "serviceAccountName": "default",
    "envFrom": [{"configMapRef": {"name": "none", "optional": True}}],
    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
    "replicas": 1,
}
STATIC: Final = {"name": "ext", "mode": "static", "staticIP": "10.9.9.9", "staticVMID": "outside", "vncPort": 5901}
BOX: Final = {"name": "db", "mode": "run", "image": "ubuntu", "connType": "ssh"}


def test_every_key_is_known_to_the_go_operator_or_means_nothing_to_it() -> None:
    ours = OURS_ON_PODS | OURS_ON_SETS
    read = goreads.POD_ANNOTATIONS.keys() | goreads.SET_ANNOTATIONS.keys()
    assert not ours & read
    named = {value for name, value in vars(keys).items() if name.isupper() and "cocoonstack" in str(value)}
    assert named - NOT_WRITTEN == ours | read


def test_what_it_writes_reads_right_for_the_go_operator(fleet: Fleet, go_home: Home) -> None:
    """All that it wrote to bring the fleet to its rest, and a set with every option, parts of which fail at first."""
    whole = fleet.at_rest()[0].seat.neighbour("everything")
    failing = [Member(whole, slot) for slot in ("1", BOX["name"])]
    with failing[0].fault("vm.boot"), failing[1].fault("vm.boot"):
        whole.create(agent=EVERYTHING, toolboxes=[BOX, STATIC])
        whole.until(lambda: whole.note(keys.REBUILD_HISTORY) is not None, "the sub-agent's failure is written down")
        whole.until(lambda: whole.note(keys.TOOLBOX_REBUILD_HISTORY) is not None, "the toolbox's, too")
    whole.until_running()
    seen: set[str] = set()
    for event in writes_of(go_home):
        body = event.request_object or {}
        if event.object_ref.resource == "pods":
            seen |= read_pod(body) if event.verb in ("create", "patch") else set()
        else:
            seen |= read_status(body) if event.object_ref.subresource else read_set(body)
    unseen = {keys.DEAD_LETTER, keys.START_FRESH}
    wanted = (goreads.POD_ANNOTATIONS.keys() | goreads.SET_ANNOTATIONS.keys() | OURS_ON_PODS | OURS_ON_SETS) - unseen
    assert wanted - seen == set(), "the fleet was not enough to see every key written"
    for pod in GoOperator(whole).live_pods():
        assert goreads.matches(whole.get(), pod), pod["metadata"]["name"]


def read_pod(body: Obj) -> set[str]:
    metadata = body.get("metadata", {})
    read_notes(metadata.get("annotations", {}), goreads.POD_ANNOTATIONS, OURS_ON_PODS)
    if body.get("spec"):
        assert metadata["labels"].keys() == goreads.POD_LABELS
        assert metadata["ownerReferences"][0].keys() == {
            "apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"
        }  # fmt: skip
        assert body["spec"].keys() - DEFAULTED <= {
            "terminationGracePeriodSeconds", "nodeSelector", "tolerations", "containers", "affinity", "nodeName",
            "serviceAccountName",
        }  # fmt: skip
    return set(metadata.get("annotations", {}))


DEFAULTED: Final = frozenset(
    {"dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext", "serviceAccount"}
)
"""What the API server fills in before it writes its audit log."""


def read_set(body: Obj) -> set[str]:
    assert body.keys() <= {"metadata"}, body
    metadata = body.get("metadata", {})
    read_notes(metadata.get("annotations", {}), goreads.SET_ANNOTATIONS, OURS_ON_SETS)
    assert set(metadata.get("finalizers") or ()) <= {keys.SET_FINALIZER}
    return set(metadata.get("annotations", {}))


def read_notes(notes: Obj, known: dict[str, goreads.Reads], ours: frozenset[str]) -> None:
    for key, value in notes.items():
        assert key in known or key in ours, f"the Go operator was never told what {key} is"
        assert value is None or key in ours or known[key](value), f"{key}: {value}"


def read_status(body: Obj) -> set[str]:
    status: dict[str, Any] = body["status"]
    read_fields(status, goreads.STATUS, frozenset())
    assert goreads.PHASES(status.get("phase", "Pending"))
    for kind, fields in (("agents", goreads.AGENT), ("toolboxes", goreads.TOOLBOX)):
        for entry in status.get(kind) or ():
            read_fields(entry, fields, OURS_IN_STATUS)
            assert {"slot", "role"} <= entry.keys() if kind == "agents" else "name" in entry
    for condition in status.get("conditions") or ():
        read_fields(condition, goreads.CONDITION, frozenset())
        assert condition.keys() == goreads.CONDITION.keys()
    return set()


def read_fields(found: Obj, known: dict[str, type], ours: frozenset[str]) -> None:
    for field, value in found.items():
        assert field in known or field in ours, f"the Go operator has no field {field}"
        assert value is None or field in ours or type(value) is known[field], f"{field}: {value!r}"


def test_at_rest_the_go_operator_has_nothing_to_do(fleet: Fleet) -> None:
    for scene in fleet.at_rest():
        if scene.end != "gone":
            assert goreads.next_step(GoPasses(scene.go).look()) == "", f"{scene}"


IN_THE_MIDDLE: Final = {
    "retain": "wait for the saves",
    "release": "wait for the saves",
    "moving": "wait for main's save",
    "unsuspended": "wait for main",
    "waking": "wait for main",
    "booting": "wait for main",
}
"""What the Go operator does about each of six sets that this one left in the middle."""


def test_there_and_back_in_the_middle_of_everything(
    fleet: Fleet, operator: OperatorProcess, surroundings: Surroundings, namespace: str
) -> None:
    """This operator begins, the Go operator ends, this operator agrees."""
    assert fleet.all()
    halfway = Halfway(lambda name: Seat(surroundings, namespace, name))
    halfway.prepare()
    rested = Seat(surroundings, namespace, "rested")
    rested.up()
    passes = {name: GoPasses(GoOperator(seat)) for name, seat in halfway.seats.items()}
    with halfway.held():
        assert operator.stop() == 0, operator.said()
        assert {name: goreads.next_step(each.look()) for name, each in passes.items()} == IN_THE_MIDDLE
    with ThreadPoolExecutor(len(passes)) as pool:
        runs: dict[str, Any] = {name: pool.submit(each.run) for name, each in passes.items()}
    steps = {name: run.result() for name, run in runs.items()}
    assert steps["release"][-1] == "release"
    assert steps["moving"].index("delete the old main") < steps["moving"].index("create main, restored")
    assert steps["waking"][-1] == "drop the tag"
    _sleep_and_wake_under_go(rested)
    operator.start()
    operator.wait_leading()
    halfway.end()
    halfway.check_vms()
    rested.until(lambda: keys.TAG_HIBERNATE not in rested.tags(), "the tag that the Go operator left is gone")
    rested.check_memory()


def _sleep_and_wake_under_go(seat: Seat) -> None:
    """It keeps the condition that says that there is no tag, and leaves one (W-17)."""
    for suspend in (True, False):
        seat.edit(suspend=suspend)
        GoPasses(GoOperator(seat)).run()
    seat.work("under the Go operator")
    assert keys.TAG_HIBERNATE in seat.tags()
    assert seat.condition("SnapshotCurrent")["reason"] == "NoSnapshot"
