"""Toolboxes: run, cloned, or static (contract 4.11)."""

from __future__ import annotations

from collections import Counter

from cocoon_operator.api.enums import Role
from cocoon_operator.reconcile.members import members_of
from cocoon_operator.reconcile.run import Next, Run
from cocoon_operator.reconcile.upkeep import upkeep


async def step(run: Run) -> Next:
    """See to the toolboxes of the spec. A list that cannot work stops the toolboxes, not the agents (W-50)."""
    if problem := _problem(run):
        run.trouble("InvalidSpec", problem)
        return Next.GO_ON
    return await upkeep(run, [member for member in members_of(run.set, run.spec) if member.role is Role.TOOLBOX])


def _problem(run: Run) -> str:
    """Names that would be an agent's, or one another's (S235 to S237)."""
    names = [box.name for box in run.spec.toolboxes]
    for index, name in enumerate(names):
        if name.isascii() and name.isdigit() and int(name[:20]) < 2**63:
            return f"spec.toolboxes[{index}].name: {name!r} is a number, which names an agent's slot"
    twice = [name for name, times in Counter(names).items() if times > 1]
    return f"spec.toolboxes: name {twice[0]!r} is given more than once" if twice else ""
