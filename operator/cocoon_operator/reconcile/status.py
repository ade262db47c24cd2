"""The status, computed once a pass, and whether it is written now (contract 1.4 to 1.7, 4.13; design 3)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from cocoon_operator.api import conditions, keys
from cocoon_operator.api.conntype import connection_type_of
from cocoon_operator.api.enums import Role, SetPhase
from cocoon_operator.api.pod import Pod, parse_int
from cocoon_operator.reconcile import milestones, records, slow, stalled, tags, transitions
from cocoon_operator.reconcile.members import Member, members_of, slot_number
from cocoon_operator.reconcile.run import Run, SnapshotState
from cocoon_operator.reconcile.steps.deletion import COLLECTION

WINDOW: Final = timedelta(seconds=2)
"""How long a change without an edge waits for company."""
PERIOD: Final = timedelta(seconds=10)
"""How often, at most, changes without an edge are written."""
TEXT_LIMIT: Final = 253
"""Characters of an id or an address that a pod claims: no real one is longer, and a status has to fit into an object."""
MESSAGE_LIMIT: Final = 32_768
"""Characters of a condition's message that the API server takes."""

_MOVING: Final = frozenset(
    {SetPhase.PENDING, SetPhase.SCALING, SetPhase.SUSPENDING, SetPhase.WAKING, SetPhase.MIGRATING},
)


async def write(run: Run, *, now: bool = False) -> None:
    """Write the status if it differs from the newest stored one, and if it is due.

    Edges (phase, observed generation, a condition's status or reason) are written at once, other fields along with one or
    after a window, so that a pod that comes up in five small steps costs one write. The newest stored status is the answer of
    our own last write or something newer, never a cache that lags (W-60).
    """
    wanted = build(run)
    patch = difference(run.set.status, wanted)
    if not patch:
        run.memory.changed_at = None
        return
    if not now and not has_edge(run.set.status, wanted):
        wait = _wait(run)
        if wait > timedelta():
            run.come_back(wait.total_seconds())
            return
        run.memory.written_at = run.now
    run.memory.changed_at = None
    before = run.set
    run.set = await run.ctx.cluster.patch_set_status(run.set, patch)
    milestones.tell(run, before)
    transitions.measure(run, before)


def build(run: Run) -> dict[str, Any]:
    """The whole status of the set as this pass sees it."""
    agents, toolboxes = _agents(run), _toolboxes(run)
    ready_agents = sum(pod.ready for pod in run.live if pod.role in (Role.MAIN, Role.SUB_AGENT))
    ready_toolboxes = sum(pod.ready for pod in run.live if pod.role == Role.TOOLBOX)
    spec = run.set.spec
    counts = {
        "readyAgents": ready_agents,
        "desiredAgents": 1 + spec.agent.replicas if spec else 1,
        "readyToolboxes": ready_toolboxes,
        "desiredToolboxes": len(spec.toolboxes) if spec else 0,
    }
    phase = run.phase or _derive_phase(run, counts)
    return {
        "observedGeneration": run.set.generation,
        "phase": phase.value,
        **counts,
        "agents": agents or None,
        "toolboxes": toolboxes or None,
        "conditions": _conditions(run, phase, counts),
    }


