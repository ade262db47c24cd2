"""A CocoonSet with sub-agents and toolboxes: every VM of it is a seat of its own, whose work is remembered and compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from nodes import NODES
from seat import SECONDS, Seat

from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys

RUN_IMAGE: Final = "ubuntu"
"""An image that no registry of ours has: the nodes boot it as it is (mode ``run``)."""
RUN_BOX: Final = {"name": "db", "mode": "run", "image": RUN_IMAGE}
STATIC_BOX: Final = {"name": "ext", "mode": "static", "staticIP": "10.9.9.9", "staticVMID": "outside", "vncPort": 5901}


class Member(Seat):
    """One sub-agent or toolbox of a set. What is asked of the set itself is the same as of its main agent's seat."""

    def __init__(self, main: Seat, slot: str) -> None:
        super().__init__(main.around, main.namespace, main.name)
        self.slot = slot
        self.pod_name = f"{main.name}-{slot}"
        self.vm = f"vk-{main.namespace}-{main.name}-{slot}"

    @property
    def uid(self) -> str:
        """The pod's UID, "" while there is none."""
        return str(((self.find_pod() or {}).get("metadata") or {}).get("uid", ""))

    @property
    def lives(self) -> bool:
        """Whether the pod is ready, and not on its way out."""
        pod = self.find_pod() or {}
        ready = any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in (pod.get("status") or {}).get("conditions", [])
        )
        return ready and "deletionTimestamp" not in pod["metadata"]

    def until_lives(self, seconds: float = SECONDS) -> None:
        self.until(lambda: self.lives, f"{self.pod_name} is ready", seconds)

    def until_other_pod(self, uid: str, seconds: float = SECONDS) -> None:
        """Wait until another pod has taken the place of this one."""
        self.until(lambda: self.uid not in ("", uid), f"another {self.pod_name}", seconds)

    def lose_vm(self, state: str = "gone") -> None:
        """Let the VM fail by itself: ``gone`` gets its pod evicted, ``stopped`` is started again in place."""
        self.agent.crash_vm(self.node, self.vm, state)

    @contextmanager
    def kept_terminating(self) -> Iterator[None]:
        """Let the pod object outlive its deletion until the end of the block, by a finalizer of somebody else's."""
        self._finalize(["example.com/kept"])
        try:
            yield
        finally:
            self._finalize(None)

    def _finalize(self, finalizers: list[str] | None) -> None:
        patch = {"metadata": {"finalizers": finalizers}}
        self.api.call("PATCH", self.pod_path, patch, "application/merge-patch+json")


class Fleet:
    """A set and its members. ``main`` is the seat of the main agent, and the set's own."""

    def __init__(self, main: Seat) -> None:
        self.main = main
        self._members: dict[str, Member] = {}

    def member(self, slot: int | str) -> Member:
        """The member of a slot or toolbox name, always the same one."""
        return self._members.setdefault(str(slot), Member(self.main, str(slot)))

    def managed(self) -> list[Seat]:
        """Main and the members whose VMs are on a node, in the order of their names."""
        present = [member for _, member in sorted(self._members.items()) if member.written]
        return [self.main, *present]

    def up(self, *slots: int | str, **spec: Any) -> None:
        """Create the set, wait until it runs, and begin some work of its own in main and in each of these slots."""
        self.main.create(**spec)
        self.main.until_running()
        self.work("first", *slots)

    def work(self, text: str, *slots: int | str) -> None:
        """Write a line that is told apart by its VM into main's and these slots' VMs."""
        for seat in (self.main, *map(self.member, slots)):
            seat.work(f"{text} in {seat.pod_name}")

    def check(self) -> None:
        """No VM that ever had work has lost any of it."""
        for seat in self.managed():
            seat.check_memory()

    def check_saved(self) -> None:
        """Every VM that ever had work is saved with all of it."""
        for seat in self.managed():
            assert seat.saved_work() == seat.written, seat.pod_name

    def forget(self, slot: int | str) -> None:
        """The user gave this VM up: what was in it need not be anywhere any more."""
        self.member(slot).written.clear()

    def scale(self, replicas: int) -> None:
        self.main.edit(agent={"replicas": replicas})

    @contextmanager
    def members_wait(self, point: str, *slots: int | str) -> Iterator[None]:
        """Hold the agents at a point of each of these members' lives until the end of the block."""
        with ExitStack() as stack:
            for slot in slots:
                stack.enter_context(self.member(slot).barrier(point))
            yield

    def settled(self) -> None:
        """It runs, nothing is lost, and no tag lags behind a living VM."""
        self.main.until_running()
        self.check()
        for seat in self.managed():
            assert keys.TAG_HIBERNATE not in seat.tags(), seat.pod_name
        self.main.until(lambda: self.main.note(keys.REMOVING_VM_NAMES) is None, "what was removed is collected")

    def asleep(self) -> None:
        """It sleeps, and everything is saved."""
        self.main.until_suspended()
        self.check_saved()

    def pod_names(self) -> set[str]:
        """Every pod of the set that the API server has."""
        query = f"?labelSelector={keys.LABEL_SET}%3D{self.main.name}"
        found: list[Obj] = self.main.api.call("GET", f"/api/v1/namespaces/{self.main.namespace}/pods{query}")["items"]
        return {pod["metadata"]["name"] for pod in found}

    def told(self, reason: str) -> list[str]:
        """The messages of the set's events with a reason, sorted; each is told once, or the operator repeats itself."""
        return sorted(
            event["message"] for event in self.main.events(reason) for _ in range(int(event.get("count") or 1))
        )

    def listed(self) -> set[str]:
        """The VM names that are written down for the deletion of the set, without their prefix."""
        text = self.main.note(keys.DELETE_VM_NAMES) or ""
        return {name.removeprefix(f"vk-{self.main.namespace}-") for name in text.split(",") if name}


def other_node(node: str) -> str:
    """The node that this one is not."""
    (other,) = [each for each in NODES if each != node]
    return other
