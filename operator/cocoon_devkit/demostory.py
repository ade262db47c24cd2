"""The demo's steps: one agent VM is created, put to sleep, woken and deleted, and each state is proven where it lies."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cocoon_devkit.demoview import Outcome, View
from cocoon_devkit.demoworld import DemoWorld, Look, Row, short
from cocoon_devkit.errors import DevkitError
from cocoon_devkit.kubectl import Kubectl
from cocoon_devkit.operatoraudit import OperatorAudit

STEP_SECONDS: Final = 30.0
# A state that was reached must last, and what is no edge is written up to two seconds later: it counts too.
SETTLE_SECONDS: Final = 2.5
_POLL_SECONDS: Final = 0.05

FIRST_LINE: Final = "essay, first half"
SECOND_LINE: Final = "essay, second half"
AWAKE_WITHOUT_SNAPSHOT: Final = ("True", "NoSnapshot")


class DemoFailedError(DevkitError):
    """A state was not reached, or not what the demo says it is."""


@dataclass(frozen=True)
class Goal:
    """A state that a step has to reach; ``words`` say which."""

    words: str
    reached: Callable[[Look], bool]


RUNNING: Final = Goal(
    "phase Running, the VM runs, no tag is left behind it",
    lambda look: (
        look.phase == "Running"
        and look.current
        and look.status.get("readyAgents") == 1
        and look.vm.get("state") == "running"
        and look.agent.get("vmID") == look.vm.get("id")
        and look.condition("SnapshotCurrent") == AWAKE_WITHOUT_SNAPSHOT
        and not look.tag
    ),
)
ASLEEP: Final = Goal(
    "phase Suspended, the pod is there, no VM runs, its state is tagged in the registry",
    lambda look: look.phase == "Suspended" and look.current and bool(look.pod and look.tag) and not look.vms,
)
RELEASED: Final = Goal(
    "phase Suspended, no pod, no VM, the state tagged in the registry and kept on the node",
    lambda look: (
        look.phase == "Suspended"
        and look.current
        and look.pod is None
        and not look.vms
        and bool(look.tag)
        and bool(look.caches)
    ),
)
GONE: Final = Goal(
    "no set, no pod, no VM, no tag, no cache",
    lambda look: look.cocoonset is None and look.pod is None and not (look.vms or look.tag or look.caches),
)


class Story:
    """``tell()`` runs the steps in order. Raises DemoFailedError at the first that is not as it says.

    ``patience`` is how many seconds a state may take, ``settle`` how many it must last; ``example`` is the file of the
    set that ``world`` looks at.
    """

    def __init__(
        self,
        world: DemoWorld,
        kubectl: Kubectl,
        audit: OperatorAudit,
        view: View,
        example: Path,
        *,
        patience: float = STEP_SECONDS,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        self._world = world
        self._kubectl = kubectl
        self._audit = audit
        self._view = view
        self._example = example
        self._patience = patience
        self._settle = settle
        self._number = 0
        self.outcomes: list[Outcome] = []

    def tell(self) -> None:
        """All of it."""
        awake = self._create()
        asleep = self._suspend_retain(awake)
        awake = self._unsuspend(awake, asleep)
        released = self._suspend_release(awake)
        awake = self._wake(awake, released)
        self._sleep_again(awake)
        self._delete()

    # -- the steps -----------------------------------------------------------------------------------------------------

    def _create(self) -> Look:
        self._step(
            "Create",
            "A CocoonSet becomes a pod, the scheduler finds it a node, and the node boots a VM. Proof: the VM that the"
            " set names runs on that node.",
        )
        look = self._transition("create", ("apply", "-f", str(self._example)), RUNNING, budget=4)
        self._prove(f"VM {short(look.vm['id'])} runs on {look.node}", look.agent["vmID"] == look.vm["id"])
        self._write(look, FIRST_LINE)
        return look

    def _suspend_retain(self, awake: Look) -> Look:
        self._step(
            "Suspend, policy retain",
            "The VM's memory and disk are saved and pushed, then the VM is gone; its pod keeps the place. Proof: the tag"
            " exists, its digest is recorded in the status, and the pod is the same one.",
        )
        look = self._transition("suspend (retain)", self._patch(suspend=True), ASLEEP, budget=3)
        self._prove(f"the status records the saved state {_digest(look.tag)}", look.agent["snapshotDigest"] == look.tag)
        self._prove(f"the pod kept its place on {look.node}", look.pod_uid == awake.pod_uid)
        return look

    def _unsuspend(self, awake: Look, asleep: Look) -> Look:
        self._step(
            "Wake",
            "The same pod gets a VM with the saved memory; only then is the tag dropped, so that no old state can ever"
            " come back. Proof: the work is still there, in another VM of the same boot.",
        )
        look = self._transition("wake (retained pod)", self._patch(suspend=False), RUNNING, budget=3)
        self._prove_same_memory(awake, look, [FIRST_LINE])
        self._prove("the pod is still the same", look.pod_uid == asleep.pod_uid)
        self._write(look, SECOND_LINE)
        return look

    def _suspend_release(self, awake: Look) -> Look:
        self._step(
            "Suspend, policy release",
            "The policy is edited together with the suspend: once the state is safe in the registry, the pod goes too,"
            " and somebody else can have its seat. Proof: no pod on the node, the tag exists, the node keeps a cache.",
        )
        patch = self._patch(hibernatePolicy="release", suspend=True)
        look = self._transition("suspend (release)", patch, RELEASED, budget=6)
        seats = self._world.pods_of_node(awake.node)
        self._prove(f"no pod takes a seat on {awake.node}", seats == [])
        self._prove(f"{awake.node} keeps the state as a cache", list(look.caches) == [awake.node])
        hint = look.annotations.get("cocoonset.cocoonstack.io/hibernated-on-node")
        self._prove(f"the set remembers that it slept on {hint}", hint == awake.node)
        return look

    def _wake(self, awake: Look, released: Look) -> Look:
        self._step(
            "Wake on the same node",
            "A new pod prefers the node with the cache, and the VM is restored from there. Proof: the node's journal"
            " shows no download of a layer, and all the work is there.",
        )
        mark = self._world.agent.mark()
        look = self._transition("wake (released seat)", self._patch(suspend=False), RUNNING, budget=4)
        self._prove(f"the pod is a new one, on {look.node} again", _moved(awake, look) and look.node in released.caches)
        downloads = self._world.layer_downloads(mark)
        self._prove(f"layers downloaded: {downloads}", downloads == 0)
        self._prove_same_memory(awake, look, [FIRST_LINE, SECOND_LINE])
        return look

    def _sleep_again(self, awake: Look) -> None:
        self._step(
            "Sleep once more",
            "The policy goes back to retain, so that there is a pod and a tag to be collected. Proof: both are there.",
        )
        patch = self._patch(hibernatePolicy="retain", suspend=True)
        look = self._transition("suspend (retain) again", patch, ASLEEP, budget=3)
        self._prove(f"the pod sleeps on {awake.node}, saved as {_digest(look.tag)}", look.node == awake.node)

    def _delete(self) -> None:
        self._step(
            "Delete",
            "The set goes last: before it its pod, then its tags. Proof: nothing is left on a node or in the registry.",
        )
        command = ("delete", "cset", self._world.name, "--namespace", self._world.namespace, "--wait=false")
        self._transition("delete", command, GONE, budget=2)
        for tag in ("hibernate", "latest"):
            self._prove(f"{self._world.vm_name}:{tag} does not exist", not self._world.tag(tag))

    # -- how a step is done --------------------------------------------------------------------------------------------

    def _step(self, title: str, sentence: str) -> None:
        self._number += 1
        self._view.step(self._number, title, sentence)

    def _patch(self, **spec: Any) -> tuple[str, ...]:
        body = json.dumps({"spec": spec}, separators=(",", ":"))
        return ("patch", "cset", self._world.name, "--namespace", self._world.namespace, "--type=merge", "-p", body)

    def _transition(self, title: str, command: tuple[str, ...], goal: Goal, *, budget: int) -> Look:
        """Run a command, show what happens until the goal is reached and lasts, and count what the operator wrote."""
        mark = self._audit.mark()
        self._view.command(f"kubectl {shlex.join(command)}")
        self._view.begin()
        try:
            began = time.monotonic()
            self._kubectl(*command)
            look, seconds = self._watch(goal, began)
        finally:
            self._view.end()
        writes = self._audit.writes(mark, namespace=self._world.namespace, name=self._world.name)
        outcome = Outcome(title, seconds, writes, budget)
        self.outcomes.append(outcome)
        self._view.writes(outcome)
        return look

    def _watch(self, goal: Goal, began: float) -> tuple[Look, float]:
        """The last look, once the goal has lasted, and after how many seconds it was reached."""
        shown, reached = None, None
        while True:
            look, now = self._world.look(), time.monotonic() - began
            if look.row != shown:
                shown = look.row
                self._view.row(now, shown)
            if not goal.reached(look):
                self._check_patience(goal, shown, now, reached)
            elif reached is None:
                reached = now
            elif now >= reached + self._settle:
                return look, reached
            time.sleep(_POLL_SECONDS)

    def _check_patience(self, goal: Goal, shown: Row, now: float, reached: float | None) -> None:
        if reached is not None:
            raise DemoFailedError(f"It did not last: {goal.words}. Last seen: {shown}")
        if now > self._patience:
            raise DemoFailedError(f"Not within {self._patience:g} seconds: {goal.words}. Last seen: {shown}")

    def _write(self, look: Look, line: str) -> None:
        self._world.agent.write_work(look.node, self._world.vm_name, line)
        self._view.say(f"   (somebody works in the VM: {line!r})")

    def _prove_same_memory(self, before: Look, after: Look, work: list[str]) -> None:
        self._prove(f"the work is there: {', '.join(after.work)}", after.work == work)
        same_boot = after.vm["boot_id"] == before.vm["boot_id"]
        ids = f"VM {short(before.vm['id'])} became {short(after.vm['id'])}"
        self._prove(f"{ids}, and it was never booted anew", same_boot and after.vm["id"] != before.vm["id"])

    def _prove(self, text: str, holds: bool) -> None:
        if not holds:
            raise DemoFailedError(f"It should be so, and is not: {text}.")
        self._view.proof(text)


def _moved(before: Look, after: Look) -> bool:
    return bool(after.pod_uid) and after.pod_uid != before.pod_uid and after.node == before.node


def _digest(digest: str) -> str:
    return short(digest.removeprefix("sha256:"))
