"""What one pod says about its VM, read purely (``docs/design/intent.md``, "What a pod says")."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from cocoon_operator.api.enums import LifecycleState
from cocoon_operator.api.pod import Pod

HIBERNATE_FAILURE: Final = "hibernate: "


class Fact(Enum):
    """One reading of a pod; the first that fits, in this order."""

    DEAD = auto()
    """The pod or its VM failed for good: nothing retries."""
    LOST = auto()
    """Lifecycle ``failed`` without a VM: a sleeping VM if its tag exists, else a boot that failed."""
    ASLEEP = auto()
    """The VM was saved and removed, and the agent says so."""
    AWAKE = auto()
    """The VM is proven live: the only reading that lets a tag be dropped."""
    LIVING = auto()
    """There is a VM, whatever its lifecycle says; what it holds may be unsaved."""
    STARTING = auto()
    """Everything else: not scheduled, booting, restoring, falling asleep."""


def read(pod: Pod) -> Fact:
    """Read a pod. Generations are not looked at here: whoever needs an echo compares it (:func:`asleep_at`)."""
    if pod.status.phase in ("Failed", "Succeeded"):
        return Fact.DEAD
    if pod.lifecycle == LifecycleState.FAILED:
        return _read_failed(pod)
    if pod.lifecycle == LifecycleState.HIBERNATED:
        return Fact.ASLEEP
    if has_vm(pod):
        return Fact.AWAKE if _proven_live(pod) else Fact.LIVING
    return Fact.STARTING


def begun(pod: Pod) -> bool:
    """Whether the agent's create call has begun: it looks at the flag in updates only (R3.1), so an earlier one is never seen."""
    return pod.lifecycle != "" or pod.vm_id != ""


def has_vm(pod: Pod) -> bool:
    """Id and a running container (contract ``vmLive``): enough to call a VM living, too weak to drop its tag (W-58)."""
    return pod.vm_id != "" and pod.running


def no_vm(pod: Pod) -> bool:
    """Neither id nor running container, or no node yet: there is no VM that could hold unsaved work."""
    return pod.spec.node_name == "" or (pod.vm_id == "" and not pod.running)


def asleep_at(pod: Pod, generation: int) -> bool:
    """Whether the agent says ``hibernated`` for at least this generation (S139)."""
    return pod.lifecycle == LifecycleState.HIBERNATED and pod.observed_generation >= generation and not has_vm(pod)


def failed_to_hibernate(pod: Pod) -> bool:
    """A save that failed leaves a *living* VM behind, unless the pod was given up (W-62)."""
    return (
        pod.lifecycle == LifecycleState.FAILED
        and pod.lifecycle_message.startswith(HIBERNATE_FAILURE)
        and not pod.dead_letter
        and pod.status.phase != "Failed"
    )


def _read_failed(pod: Pod) -> Fact:
    if failed_to_hibernate(pod):
        return Fact.LIVING
    return Fact.LOST if no_vm(pod) else Fact.DEAD


def _proven_live(pod: Pod) -> bool:
    """Invariant I2, on one read of the pod: its caller takes care that the read is live."""
    if pod.hibernate:
        return False
    if pod.lifecycle == "":
        return True
    return pod.lifecycle == LifecycleState.READY and pod.observed_generation >= pod.generation
