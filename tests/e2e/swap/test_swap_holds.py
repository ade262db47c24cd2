"""CocoonHibernations that the Go operator left, on the real control plane: each ends as asked, with its VM's memory."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from nodes import NODES

from cocoon_devkit.cluster import Cluster
from cocoon_operator.api import keys
from tests.e2e.ha.conftest import NewHome
from tests.e2e.ha.holder import ForeignHolder
from tests.e2e.ha.reigns import Reigns
from tests.e2e.operator.seat import Surroundings
from tests.e2e.swap.gowrites import MERGE
from tests.e2e.swap.timelines import Scene

REASONS: Final = {"Hibernated": "Done", "Active": "Done"}
PATIENCE: Final = 60.0


class Hold:
    """A CocoonHibernation of a scene's main agent, in the hands of its user and of the Go operator."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.seat, self.go = scene, scene.seat, scene.go
        group = f"/apis/{keys.API_VERSION}/namespaces/{self.seat.namespace}/{keys.PLURAL_HIBERNATIONS}"
        self._all, self.path = group, f"{group}/{self.seat.pod_name}"
        self.sleeps = False

    def user_creates(self, desire: str) -> None:
        self.seat.api.call(
            "POST",
            self._all,
            {
                "apiVersion": keys.API_VERSION,
                "kind": keys.KIND_HIBERNATION,
                "metadata": {"name": self.seat.pod_name},
                "spec": {"podRef": {"name": self.seat.pod_name}, "desire": desire},
            },
        )

    def user_asks(self, desire: str) -> None:
        self.seat.api.call("PATCH", self.path, {"spec": {"desire": desire}}, MERGE)

    def user_deletes(self) -> None:
        self.seat.api.call("DELETE", self.path)

    def finalizer(self) -> None:
        """A full update (2.7)."""
        target = self.seat.api.call("GET", self.path)
        target["metadata"]["finalizers"] = [keys.HIBERNATION_FINALIZER]
        self.seat.api.call("PUT", self.path, target)

    def says(self, phase: str) -> None:
        """1.7, 1.8."""
        generation = self.seat.api.call("GET", self.path)["metadata"]["generation"]
        ready = {
            "type": "Ready",
            "status": str(phase in REASONS),
            "reason": REASONS.get(phase, "Pending"),
            "message": phase,
            "observedGeneration": generation,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        status = {"observedGeneration": generation, "phase": phase, "vmName": self.seat.vm, "conditions": [ready]}
        self.seat.api.call("PATCH", f"{self.path}/status", {"status": status}, MERGE)

    def until(self, phase: str) -> None:
        self.seat.until(lambda: self.phase == phase, f"{self.seat.pod_name} is {phase}", PATIENCE)

    @property
    def phase(self) -> str:
        found = self.seat.api.find(self.path)
        return "gone" if found is None else str(found.get("status", {}).get("phase", ""))

    # -- the Go operator's transitions (5.4) --------------------------------------------------------------------------

    def begun(self) -> None:
        self.scene.up()
        self.user_creates("Hibernate")
        self.finalizer()
        self.go.flag()
        self.says("Hibernating")

    def held(self) -> None:
        self.begun()
        self.go.until_asleep(0)
        self.says("Hibernated")
        self.go.status("Pending")


# -- where it stops, and how that has to end ------------------------------------------------------------------------------


def in_the_middle_of_a_save(hold: Hold) -> str:
    hold.begun()
    return "Hibernated"


def in_the_middle_of_a_wake(hold: Hold) -> str:
    hold.held()
    hold.user_asks("Wake")
    hold.go.unflag()
    return "Active"


def awake_over_its_tag(hold: Hold) -> str:
    """It ends before it drops the tag; the user has gone on working."""
    in_the_middle_of_a_wake(hold)
    hold.says("Waking")
    hold.go.until_live(0)
    hold.scene.work(0)
    return "Active"


def without_its_pod(hold: Hold) -> str:
    """S266: the pod goes while nobody leads."""
    hold.held()
    hold.go.delete(0)
    hold.go.until_no_pod(0)
    return "Hibernated"


def deleted_asleep(hold: Hold) -> str:
    """W-07: this operator is there before the Go operator drops the tag."""
    hold.held()
    hold.user_deletes()
    return "gone"


def under_a_suspend(hold: Hold) -> str:
    """W-04: ``Active``, and the flag of the set just cleared again."""
    hold.scene.up()
    hold.user_creates("Wake")
    hold.finalizer()
    hold.says("Active")
    hold.seat.edit(suspend=True)
    hold.go.stamp()
    hold.go.status("Suspending")
    return "Active"


STOPS: Final[tuple[Callable[[Hold], str], ...]] = (
    in_the_middle_of_a_save,
    in_the_middle_of_a_wake,
    awake_over_its_tag,
    without_its_pod,
    deleted_asleep,
    under_a_suspend,
)


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, surroundings: Surroundings) -> Iterator[str]:
    name = f"swap-{uuid.uuid4().hex[:6]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    for node in NODES:
        surroundings.agent.clear(node)
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.scenario("S266", "S299")
def test_what_the_go_operator_left_ends_well(surroundings: Surroundings, namespace: str, new_home: NewHome) -> None:
    holds = {stop: Hold(Scene(surroundings, namespace, stop.__name__.replace("_", "-"))) for stop in STOPS}
    with ThreadPoolExecutor(len(holds)) as pool:
        ends = dict(zip(holds, pool.map(lambda stop: stop(holds[stop]), holds), strict=True))
    home = new_home()
    ForeignHolder.take(surroundings.api, home, timedelta(0))
    operator = home.replica("first")
    operator.start()
    try:
        operator.wait_leading()
        for stop, hold in holds.items():
            hold.until(ends[stop])
            check(hold, asleep=ends[stop] == "Hibernated" or stop is under_a_suspend)
        anyone = next(iter(holds.values())).seat
        anyone.rest()
        mark = surroundings.audit.mark()
        anyone.rest()
        assert Reigns(home, mark).by(home.user("first")) == []
        wake_all(holds)
    finally:
        assert operator.stop() == 0, operator.said()


def check(hold: Hold, *, asleep: bool) -> None:
    """Every line is where it has to be, and no tag lies behind a VM that runs."""
    seat = hold.seat
    if asleep:
        seat.until(lambda: not seat.homes() and seat.tag() is not None, "it sleeps", PATIENCE)
        assert seat.saved_work() == seat.written
    else:
        seat.until_running(PATIENCE)
        seat.check_memory()
        assert seat.tag() is None


def wake_all(holds: dict[Callable[[Hold], str], Hold]) -> None:
    """The user asks for those that sleep."""
    for hold in (holds[in_the_middle_of_a_save], holds[without_its_pod]):
        hold.user_asks("Wake")
    holds[under_a_suspend].seat.edit(suspend=False)
    for stop, hold in holds.items():
        check(hold, asleep=False)
        hold.until("gone" if stop is deleted_asleep else "Active")
