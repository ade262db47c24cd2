"""A main agent that failed for good (R5, contract 4.9.1). Failed is not dead (W-62): see :mod:`..facts`."""

from __future__ import annotations

from cocoon_operator.api.answers import Absent
from cocoon_operator.api.enums import LifecycleState, SetPhase
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import tags
from cocoon_operator.reconcile.drift import agent_drifted
from cocoon_operator.reconcile.facts import Fact, failed_to_hibernate, read
from cocoon_operator.reconcile.run import Next, Run

_RETRIED = ("HibernateFailed", "WakeFailed")


async def step(run: Run) -> Next:
    """Park a dead main agent in ``Failed``, or make it again when the spec has changed since (S122)."""
    main = run.main
    if main is None:
        return Next.GO_ON
    if _tried_again(run, main):
        run.phase = SetPhase.FAILED
        run.find(str(run.stored("Ready").get("reason")), str(run.stored("Ready").get("message", "")))
        return Next.STOP
    if not await _dead(run, main):
        if run.stored_phase == SetPhase.FAILED and main.ready:
            run.event("Normal", "RecoveredFromFailure", f"main pod {main.namespace}/{main.name} is Ready again")
        _report_living_failure(run, main)
        return Next.GO_ON
    if agent_drifted(main, run.spec) and not run.spec.suspend:
        await run.delete(main)
        run.phase = SetPhase.PENDING
        return Next.STOP
    _report(run, main)
    return Next.STOP


def _tried_again(run: Run, main: Pod) -> bool:
    """The agent begins a failed boot again at once, many times a second: nothing is better before it is ready (W-31)."""
    again = main.lifecycle == LifecycleState.CREATING and not main.ready
    told = run.stored("Ready").get("reason") in ("PodLifecycleFailed", "MainAgentFailed")
    return again and told and run.stored_phase == SetPhase.FAILED


async def _dead(run: Run, main: Pod) -> bool:
    """Whether the pod failed for good. ``failed`` without a VM is a sleeping one as long as its tag exists."""
    fact = read(main)
    if fact is not Fact.LOST:
        return fact is Fact.DEAD
    vm_name = run.vm_name(main)
    absent = isinstance(await tags.probe(run, vm_name), Absent)
    if absent and vm_name in run.records:
        await tags.put_back(run, vm_name)
        return False
    return absent


def _report(run: Run, main: Pod) -> None:
    """Phase ``Failed``; event and counter once an incident, not once a pass (W-31)."""
    by_lifecycle = main.lifecycle == LifecycleState.FAILED
    reason = "PodLifecycleFailed" if by_lifecycle else "MainAgentFailed"
    message = f"main pod {main.namespace}/{main.name}: {main.lifecycle_message or main.status.phase}"
    if run.stored_phase != SetPhase.FAILED:
        if by_lifecycle:
            run.ctx.measures.count("lifecycle_state_failed_observed_total", phase=run.stored_phase or "Pending")
        run.event("Warning", reason, message)
    run.phase = SetPhase.FAILED
    run.find(reason, message)


def _report_living_failure(run: Run, main: Pod) -> None:
    """The agent retries a failed save or wake by itself; the user is told what it says, once until it is over."""
    if main.lifecycle != LifecycleState.FAILED:
        stored = run.stored("Ready")
        if stored.get("reason") in _RETRIED and read(main) in (Fact.STARTING, Fact.LIVING):
            # Between two attempts nothing has changed for the better.
            run.find(str(stored["reason"]), str(stored.get("message", "")))
        return
    reason = "HibernateFailed" if failed_to_hibernate(main) else "WakeFailed"
    message = f"main pod {main.namespace}/{main.name}: {main.lifecycle_message}; the node agent retries"
    if run.stored("Ready").get("reason") != reason:
        run.event("Warning", reason, message)
    run.find(reason, message)
    run.come_back(60)
