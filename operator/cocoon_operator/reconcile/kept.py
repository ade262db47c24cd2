"""What a CocoonHibernation keeps asleep, in the set's own condition ``SnapshotCurrent`` (``docs/design/intent.md``).

A suspend puts every VM of a set to sleep; a CocoonHibernation one or a few. So the condition names them: a tag can exist for
these and for nobody else, and when one of them is woken, only its own tag has to be dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cocoon_operator.api import keys
from cocoon_operator.api.names import vm_name_of_pod
from cocoon_operator.reconcile import facts, records, tags
from cocoon_operator.reconcile.members import main_member, members_of
from cocoon_operator.reconcile.run import Run, SnapshotState

_OVER: Final = frozenset({"", tags.NO_SNAPSHOT, tags.KEPT})


def held_names(run: Run) -> frozenset[str]:
    """The VM names that a CocoonHibernation asks to keep asleep, whether there is a pod or not."""
    return frozenset(vm_name_of_pod(run.set.namespace, pod_name) for pod_name in run.holders)


def asleep_names(run: Run) -> frozenset[str]:
    """Of those, the ones that can have a tag: put to sleep or on their way up, with a save on record, or named already.

    A name that is stored leaves with its drop alone: a flag can go, as when a stalled save is begun again.
    """
    flagged = {run.vm_name(pod) for pod in run.live if pod.managed and pod.hibernate}
    return held_names(run) & (flagged | _rising(run) | run.records.keys() | tags.scoped(run))


def _rising(run: Run) -> frozenset[str]:
    """VMs without a flag that may have a tag: neither proven live nor dead."""
    known = (facts.Fact.AWAKE, facts.Fact.DEAD)
    return frozenset(
        run.vm_name(pod) for pod in run.live if pod.managed and not pod.hibernate and facts.read(pod) not in known
    )


def resting(run: Run, owed: Collection[str] = (), waking: Collection[str] = (), *, why: str = "") -> SnapshotState:
    """The condition of a set that is not in a transition of its own: drops that are owed, else who is kept, else nothing."""
    if owed:
        names = {*owed, *waking, *(held_names(run) & _rising(run))}
        return tags.state("False", tags.TAG_DROP_PENDING, names, why or "their tags are dropped when they are awake")
    asleep = asleep_names(run)
    if not asleep and not waking:
        return tags.state("True", tags.NO_SNAPSHOT)
    saved = not waking and all(run.records.get(name) for name in asleep)
    text = (
        "kept asleep by a CocoonHibernation" if saved else "their tags are needed until each is saved, or awake again"
    )
    return tags.state("True" if saved else "False", tags.KEPT, {*asleep, *waking}, text)


def report(run: Run) -> None:
    """Say who is kept asleep, where no step said more about the set's tags; and whether that is all the set waits for."""
    if run.set.deleting or run.set.spec is None or run.set.spec.suspend:
        return
    held = [member for member in members_of(run.set, run.set.spec) if run.held(member.pod_name)]
    for member in held:
        holder = run.holders[member.pod_name]
        run.find("HeldByHibernation", f"{member.vm_name} is held asleep by CocoonHibernation {holder}")
    _report_tags(run)
    run.at_rest = bool(held) and all(
        _at_rest(run, member.pod_name) if run.held(member.pod_name) else _ready(run, member.pod_name)
        for member in members_of(run.set, run.set.spec)
    )


def _report_tags(run: Run) -> None:
    if run.snapshot is None and run.stored_phase and not run.stored(tags.CONDITION):
        # A set of the Go operator counts as swept by having the condition.
        return
    found = run.snapshot or tags.stored(run)
    if found.reason not in _OVER:
        return
    named = tags.named(found) if found.reason == tags.KEPT else frozenset()
    if named or asleep_names(run):
        run.snapshot = resting(run, waking=named - held_names(run))


def tidy(run: Run) -> dict[str, str | None]:
    """What of the annotations of a release is still needed once the others woke: the saves of who is kept without a pod."""
    main = main_member(run.set)
    kept = held_names(run) - {run.vm_name(pod) for pod in run.live}
    changes: dict[str, str | None] = {}
    if keys.HINT_NODE in run.set.annotations and main.vm_name not in kept:
        changes[keys.HINT_NODE] = None
    if keys.SNAPSHOT_DIGESTS in run.set.annotations:
        annotated = records.annotated_digests(run.set).keys()
        left = {name: digest for name, digest in run.records.items() if name in kept and name in annotated}
        changes[keys.SNAPSHOT_DIGESTS] = records.digests_text(left)
    return changes


def _at_rest(run: Run, pod_name: str) -> bool:
    pod = run.pods.get(pod_name)
    asleep = pod is not None and pod.hibernate and facts.read(pod) is facts.Fact.ASLEEP and not pod.running
    return pod is None or asleep


def _ready(run: Run, pod_name: str) -> bool:
    """A main agent that is kept asleep keeps the rest of its set from being made; what is there has to be ready."""
    pod = run.pods.get(pod_name)
    if pod is None:
        return run.held(main_member(run.set).pod_name)
    return pod.ready
