"""The finalizer, and the VM names that are the set's own, before anything else is done for it (R2, design 4.3 rule 3).

A name is listed in the finalizer's own patch if the registry has nothing under it. If it has, or does not answer, the name
stays unlisted, so that a tag under it is still known to be a leftover when the pod is about to be made.
"""

from __future__ import annotations

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent
from cocoon_operator.reconcile import records, tags
from cocoon_operator.reconcile.members import Member, members_of
from cocoon_operator.reconcile.parallel import each
from cocoon_operator.reconcile.run import Next, Run


async def step(run: Run) -> Next:
    """Add the finalizer by a patch of metadata alone: the user's spec is not rewritten (W-57)."""
    if keys.SET_FINALIZER in run.set.finalizers:
        await _write_down(run)
        return Next.GO_ON
    listed = {*records.listed_names(run.set), *await _unclaimed(run)}
    changes = {keys.DELETE_VM_NAMES: records.names_text(listed)} if listed else {}
    await run.annotate_set(changes, finalizers=[*run.set.finalizers, keys.SET_FINALIZER])
    return Next.GO_ON


async def _write_down(run: Run) -> None:
    """A set of the Go operator has no list: what only its status or a CocoonHibernation names would be forgotten."""
    if keys.DELETE_VM_NAMES in run.set.annotations or run.set.deleting:
        return
    known = run.own_names | run.told
    if known - {run.vm_name(pod) for pod in run.live}:
        await run.annotate_set({keys.DELETE_VM_NAMES: records.names_text(known)})


async def _unclaimed(run: Run) -> list[str]:
    """The VM names of the spec under which there is nothing yet."""
    if run.set.spec is None:
        return []

    async def free(member: Member) -> str:
        if not member.managed or tags.rival(run, member.vm_name):
            return ""
        key = (member.vm_name, keys.TAG_HIBERNATE)
        run.answers[key] = await run.ctx.registry.inspect(*key)
        return member.vm_name if isinstance(run.answers[key], Absent) else ""

    return [name for name in await each(members_of(run.set, run.set.spec), free) if name]
