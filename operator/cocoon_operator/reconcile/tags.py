"""The ``:hibernate`` tag, the sole authority on saved state: asked, dropped, put back, moved aside (design 4.3).

Every registry write of the operator is in this file. Each acts on a *computed* VM name of the set, after a look into the
index of who else can have a VM of that name (rule 6, W-25, W-63).
"""

from __future__ import annotations

from collections.abc import Iterable

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Answer, Done, Present, Refused, Unknown, WriteAnswer
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, records
from cocoon_operator.reconcile.run import Run, SnapshotState

NO_SNAPSHOT = records.NO_SNAPSHOT
SAVING = "Saving"
SAVED = "Saved"
WAKE_IN_PROGRESS = records.WAKE_IN_PROGRESS
TAG_DROP_PENDING = records.TAG_DROP_PENDING
KEPT = records.KEPT
MOVING_ASIDE = "MovingAside"
REGISTRY_UNREACHABLE = "RegistryUnreachable"
LOOK_AGAIN = 20.0
"""Seconds: nothing tells a set that another one has gone."""
CONDITION = records.SNAPSHOT_CURRENT


# -- what is stored about tags -----------------------------------------------------------------------------------------


def may_exist(run: Run) -> bool:
    """Whether the stored status admits that a tag of this set can exist.

    A set with a status but without the condition was made by the Go operator, which leaves tags behind.
    """
    stored = run.stored(CONDITION)
    if not stored:
        return run.stored_phase != ""
    return not (stored.get("status") == "True" and stored.get("reason") == NO_SNAPSHOT)


def stored_names(run: Run, reason: str) -> frozenset[str]:
    """The VM names in the stored condition, if it has this reason."""
    return records.condition_names(run.set, reason)


def stored(run: Run) -> SnapshotState:
    """The stored condition; its reason is "" when there is none."""
    entry = run.stored(CONDITION)
    return SnapshotState(str(entry.get("status", "")), str(entry.get("reason", "")), str(entry.get("message", "")))


def named(found: SnapshotState) -> frozenset[str]:
    """The VM names before the colon of a message that :func:`state` made."""
    return records.names_before_colon(found.message)


def scoped(run: Run) -> frozenset[str]:
    """The only VM names that can have a tag, where the stored condition lists them."""
    return stored_names(run, TAG_DROP_PENDING) | stored_names(run, KEPT)


def owed(run: Run, vm_name: str) -> bool:
    """Whether a tag may lie behind this VM although it is awake, by what this pass found, else by what is stored."""
    found = run.snapshot
    if found is None:
        scope = scoped(run)
        return vm_name in scope if scope else may_exist(run)
    if found.reason in (TAG_DROP_PENDING, KEPT):
        return vm_name in named(found)
    return found.reason != NO_SNAPSHOT


def saving() -> SnapshotState:
    """Any VM of the set may be saving."""
    return state("False", SAVING, why="saves are under way")


def state(status: str, reason: str, vm_names: Iterable[str] = (), why: str = "") -> SnapshotState:
    """Condition ``SnapshotCurrent``; the names stand before the colon, so that any process can go on from them."""
    names = ", ".join(sorted(vm_names))
    return SnapshotState(status, reason, f"{names}: {why}" if names else why)


# -- asking ------------------------------------------------------------------------------------------------------------


async def ask(run: Run, vm_name: str, reference: str = keys.TAG_HIBERNATE) -> Answer:
    """Ask for a VM's manifest, once in a pass. An unknown answer is reported and leads to a retry with back-off."""
    key = (vm_name, reference)
    if key not in run.answers:
        run.answers[key] = await run.ctx.registry.inspect(vm_name, reference)
    answer = run.answers[key]
    if isinstance(answer, Unknown):
        report_unknown(run, answer.reason)
    return answer


async def probe(run: Run, vm_name: str) -> Answer:
    """As :func:`ask`, where only existence and digest matter."""
    key = (vm_name, keys.TAG_HIBERNATE)
    if key not in run.answers:
        run.answers[key] = await run.ctx.registry.probe(vm_name, keys.TAG_HIBERNATE)
    answer = run.answers[key]
    if isinstance(answer, Unknown):
        report_unknown(run, answer.reason)
    return answer


def report_unknown(run: Run, reason: str) -> None:
    """The registry said nothing: the set waits, its status says so, the key is retried with back-off (I6)."""
    run.find(REGISTRY_UNREACHABLE, reason, unknown=True)
    run.errors.append(RegistryUnreachableError(reason))


class RegistryUnreachableError(Exception):
    """The registry did not answer; nothing was decided from that."""


class TagDropPendingError(Exception):
    """A drop was refused or not answered; tried again with back-off."""


# -- who owns a name ---------------------------------------------------------------------------------------------------


def rival(run: Run, vm_name: str) -> str:
    """``namespace/name`` of an older set that can have a VM of this name too, "" if there is none (W-25)."""
    for other in run.ctx.claims.claimants(vm_name):
        if other.uid == run.set.uid:
            return ""
        return f"{other.namespace}/{other.name}"
    return ""


def report_rival(run: Run, vm_name: str, other: str) -> None:
    """A name that another set claims: no create, no tag touched, and a condition that says who it is."""
    message = f"VM name {vm_name} is claimed by CocoonSet {other}, which is older"
    run.trouble("NameCollision", message)
    run.come_back(LOOK_AGAIN)


# -- dropping ----------------------------------------------------------------------------------------------------------


