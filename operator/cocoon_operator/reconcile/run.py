"""One pass over one set: the view as it changes under the pass's own writes, and what the pass found out for the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Answer
from cocoon_operator.api.cocoonset import CocoonSetSpec
from cocoon_operator.api.enums import Desire, SetPhase
from cocoon_operator.api.errors import ConflictError, KubeError, NotFoundError
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import records
from cocoon_operator.reconcile.context import Context
from cocoon_operator.reconcile.hibernation.holds import deciders, holds, told_saved
from cocoon_operator.reconcile.members import owned, vm_name_of
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.view import View


@dataclass(slots=True)
class Memory:
    """What a process knows of a set beyond what is stored. Losing it costs a request or a second, never a decision."""

    dropped: dict[str, str] = field(default_factory=dict)
    """VM name to UID of the pod behind which its tag was dropped, until the status says so for the whole set."""
    changed_at: datetime | None = None
    """When the status first differed from the stored one without an edge."""
    written_at: datetime | None = None
    """When a status without an edge was last written."""
    saved: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Pod UID to the generation in which its save was proven, and the digest: not asked again in the same suspend."""
    hibernated_at: dict[str, datetime] = field(default_factory=dict)
    """Pod UID to when it was first seen hibernated with a container still running."""
    cleared_at: dict[str, datetime] = field(default_factory=dict)
    """Pod UID to when the flag of a stalled save was cleared."""
    told: set[tuple[str, str]] = field(default_factory=set)
    """Troubles (reason, message) that were told and still hold."""
    looked_at: dict[str, datetime] = field(default_factory=dict)
    """VM name to when the tag of a VM that is kept asleep was last seen."""
    stalled_at: datetime | None = None
    """When a save first looked stalled, until that is stored."""


class Next(Enum):
    """How a step ends."""

    GO_ON = auto()
    STOP = auto()
    """Nothing after this step makes sense now; the status is written."""
    PERSIST = auto()
    """The status has to be stored before the next write; then the chain starts again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The reason why the set is not what it shall be, for condition ``Ready``."""

    reason: str
    message: str
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """Condition ``SnapshotCurrent`` (``docs/design/intent.md``, "Who remembers that a tag exists")."""

    status: str
    reason: str
    message: str = ""


