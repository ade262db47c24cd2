"""Who belongs to a set: the VMs its spec names, and the pods that stand for them (contract 3.1, 3.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cocoon_operator.api import names
from cocoon_operator.api.cocoonset import CocoonSetSpec, ToolboxSpec
from cocoon_operator.api.enums import Role, ToolboxMode
from cocoon_operator.api.pod import Pod, parse_int
from cocoon_operator.reconcile.objects import SetObject


@dataclass(frozen=True, slots=True)
class Member:
    """One VM that a set can have. ``slot`` is the text of the slot label: a number, or a toolbox's name."""

    role: Role
    slot: str
    pod_name: str
    vm_name: str
    managed: bool = True
    toolbox: ToolboxSpec | None = None


def main_member(target: SetObject) -> Member:
    """The main agent, which every set has."""
    return _member(target, Role.MAIN, "0")


def members_of(target: SetObject, spec: CocoonSetSpec) -> tuple[Member, ...]:
    """Every VM the spec names: main, sub-agents by slot, toolboxes in the spec's order."""
    subs = (_member(target, Role.SUB_AGENT, str(slot)) for slot in range(1, spec.agent.replicas + 1))
    boxes = (_member(target, Role.TOOLBOX, box.name, box) for box in spec.toolboxes)
    return (main_member(target), *subs, *boxes)


def member_of(target: SetObject, spec: CocoonSetSpec, pod: Pod) -> Member | None:
    """The member that a pod stands for; None when the spec has no place for it (any more)."""
    for member in members_of(target, spec):
        if member.pod_name == pod.name and member.role == pod.role and member.slot == pod.slot:
            return member
    return None


def vm_name_of(target: SetObject, pod: Pod) -> str:
    """The VM name that is *computed* for an owned pod from its labels, never the annotation a user can write (W-63).

    "" for a pod whose labels give it no place in the set.
    """
    if pod.role == Role.MAIN:
        return names.vm_name(target.namespace, target.name, 0)
    if (pod.role == Role.SUB_AGENT and slot_number(pod) is not None) or (pod.role == Role.TOOLBOX and pod.slot):
        return names.vm_name(target.namespace, target.name, pod.slot)
    return ""


def slot_number(pod: Pod) -> int | None:
    """The slot of an agent's pod as an int32, None when the label is something else (S089)."""
    value = parse_int(pod.slot)
    return value if str(value) == pod.slot and 0 <= value < 2**31 else None


def owned(target: SetObject, pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods this very set controls, in name order; a namesake's are nobody's here (S091)."""
    return tuple(sorted((pod for pod in pods if pod.owned_by(target.uid)), key=lambda pod: pod.name))


def _member(target: SetObject, role: Role, slot: str, toolbox: ToolboxSpec | None = None) -> Member:
    return Member(
        role=role,
        slot=slot,
        pod_name=names.pod_name(target.name, slot),
        vm_name=names.vm_name(target.namespace, target.name, slot),
        managed=toolbox is None or toolbox.mode is not ToolboxMode.STATIC,
        toolbox=toolbox,
    )
