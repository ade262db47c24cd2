"""Sub-agents: forked from the main agent, rebuilt when they fail, made again when the user changes them (contract 4.10)."""

from __future__ import annotations

from cocoon_operator.api.enums import Role
from cocoon_operator.reconcile.members import members_of
from cocoon_operator.reconcile.run import Next, Run
from cocoon_operator.reconcile.upkeep import upkeep


async def step(run: Run) -> Next:
    """See to the slots 1 to ``spec.agent.replicas``."""
    return await upkeep(run, [member for member in members_of(run.set, run.spec) if member.role is Role.SUB_AGENT])
