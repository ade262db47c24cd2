"""Deletion of a set: pods, then tags, then the finalizer (contract 4.12, design 4.3 rule 6)."""

from __future__ import annotations

from cocoon_operator.api import conditions, keys, names
from cocoon_operator.api.answers import Done, Refused, WriteAnswer
from cocoon_operator.api.enums import SnapshotPolicy
from cocoon_operator.reconcile import records, tags
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.parallel import each
from cocoon_operator.reconcile.run import Next, Run
from cocoon_operator.reconcile.steps.obstacles import LABEL_VALUE_LIMIT

COLLECTION = "TagsCollected"


async def step(run: Run) -> Next:
    """Take a deleted set down. Nothing in here needs a readable spec (S260)."""
    if not run.set.deleting:
        return Next.GO_ON
    run.silent = True
    if keys.SET_FINALIZER not in run.set.finalizers:
        return Next.STOP
    with apart(run):
        await _take_down(run)
    run.silent = keys.SET_FINALIZER not in run.set.finalizers or not (run.findings or _in_trouble(run))
    return Next.STOP


async def _take_down(run: Run) -> None:
    await _write_names_down(run)
    await _delete_pods(run)
    if run.errors or run.owned:
        return
    if len(run.set.name) <= LABEL_VALUE_LIMIT:
        run.pods = {pod.name: pod for pod in await run.ctx.cluster.list_pods(run.set.namespace, run.set.name)}
    if not run.owned:
        await _collect_tags(run)


def _in_trouble(run: Run) -> bool:
    """Whether the status tells of an error that is over: a deletion writes none but for trouble, and its end."""
    return run.stored("Ready").get("reason") == "APIError"


async def _write_names_down(run: Run) -> None:
    """What the pods and the status know of VM names has to outlive them (S253, S254, S255)."""
    known = {*records.listed_names(run.set), *run.own_names, *records.pod_names(run.set, run.owned)}
    prefix = names.set_prefix(run.set.namespace, run.set.name)
    known |= {name for name in records.status_names(run.set) if name.startswith(prefix)}
    if known:
        await run.annotate_set({keys.DELETE_VM_NAMES: records.names_text(known)})


async def _delete_pods(run: Run) -> None:
    """One DELETE a pod; terminating ones are waited for by their events (W-36)."""
    for pod in run.live:
        with apart(run):
            await run.delete(pod)


async def _collect_tags(run: Run) -> None:
    """Drop the tags of every name that is ours, then let go of the object."""
    for name in records.foreign_names(run.set):
        run.event(
            "Warning", "ForeignVMName", f"{name} is listed for deletion but cannot be a VM of this set; not touched"
        )

    async def drop(name: str) -> list[tuple[str, WriteAnswer]]:
        return [(f"{name}:{tag}", await run.ctx.registry.drop(name, tag)) for tag in _tags_of(run, name)]

    dropped = await each(sorted(_collectable(run)), drop)
    answers = [answer for of_name in dropped for answer in of_name]
    left = {tag: tags.why_not(answer) for tag, answer in answers if not isinstance(answer, Done)}
    refused = any(isinstance(answer, Refused) for _, answer in answers)
    if left and not _expired(run):
        _wait(run, left, refused=refused)
        return
    if left:
        run.event("Warning", "TagsNotCollected", f"gave up on {', '.join(sorted(left))}: {next(iter(left.values()))}")
    rest = [name for name in run.set.finalizers if name != keys.SET_FINALIZER]
    await run.annotate_set({}, finalizers=rest)


def _collectable(run: Run) -> frozenset[str]:
    """The names that were settled as this set's, without those that an older set claims too (W-25, W-63)."""
    return frozenset(name for name in run.own_names if not tags.rival(run, name))


def _tags_of(run: Run, name: str) -> tuple[str, ...]:
    """``hibernate`` always, first; ``latest`` unless the policy keeps it (4.15). An unreadable spec keeps it."""
    policy = run.set.spec.snapshot_policy if run.set.spec else SnapshotPolicy.ALWAYS
    if names.keeps_latest(policy, run.set.namespace, run.set.name, name):
        return (keys.TAG_HIBERNATE,)
    return keys.TAG_HIBERNATE, keys.TAG_LATEST


def _wait(run: Run, left: dict[str, str], *, refused: bool) -> None:
    """An outage: say so, once, with the time from which the limit counts (I8)."""
    reason = "TagDropRefused" if refused else tags.REGISTRY_UNREACHABLE
    message = f"waiting to collect {', '.join(sorted(left))}: {next(iter(left.values()))}"
    run.collection = (reason, message)
    run.find(reason, message, unknown=not refused)
    run.errors.append(tags.RegistryUnreachableError(message))
    if not run.stored(COLLECTION):
        run.event("Warning", "TagCollectionDelayed", message)


def _expired(run: Run) -> bool:
    """Whether the limit is over, by the clock that is stored: a restart does not start it again."""
    limit = run.ctx.tag_collection_timeout
    since = run.stored(COLLECTION).get("lastTransitionTime")
    if limit <= 0 or not isinstance(since, str):
        return False
    started = conditions.moment(since)
    left = limit - (run.now - started).total_seconds()
    if left > 0:
        run.come_back(left)
    return left <= 0
