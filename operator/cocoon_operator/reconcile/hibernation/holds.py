"""Which CocoonHibernation decides about a pod, and whether it keeps the VM asleep: read from the objects (design 4.2)."""

from __future__ import annotations

from collections.abc import Iterable

from cocoon_operator.api.enums import Desire
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.names import vm_name_of_pod
from cocoon_operator.reconcile.hibernation.machine import FAILED, HIBERNATED, WAKING, going_to_sleep


def deciders(hibernations: Iterable[Hibernation]) -> dict[str, Hibernation]:
    """Pod name to the CocoonHibernation that decides about it: the oldest living one (W-45, S302 to S304)."""
    found: dict[str, Hibernation] = {}
    for item in sorted(hibernations, key=lambda h: (h.creation_timestamp, h.uid)):
        if item.pod_name and not item.deleting:
            found.setdefault(item.pod_name, item)
    return found


def holds(target: Hibernation) -> bool:
    """Whether it asks for sleep now: by its desire, or by a hibernation that is still under way (S190, S191)."""
    return target.desire in tuple(Desire) and going_to_sleep(target)


def spec_error(target: Hibernation) -> str:
    """What is wrong with a spec that the CRD would refuse today (S017, S270, W-61); "" when nothing is."""
    if not target.pod_name:
        return "spec.podRef.name is required"
    if target.desire not in tuple(Desire):
        return f'unknown desire "{target.desire}"'
    return ""


def told_saved(hibernations: Iterable[Hibernation]) -> frozenset[str]:
    """The computed VM names that a living one calls saved; another name in its status is nobody's word (W-63)."""
    return frozenset(
        item.vm_name
        for item in hibernations
        if not item.deleting
        and item.phase == HIBERNATED
        and item.vm_name == vm_name_of_pod(item.namespace, item.pod_name)
    )


def may_leave_a_tag(target: Hibernation) -> bool:
    """Whether its phase says that its VM sleeps, or that a wake was begun whose end would have dropped the tag."""
    failed_to_wake = target.phase == FAILED and target.desire == Desire.WAKE and not spec_error(target)
    return target.phase in (HIBERNATED, WAKING) or failed_to_wake
