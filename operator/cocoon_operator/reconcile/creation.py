"""Making pods, of one member or of many: asked, announced, written down, then created (design 4.3 rules 1 and 3)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cocoon_operator.api import keys
from cocoon_operator.api.enums import Role, SetPhase
from cocoon_operator.api.errors import AlreadyExistsError, ConflictError, KubeError
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import kept, source, tags
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.parallel import each
from cocoon_operator.reconcile.pods import build
from cocoon_operator.reconcile.run import Next, Run, SnapshotState

NAME_TAKEN_RETRY = 30.0
"""Seconds: pods are watched by the label of their set, so nothing tells of one without it."""


async def make(run: Run, members: Sequence[Member]) -> Next:
    """Create the pods of these members, as far as the registry allows it; what stands in the way is reported.

    Not one after the other: all are asked, then what has to be stored first is stored, then all are created.
    """
    origins = await each(members, lambda member: source.find(run, member))
    if aside := [
        m.vm_name for m, origin in zip(members, origins, strict=True) if isinstance(origin, source.OtherMachine)
    ]:
        run.snapshot = tags.state("False", tags.MOVING_ASIDE, aside, "saved from another image than the set asks for")
        run.phase = SetPhase.PENDING
        return Next.PERSIST
    restores = {
        member.vm_name: origin.digest
        for member, origin in zip(members, origins, strict=True)
        if isinstance(origin, source.Restore)
    }
    if restores and not _announced(run, members, restores):
        run.snapshot = _announcement(run, members, restores)
        if not run.spec.suspend:
            run.records.update(restores)
        return Next.PERSIST
    if restores:
        run.snapshot = _admitting(run, restores)
    ready = [m for m, origin in zip(members, origins, strict=True) if isinstance(origin, source.Fresh | source.Restore)]
    await source.enlist(run, ready)
    await each(ready, lambda member: _create(run, member, restore=member.vm_name in restores))
    return Next.GO_ON


def _announced(run: Run, members: Sequence[Member], restores: Collection[str]) -> bool:
    """Whether the stored status says that these tags are being restored, before a pod with the restore mark exists."""
    if not tags.may_exist(run):
        return False
    if run.stored_phase in (SetPhase.WAKING, SetPhase.MIGRATING) or run.spec.suspend:
        return True
    scope = tags.scoped(run)
    return not _has_main(members) and (not scope or scope.issuperset(restores))


def _announcement(run: Run, members: Sequence[Member], restores: Collection[str]) -> SnapshotState:
    """A status that names whose tags can exist goes on doing so; nobody else's would be dropped (rule 2)."""
    if (scope := tags.scoped(run)) and not _has_main(members):
        return kept.resting(run, tags.stored_names(run, tags.TAG_DROP_PENDING), scope.union(restores))
    return tags.state("False", tags.WAKE_IN_PROGRESS, restores, "restored from its tag")


def _admitting(run: Run, restores: Collection[str]) -> SnapshotState:
    """What this pass found before, so that it admits the tags that it is about to hand to pods."""
    found = run.snapshot
    if found is None or found.reason == tags.NO_SNAPSHOT:
        return tags.state("False", tags.WAKE_IN_PROGRESS, why="restored from their tags")
    if found.reason not in (tags.KEPT, tags.TAG_DROP_PENDING) or tags.named(found).issuperset(restores):
        return found
    owed = tags.named(found) if found.reason == tags.TAG_DROP_PENDING else ()
    return kept.resting(run, owed, tags.named(found).union(restores))


def _has_main(members: Sequence[Member]) -> bool:
    return any(member.role is Role.MAIN for member in members)


async def _create(run: Run, member: Member, *, restore: bool) -> None:
    hint = run.set.annotations.get(keys.HINT_NODE, "") if restore else ""
    body = build(run.set, run.spec, member, main=run.main, restore=restore, hint=hint)
    try:
        await run.create(body)
    except AlreadyExistsError:
        await _taken(run, member)
    except KubeError as error:
        run.fail(error)
        known = run.stored("Ready").get("message") == error.message
        run.warn("CreateFailed", f"pod {member.pod_name}: {error.message}", known=known)


async def _taken(run: Run, member: Member) -> None:
    """The name is taken: by our own pod that the cache lags behind, by one that is still going, or by somebody else's (W-25)."""
    other = await run.ctx.cluster.get_pod(run.set.namespace, member.pod_name)
    if other is None:
        run.errors.append(ConflictError(f"pod {member.pod_name} was in the way and is gone"))
        return
    if other.owned_by(run.set.uid):
        run.pods[other.name] = other
        return
    owner = other.controller
    why = f"is controlled by {owner.kind} {owner.name}" if owner else "is controlled by nobody"
    report_name_taken(run, member, other, why)


def report_name_taken(run: Run, member: Member, other: Pod, why: str) -> None:
    """A pod that is not this member's has its name: said once, and looked at again when it changes."""
    message = f"pod {member.pod_name} exists and {why}; {member.vm_name} is made when it is gone"
    run.trouble("PodNameCollision", message)
    if other.labels.get(keys.LABEL_SET) != run.set.name:
        run.come_back(NAME_TAKEN_RETRY)
