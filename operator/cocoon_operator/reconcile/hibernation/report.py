"""What a CocoonHibernation says of itself: status, events and durations, each told once an edge of the phase (W-18)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cocoon_operator.api import conditions
from cocoon_operator.api.durations import go_duration
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.reconcile.context import Context
from cocoon_operator.reconcile.hibernation.holds import spec_error
from cocoon_operator.reconcile.hibernation.machine import (
    ACTIVE,
    FAILED,
    HIBERNATED,
    HIBERNATING,
    PENDING,
    WAKING,
    Limits,
    Verdict,
    going_to_sleep,
)
from cocoon_operator.reconcile.ports import Measures, Recorder

_DONE: Final = (HIBERNATED, ACTIVE)


async def store(
    ctx: Context, target: Hibernation, verdict: Verdict, *, vm_name: str, why: str, now: datetime
) -> Hibernation:
    """Write the status if it says anything new, then tell what it means. Returns the object as it is stored."""
    patch = status_of(target, verdict, vm_name=vm_name, why=why, limits=ctx.limits, now=now)
    if not patch:
        return target
    after = await ctx.cluster.patch_hibernation_status(target, patch)
    tell(target, after, vm_name=vm_name, limits=ctx.limits, now=now, recorder=ctx.recorder, measures=ctx.measures)
    return after


def status_of(
    target: Hibernation, verdict: Verdict, *, vm_name: str, why: str, limits: Limits, now: datetime
) -> dict[str, Any]:
    """The merge patch for the status; empty when what is stored says it all (contract 1.7, 1.8, S268, S269).

    ``why`` is the message of ``Pending`` and of an error in the spec. The clock begins anew with a transition (1.7).
    """
    begins = verdict.phase in (HIBERNATING, WAKING) and verdict.phase != target.phase
    done = verdict.phase in _DONE
    reason = "Done" if done else "Failed" if verdict.phase == FAILED else "Pending"
    message = _message(target, verdict.phase, why, limits)
    ready = conditions.fresh_ready(done, reason, message, target.generation)
    wanted: dict[str, Any] = {
        "observedGeneration": target.generation,
        "phase": str(verdict.phase),
        "conditions": conditions.set_condition(target.conditions, ready, now, restart=begins),
    }
    if vm_name and verdict.phase not in (PENDING, FAILED):
        wanted["vmName"] = vm_name
    stored = {
        "observedGeneration": target.observed_generation,
        "phase": target.phase,
        "conditions": [dict(entry) for entry in target.conditions],
        "vmName": target.vm_name,
    }
    return {key: value for key, value in wanted.items() if stored[key] != value}


def tell(
    before: Hibernation,
    after: Hibernation,
    *,
    vm_name: str,
    limits: Limits,
    now: datetime,
    recorder: Recorder,
    measures: Measures,
) -> None:
    """Tell what the status that was just written means. An error in the spec ends no transition: its condition says it all."""
    old, new = before.phase, after.phase
    if old == new or spec_error(after):
        return
    if old == FAILED and new in (HIBERNATING, WAKING):
        asked = "Hibernate" if new == HIBERNATING else "Wake"
        recorder.event(after, "Normal", "RetryRequested", f"retrying {asked} after prior failure")
    if told := _EVENTS.get((old if new == FAILED else "", new)):
        kind, reason, text = told
        values = {
            "vm": vm_name,
            "pod": f"{after.namespace}/{after.pod_name}",
            "hibernate": go_duration(limits.hibernate),
            "wake": go_duration(limits.wake),
        }
        recorder.event(after, kind, reason, text.format_map(values))
    _measure(before, new, now, measures)


_EVENTS: Final[Mapping[tuple[str, str], tuple[str, str, str]]] = {
    ("", HIBERNATED): ("Normal", "Hibernated", "snapshot {vm} pushed to the registry"),
    ("", ACTIVE): ("Normal", "WokenActive", "pod {pod} is running"),
    (HIBERNATING, FAILED): (
        "Warning",
        "HibernateTimedOut",
        "snapshot {vm} not confirmed in the registry within {hibernate}",
    ),
    (WAKING, FAILED): ("Warning", "WakeTimedOut", "vk-cocoon did not report the container running within {wake}"),
}


_HISTOGRAMS: Final[Mapping[str, str]] = {
    HIBERNATING: "hibernate_phase_duration_seconds",
    WAKING: "wake_phase_duration_seconds",
}
_RESULTS: Final[Mapping[str, str]] = {HIBERNATED: "ok", ACTIVE: "ok", FAILED: "timeout"}


def _measure(before: Hibernation, new: str, now: datetime, measures: Measures) -> None:
    """How long a transition took, one sample a transition; what was there at once is none (contract 5.5, S295)."""
    histogram = _HISTOGRAMS.get(before.phase)
    since = before.ready_since
    result = _RESULTS.get(new)
    if histogram and result and since is not None:
        measures.observe(histogram, (now - since).total_seconds(), result=result)


def _message(target: Hibernation, phase: str, why: str, limits: Limits) -> str:
    if phase == PENDING:
        return why
    if phase != FAILED:
        return str(phase)
    if why:
        return why
    if target.phase == FAILED:
        return str(target.ready.get("message", ""))
    if going_to_sleep(target):
        return f"hibernate not confirmed within {go_duration(limits.hibernate)}"
    return f"wake timed out after {go_duration(limits.wake)}; vk-cocoon never reported the container running"