class Run:
    """State of one pass. Steps read it, write through it, and leave behind what the status shall say."""

    def __init__(self, ctx: Context, view: View, target: SetObject, memory: Memory) -> None:
        self.ctx = ctx
        self.now = view.now
        self.set = target
        self.memory = memory
        self.pods: dict[str, Pod] = {pod.name: pod for pod in view.pods}
        self.hibernations: dict[str, Hibernation] = {item.name: item for item in view.hibernations}
        self.driven = view.driven
        self.deciders = deciders(view.hibernations)
        self.holders = {pod: item.name for pod, item in self.deciders.items() if holds(item)}
        self.records: dict[str, str] = records.digests(target)
        self.told = told_saved(view.hibernations) - {vm_name_of(target, pod) for pod in self.live}
        """VM names without a pod that a CocoonHibernation calls saved: all there is of a set that the Go operator made."""
        self.records.update((name, "") for name in self.told - self.records.keys())
        self.given_up: set[str] = set()
        """VM names whose saved state the user gave up in this pass."""
        self.answers: dict[tuple[str, str], Answer] = {}
        self.begin()

    def begin(self) -> None:
        """Forget what an earlier round of this pass found; what it wrote and was answered stays."""
        self.phase: SetPhase | None = None
        self.detail = ""
        self.findings: list[Finding] = []
        self.snapshot: SnapshotState | None = None
        self.errors: list[Exception] = []
        self.requeue: float | None = None
        self.collection: tuple[str, str] | None = None
        self.stalled: tuple[str, str, str] | None = None
        self.on_time: tuple[str, str, str] | None = None
        self.holding: set[tuple[str, str]] = set()
        self.unanswered: set[str] = set()
        """VM names whose tag's drop was tried in this pass without an answer."""
        self.at_rest = False
        """What is missing of the set is kept asleep by a CocoonHibernation, and nothing else is under way (W-49)."""
        self.silent = False

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def spec(self) -> CocoonSetSpec:
        """The typed spec; steps behind ``obstacles`` may rely on it."""
        assert self.set.spec is not None
        return self.set.spec

    @property
    def owned(self) -> tuple[Pod, ...]:
        """The set's own pods, terminating ones too, in name order."""
        return owned(self.set, self.pods.values())

    @property
    def live(self) -> tuple[Pod, ...]:
        """The set's own pods that are not terminating (contract 3.7)."""
        return tuple(pod for pod in self.owned if not pod.terminating)

    @property
    def main(self) -> Pod | None:
        """The live pod of the main agent."""
        return next((pod for pod in self.live if pod.role == "main"), None)

    @property
    def own_names(self) -> frozenset[str]:
        return records.own_names(self.set, self.owned)

    def vm_name(self, pod: Pod) -> str:
        return vm_name_of(self.set, pod)

    def held(self, pod_name: str) -> bool:
        """Whether a CocoonHibernation keeps this pod's VM asleep."""
        return pod_name in self.holders

    def claimed(self, pod_name: str) -> bool:
        """As :meth:`held`, or asked to sleep again while the wake before is still under way: it is nothing to be removed."""
        decider = self.deciders.get(pod_name)
        return self.held(pod_name) or (decider is not None and decider.desire == Desire.HIBERNATE)

    def stored(self, kind: str) -> Mapping[str, Any]:
        """A condition as it is stored, unless another operator has made it untrue."""
        found = records.condition(self.set, kind)
        return {} if records.overtaken(self.set, found, self.hibernations.values()) else found

    @property
    def stored_phase(self) -> str:
        phase = self.set.status.get("phase")
        return phase if isinstance(phase, str) else ""

    # -- writing ---------------------------------------------------------------------------------------------------

    async def annotate(self, pod: Pod, changes: Mapping[str, str | None], *, guarded: bool = False) -> Pod | None:
        """Patch a pod, the generation stamp along with it; no request when nothing would change (S041, W-35).

        None when the pod is gone (W-52).
        """
        stamp = str(self.set.generation)
        patch = {**changes, keys.GENERATION: stamp}
        patch = {key: value for key, value in patch.items() if pod.annotations.get(key) != value}
        if not patch:
            return pod
        if patch.get(keys.HIBERNATE) == "true":
            # A new save begins: what was dropped behind this VM before is no longer the whole story.
            self.memory.dropped.pop(self.vm_name(pod), None)
            self.memory.saved.pop(pod.uid, None)
        try:
            answer = await self.ctx.cluster.patch_pod(pod, patch, guarded=guarded)
        except NotFoundError:
            self.pods.pop(pod.name, None)
            return None
        self.pods[pod.name] = answer
        return answer

    async def delete(self, pod: Pod) -> bool:
        """Delete a pod exactly as the view shows it. False when it was gone already."""
        accepted = await self.ctx.cluster.delete_pod(pod)
        if pod.terminating or not accepted:
            self.pods.pop(pod.name, None)
        else:
            self.pods[pod.name] = _terminating(pod, self.now)
        return accepted

    async def create(self, body: Mapping[str, Any]) -> Pod:
        pod = await self.ctx.cluster.create_pod(self.set.namespace, body)
        self.pods[pod.name] = pod
        return pod

    async def annotate_set(self, changes: Mapping[str, str | None], *, finalizers: Sequence[str] | None = None) -> None:
        """Patch the set's metadata; no request when nothing would change."""
        patch = {key: value for key, value in changes.items() if self.set.annotations.get(key) != value}
        if patch or finalizers is not None:
            self.set = await self.ctx.cluster.patch_set(self.set, annotations=patch or None, finalizers=finalizers)

    def event(self, kind: str, reason: str, message: str) -> None:
        self.ctx.recorder.event(self.set, kind, reason, message)

    # -- reporting -------------------------------------------------------------------------------------------------

    def find(self, reason: str, message: str, *, unknown: bool = False) -> None:
        """Report why the set is not what it shall be."""
        self.findings.append(Finding(reason, message, unknown=unknown))

    def trouble(self, reason: str, message: str, *, unknown: bool = False) -> bool:
        """Report a finding, with a Warning event when it is news; True when it was (W-31).

        News is what neither this process has told nor the stored status says.
        """
        self.find(reason, message, unknown=unknown)
        ready = self.stored("Ready")
        return self.warn(reason, message, known=ready.get("reason") == reason and ready.get("message") == message)

    def warn(self, reason: str, message: str, *, known: bool) -> bool:
        """Emit a Warning event unless it was told already and holds since; True when it was news."""
        self.holding.add((reason, message))
        news = not known and (reason, message) not in self.memory.told
        if news:
            self.event("Warning", reason, message)
        return news

    def fail(self, error: Exception) -> None:
        """Remember an error: the pass goes on where it can, the status is written, the key is retried with back-off."""
        self.errors.append(error)
        if isinstance(error, KubeError) and not isinstance(error, ConflictError):
            self.find("APIError", error.message)

    def come_back(self, seconds: float) -> None:
        """Run again in at most this time, if no event comes first."""
        self.requeue = seconds if self.requeue is None else min(self.requeue, seconds)


def _terminating(pod: Pod, now: datetime) -> Pod:
    """The pod as it looks after an accepted delete, until the watch says so."""
    stamped = msgspec.structs.replace(pod.metadata, deletion_timestamp=now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return msgspec.structs.replace(pod, metadata=stamped)
