"""The main agent: made, remade when the user changed it, waited for (R10 to R12, contract 4.9.2)."""

from __future__ import annotations

from cocoon_operator.api.enums import SetPhase
from cocoon_operator.reconcile.creation import make
from cocoon_operator.reconcile.drift import agent_drifted, patch_in_place
from cocoon_operator.reconcile.members import main_member
from cocoon_operator.reconcile.replace import replaceable
from cocoon_operator.reconcile.run import Next, Run


async def step(run: Run) -> Next:
    """See to it that there is a main agent, and that it is what the spec asks for."""
    main = run.main
    member = main_member(run.set)
    if run.held(member.pod_name):
        run.phase = run.phase or SetPhase.PENDING
        return Next.STOP
    if main is None:
        return await create(run)
    if agent_drifted(main, run.spec):
        if await replaceable(run, main):
            if await run.delete(main):
                run.event("Normal", "Recreating", f"{member.vm_name} is made again for the edited spec")
            run.phase = SetPhase.PENDING
            return Next.STOP
        run.detail = f"waiting for {member.vm_name} to be ready before it is made again for the edited spec"
    else:
        await run.annotate(main, patch_in_place(main, run.spec, member))
    if not main.ready:
        run.phase = run.phase or SetPhase.PENDING
        return Next.STOP
    return Next.GO_ON


async def create(run: Run) -> Next:
    """Make the main agent's pod from what the registry says it can be made from."""
    member = main_member(run.set)
    if any(pod.name == member.pod_name for pod in run.owned):
        run.phase = run.phase or _phase(run)
        run.detail = f"waiting for the terminating pod {member.pod_name} to go"
        return Next.STOP
    asked = run.phase
    if await make(run, [member]) is Next.PERSIST:
        run.phase = asked or run.phase or _phase(run)
        return Next.PERSIST
    run.phase = asked or _phase(run)
    return Next.STOP


def _phase(run: Run) -> SetPhase:
    """``Waking`` or ``Migrating`` while saved state is on record, else ``Pending``."""
    if run.spec.suspend or not run.records:
        return SetPhase.PENDING
    return SetPhase.MIGRATING if run.stored_phase == SetPhase.MIGRATING else SetPhase.WAKING