def difference(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch between two statuses: changed fields only, lists whole, zero counters stored too (W-55)."""
    return {
        key: value
        for key, value in wanted.items()
        if (key not in stored and value is not None)
        or (key in stored and stored[key] != value and not (value is None and not stored[key]))
    }


def has_edge(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether something a user waits for changes: phase, observed generation, a condition's status or reason."""
    if any(stored.get(key) != wanted[key] for key in ("phase", "observedGeneration")):
        return True
    return _edges(stored.get("conditions")) != _edges(wanted["conditions"])


def _edges(value: Any) -> dict[str, tuple[str, str]]:
    entries = value if isinstance(value, list) else []
    return {
        str(entry.get("type")): (str(entry.get("status")), str(entry.get("reason")))
        for entry in entries
        if isinstance(entry, Mapping)
    }


def _wait(run: Run) -> timedelta:
    if run.memory.changed_at is None:
        run.memory.changed_at = run.now
    due = run.memory.changed_at + WINDOW
    if run.memory.written_at is not None:
        due = max(due, run.memory.written_at + PERIOD)
    return due - run.now


# -- phase -------------------------------------------------------------------------------------------------------------


def _derive_phase(run: Run, counts: Mapping[str, int]) -> SetPhase:
    """The phase when no step named one (S092 to S096)."""
    if run.main is None:
        return SetPhase.PENDING
    missing = counts["readyAgents"] < counts["desiredAgents"] or counts["readyToolboxes"] < counts["desiredToolboxes"]
    return SetPhase.SCALING if missing else SetPhase.RUNNING


# -- entries -----------------------------------------------------------------------------------------------------------


def _agents(run: Run) -> list[dict[str, Any]]:
    """Main first, then sub-agents by slot; a member that is asleep without a pod is listed while its save is on record."""
    main = run.main
    fork_source = main.vm_name if main else ""
    entries: dict[int, dict[str, Any]] = {}
    for pod in run.live:
        slot = 0 if pod.role == Role.MAIN else slot_number(pod) if pod.role == Role.SUB_AGENT else None
        if slot is not None:
            entries[slot] = _filled(
                {
                    "slot": slot,
                    "role": pod.role,
                    **_common(run, pod),
                    "forkedFrom": fork_source if pod.role == Role.SUB_AGENT else "",
                }
            )
    for member in _asleep_without_pod(run):
        if member.role is not Role.TOOLBOX:
            slot = int(member.slot)
            entries.setdefault(slot, {"slot": slot, "role": member.role.value, **_remembered(run, member)})
    return [entries[slot] for slot in sorted(entries)]


def _toolboxes(run: Run) -> list[dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}
    for pod in run.live:
        if pod.role == Role.TOOLBOX and pod.slot:
            vnc_port = parse_int(pod.annotations.get(keys.VNC_PORT))
            entries[pod.slot] = _filled(
                {
                    "name": pod.slot,
                    **_common(run, pod),
                    "vncPort": vnc_port if 0 < vnc_port < 2**31 else 0,
                    "connType": connection_type_of(pod.annotations),
                }
            )
    for member in _asleep_without_pod(run):
        if member.role is Role.TOOLBOX:
            entries.setdefault(member.slot, {"name": member.slot, **_remembered(run, member)})
    return [entries[name] for name in sorted(entries)]


def _common(run: Run, pod: Pod) -> dict[str, Any]:
    return {
        "podName": pod.name,
        "vmName": pod.vm_name,
        "vmID": pod.vm_id[:TEXT_LIMIT],
        "ip": pod.annotations.get(keys.VM_IP, "")[:TEXT_LIMIT],
        "phase": pod.status.phase,
        "snapshotDigest": run.records.get(run.vm_name(pod), ""),
    }


def _asleep_without_pod(run: Run) -> list[Member]:
    """Members whose pod is gone while the save is on record in the status (a released seat's is in an annotation)."""
    if run.set.spec is None:
        return []
    there = {run.vm_name(pod) for pod in run.live}
    annotated = records.annotated_digests(run.set)
    return [
        member
        for member in members_of(run.set, run.set.spec)
        if member.vm_name not in there and run.records.get(member.vm_name) and member.vm_name not in annotated
    ]


def _remembered(run: Run, member: Member) -> dict[str, Any]:
    return {"vmName": member.vm_name, "snapshotDigest": run.records[member.vm_name]}


def _filled(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Without empty values, but for the slot, which may be 0."""
    return {key: value for key, value in entry.items() if value or key == "slot"}


# -- conditions --------------------------------------------------------------------------------------------------------


def _conditions(run: Run, phase: SetPhase, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    stored = run.set.status.get("conditions")
    merged: list[dict[str, Any]] = [dict(entry) for entry in stored or [] if isinstance(entry, Mapping)]
    fresh = [_ready(run, phase, counts), _progressing(run, phase)]
    if (snapshot := _snapshot(run)) is not None:
        fresh.append(_condition(run, tags.CONDITION, snapshot.status, snapshot.reason, snapshot.message))
    if run.stalled is not None and (run.stalled[0] == "True" or run.stored(stalled.CONDITION)):
        fresh.append(_condition(run, stalled.CONDITION, *run.stalled))
    if run.on_time is not None:
        entry = _condition(run, slow.CONDITION, *run.on_time)
        merged = conditions.set_condition(merged, entry, run.now, restart=slow.begins(run))
    if run.collection is not None:
        fresh.append(_condition(run, COLLECTION, "False", *run.collection))
    for entry in fresh:
        merged = conditions.set_condition(merged, entry, run.now)
    return merged


def _ready(run: Run, phase: SetPhase, counts: Mapping[str, int]) -> dict[str, Any]:
    """``Ready`` looks at the phase too (W-24); the first finding says why not, ``Unknown`` if nobody could be asked."""
    text = (
        f"{counts['readyAgents']}/{counts['desiredAgents']} agents ready, "
        f"{counts['readyToolboxes']}/{counts['desiredToolboxes']} toolboxes ready"
    )
    if run.findings:
        finding = run.findings[0]
        known_ready = phase is SetPhase.RUNNING and finding.unknown
        if not known_ready:
            return _condition(run, "Ready", "Unknown" if finding.unknown else "False", finding.reason, finding.message)
    all_ready = (
        phase is SetPhase.RUNNING
        and counts["readyAgents"] == counts["desiredAgents"]
        and counts["readyToolboxes"] == counts["desiredToolboxes"]
    )
    return _condition(
        run, "Ready", "True" if all_ready else "False", "AllAgentsReady" if all_ready else "AgentsNotReady", text
    )


def _progressing(run: Run, phase: SetPhase) -> dict[str, Any]:
    """The phase, and what it waits for and since when: an absolute time, so that no clock causes a write."""
    moving = phase in _MOVING and not run.at_rest
    message = phase.value
    if run.detail:
        stored = run.stored("Progressing")
        before = stored.get("lastTransitionTime") if stored.get("status") == "True" else None
        since = f", since {str(before or conditions.timestamp(run.now))[11:]}" if moving else ""
        message = f"{phase.value}: {run.detail}{since}"
    return _condition(run, "Progressing", "True" if moving else "False", "Reconciling" if moving else "Stable", message)


def _snapshot(run: Run) -> SnapshotState | None:
    """What a step said, else what is stored, else, with a set's first status, that there is nothing yet."""
    if run.snapshot is not None:
        return run.snapshot
    stored = run.stored(tags.CONDITION)
    if stored:
        return SnapshotState(str(stored.get("status")), str(stored.get("reason")), str(stored.get("message", "")))
    return None if run.stored_phase else tags.state("True", tags.NO_SNAPSHOT)


def _condition(run: Run, kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:MESSAGE_LIMIT],
        "observedGeneration": run.set.generation,
    }