async def drop_behind(run: Run, pod: Pod) -> WriteAnswer | None:
    """Drop the tag of a VM that is proven live by one live read, right after that read (I2). None: not proven, not dropped."""
    vm_name = run.vm_name(pod)
    if rival(run, vm_name):
        return Done()
    live = await run.ctx.cluster.get_pod(run.set.namespace, pod.name)
    if live is None or live.uid != pod.uid or live.terminating or facts.read(live) is not facts.Fact.AWAKE:
        return None
    run.pods[live.name] = live
    answer = await run.ctx.registry.drop(vm_name, keys.TAG_HIBERNATE)
    run.answers.pop((vm_name, keys.TAG_HIBERNATE), None)
    if isinstance(answer, Done):
        run.answers[(vm_name, keys.TAG_HIBERNATE)] = Absent()
        run.records.pop(vm_name, None)
        run.memory.dropped[vm_name] = pod.uid
    return answer


def why_not(answer: WriteAnswer) -> str:
    """The reason of a drop that was not confirmed."""
    return answer.reason if isinstance(answer, Refused | Unknown) else ""


# -- putting back ------------------------------------------------------------------------------------------------------


def proven(run: Run, vm_name: str) -> bool:
    """Whether the digest on record is that of the VM's latest save: it was told as such, and the VM has not been awake since.

    While a save is under way the digest can still be the one of before.
    """
    found = stored(run)
    return found.status == "True" and (found.reason == SAVED or (found.reason == KEPT and vm_name in named(found)))


async def put_back(run: Run, vm_name: str) -> Present | None:
    """A save is on record and its tag is absent: never a fresh boot (rule 4).

    The recorded digest is asked for; if it is still there, the same manifest is put under ``hibernate`` again. Otherwise the
    set is held with ``SnapshotMissing``, which a wrong OCI_REGISTRY would look like.
    """
    if run.set.deleting:
        # Its tags are being collected.
        return None
    digest = run.records.get(vm_name, "")
    if digest and not rival(run, vm_name):
        answer = await ask(run, vm_name, digest)
        if isinstance(answer, Unknown):
            return None
        if isinstance(answer, Present):
            return await _put_back_digest(run, vm_name, answer)
    report_missing(run, vm_name, digest)
    return None


def report_missing(run: Run, vm_name: str, digest: str) -> None:
    known = f" ({digest})" if digest else ""
    message = (
        f"the saved state of {vm_name}{known} is on record, but the registry has no {vm_name}:{keys.TAG_HIBERNATE}; "
        f"nothing is started over it. Check OCI_REGISTRY, put the tag back, or annotate the CocoonSet with "
        f"{keys.START_FRESH}={vm_name} to give the saved state up"
    )
    run.trouble("SnapshotMissing", message)
    run.errors.append(SnapshotMissingError(vm_name))


class SnapshotMissingError(Exception):
    """A recorded save has no manifest; looked for again with back-off."""


async def _put_back_digest(run: Run, vm_name: str, found: Present) -> Present | None:
    answer = await run.ctx.registry.copy(vm_name, found.digest, keys.TAG_HIBERNATE)
    if isinstance(answer, Done):
        run.answers[(vm_name, keys.TAG_HIBERNATE)] = found
        run.event(
            "Warning",
            "SnapshotTagRestored",
            f"{vm_name}:{keys.TAG_HIBERNATE} was gone; put back on {found.digest}, which is on record",
        )
        return found
    report_unknown(run, f"putting {found.digest} under {vm_name}:{keys.TAG_HIBERNATE}: {why_not(answer)}")
    return None


# -- moving aside ------------------------------------------------------------------------------------------------------


def orphan_tag(digest: str) -> str:
    """Where a snapshot goes that must be neither restored nor destroyed: ``orphan-<first 12 of its digest>``."""
    return f"orphan-{digest.removeprefix('sha256:')[:12]}"


async def move_aside(run: Run, vm_name: str) -> str | None:
    """Put the manifest of ``:hibernate`` under its orphan tag, then drop ``:hibernate``, then look at the orphan again.

    Returns the orphan tag, "" when there was no tag to move, None when it did not work out (reported). Safe to repeat at any
    point: until the drop, the tag is where it was; after it, there is nothing left to move.
    """
    answer = await ask(run, vm_name)
    if isinstance(answer, Absent):
        return ""
    if isinstance(answer, Unknown):
        return None
    orphan = orphan_tag(answer.digest)
    copied = await run.ctx.registry.copy(vm_name, answer.digest, orphan)
    if not isinstance(copied, Done):
        _report_not_moved(run, vm_name, orphan, copied)
        return None
    dropped = await run.ctx.registry.drop(vm_name, keys.TAG_HIBERNATE)
    run.answers.pop((vm_name, keys.TAG_HIBERNATE), None)
    if not isinstance(dropped, Done):
        _report_not_moved(run, vm_name, orphan, dropped)
        return None
    kept = await run.ctx.registry.probe(vm_name, orphan)
    if isinstance(kept, Absent):
        # A registry that takes all tags of a manifest along: the manifest itself is still addressed by digest.
        await run.ctx.registry.copy(vm_name, answer.digest, orphan)
    run.answers[(vm_name, keys.TAG_HIBERNATE)] = Absent()
    return orphan


def _report_not_moved(run: Run, vm_name: str, orphan: str, answer: WriteAnswer) -> None:
    why = why_not(answer)
    if isinstance(answer, Refused):
        message = f"snapshot {vm_name}:{keys.TAG_HIBERNATE} cannot be moved to {orphan}: {why}"
        run.trouble("LeftoverSnapshot", message)
        run.errors.append(SnapshotNotMovedError(vm_name))
        return
    report_unknown(run, f"moving {vm_name}:{keys.TAG_HIBERNATE} to {orphan}: {why}")


class SnapshotNotMovedError(Exception):
    """The registry refused to move a snapshot aside; tried again with back-off."""
