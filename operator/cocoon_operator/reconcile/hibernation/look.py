"""What is seen of the VM that a CocoonHibernation names, inside a set's run (contract 5.2 H3 to H5, 5.4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from cocoon_operator.api.answers import Absent, Present, Unknown
from cocoon_operator.api.enums import LifecycleState
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.names import vm_name_of_pod
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, tags
from cocoon_operator.reconcile.hibernation.machine import ACTIVE, HIBERNATED, Seen, going_to_sleep
from cocoon_operator.reconcile.members import members_of
from cocoon_operator.reconcile.run import Run
from cocoon_operator.reconcile.settling import status_follows
from cocoon_operator.reconcile.steps.surplus import is_surplus

LOOK_AGAIN: Final = timedelta(hours=1)
"""How often the tag of a VM that is kept asleep is looked at: nothing tells when somebody removes it (S285)."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen, the VM it was seen of, and for the phases that have no words of their own, why."""

    seen: Seen
    vm_name: str = ""
    why: str = ""


async def look(run: Run, target: Hibernation) -> Sight:
    """Look at the pod, and at the tag where the agent's word makes it matter."""
    if overruled := overruled_by(target, run.deciders.get(target.pod_name)):
        return overruled
    pod = next((pod for pod in run.live if pod.name == target.pod_name), None)
    vm_name = vm_name_of_pod(target.namespace, target.pod_name)
    if pod is not None and not pod.managed:
        return Sight(Seen.ABSENT, why=f"{_where(target)} is static: there is no VM that could be saved")
    if pod is not None and not pod.vm_name:
        return no_vm_name(target)
    seen = await _asleep(run, target, pod, vm_name) if going_to_sleep(target) else _awake(run, target, pod, vm_name)
    if seen is Seen.SUSPENDED:
        return Sight(seen, vm_name, _why_not_awake(run))
    return Sight(seen, vm_name, not_present(target) if pod is None else nothing_saved(pod))


def overruled_by(target: Hibernation, decider: Hibernation | None) -> Sight | None:
    """What there is to see for one that does not decide about its pod; None for the one that does."""
    if decider is None or decider.uid == target.uid:
        return None
    why = f"CocoonHibernation {decider.name}, which is older, decides about {_where(target)}"
    return Sight(Seen.OVERRULED, why=why)


def no_vm_name(target: Hibernation) -> Sight:
    """A pod that is not described as a VM yet (H5)."""
    return Sight(Seen.ABSENT, why=f"{_where(target)} has no vm.cocoonstack.io/name annotation yet")


def not_present(target: Hibernation) -> str:
    """The message for a pod that does not exist (H4)."""
    return f"{_where(target)} not yet present"


def _where(target: Hibernation) -> str:
    return f"pod {target.namespace}/{target.pod_name}"


def is_asleep(pod: Pod, target: Hibernation) -> bool:
    """Flag set, and the agent says ``hibernated`` for the pod's stamp, or that a wake failed before the VM was there.

    Once that was told, a stamp that moves on does not take it back (W-03).
    """
    if not pod.hibernate or facts.has_vm(pod):
        return False
    fits = target.phase == HIBERNATED or pod.observed_generation >= pod.generation
    return fits and (pod.lifecycle == LifecycleState.HIBERNATED or facts.read(pod) is facts.Fact.LOST)


def without_tag(pod: Pod) -> Seen:
    """What a pod without a VM is when there is no tag: a save that is not there yet, or a boot that failed."""
    return Seen.GONE if facts.read(pod) is facts.Fact.LOST else Seen.MOVING


def nothing_saved(pod: Pod) -> str:
    """The reason that goes with it."""
    return f"pod {pod.namespace}/{pod.name} has no VM, and nothing is saved of one: {pod.lifecycle_message or pod.lifecycle}"


async def _asleep(run: Run, target: Hibernation, pod: Pod | None, vm_name: str) -> Seen:
    if pod is None:
        if vm_name not in run.records:
            return _absent(run, vm_name)
        # A word without a digest is all the record there is, so it is not taken back for a tag that is missing (rule 4).
        only_told = vm_name in run.told and not run.records[vm_name]
        return await _saved(run, target, vm_name, Seen.UNANSWERED if only_told else Seen.GONE)
    if is_asleep(pod, target) and not status_follows(run, pod):
        return await _saved(run, target, vm_name, without_tag(pod))
    return Seen.MOVING


async def _saved(run: Run, target: Hibernation, vm_name: str, otherwise: Seen) -> Seen:
    """Whether the tag is there. Asked at each transition, and from time to time while it is needed."""
    known = target.phase == HIBERNATED and run.records.get(vm_name, "") != ""
    if known and run.now - run.memory.looked_at.setdefault(vm_name, run.now) < LOOK_AGAIN:
        return Seen.SAVED
    answer = await tags.probe(run, vm_name)
    if isinstance(answer, Absent) and (target.phase == HIBERNATED or tags.proven(run, vm_name)):
        answer = await tags.put_back(run, vm_name) or answer
    if isinstance(answer, Unknown):
        return Seen.UNANSWERED
    if not isinstance(answer, Present):
        return otherwise
    run.records[vm_name] = answer.digest
    run.memory.looked_at[vm_name] = run.now
    return Seen.SAVED


def _awake(run: Run, target: Hibernation, pod: Pod | None, vm_name: str) -> Seen:
    """Awake is what the set's own wake made of it: proven live, its tag dropped, or the drop on record as owed."""
    if target.phase == ACTIVE:
        return Seen.AWAKE
    if run.set.spec is not None and (run.spec.suspend or (pod is not None and is_surplus(run, pod))):
        return Seen.SUSPENDED
    if pod is None:
        return _absent(run, vm_name)
    return Seen.AWAKE if facts.read(pod) is facts.Fact.AWAKE and vm_name not in run.records else Seen.MOVING


def _absent(run: Run, vm_name: str) -> Seen:
    """Without a pod: for good once it was given up, or is neither in the spec nor among the names whose tags the set keeps."""
    if vm_name in run.given_up:
        return Seen.GONE
    if run.set.spec is None or vm_name in run.own_names:
        return Seen.ABSENT
    wanted = any(member.vm_name == vm_name for member in members_of(run.set, run.spec))
    return Seen.ABSENT if wanted else Seen.GONE


def _why_not_awake(run: Run) -> str:
    name = f"CocoonSet {run.set.namespace}/{run.set.name}"
    if run.spec.suspend:
        return f"{name} is suspended; the VM wakes with it"
    return f"{name} has no place for this VM any more; it is removed as soon as the main agent is ready"
