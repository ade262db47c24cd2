"""VMs that the spec no longer has: scaled down, or a toolbox removed (contract 4.10, 4.11; design 4.3 rule 3, W-16).

The pod goes first, then its tags, then its name; until then the slot is not used again, however fast the user scales up.
What is being removed is written down before the first delete, so that a slot that is asked for again meanwhile does not come
up with the state of the one that was given up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cocoon_operator.api import keys, names
from cocoon_operator.api.answers import Done
from cocoon_operator.api.enums import Role
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import history, kept, records, tags
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.members import members_of, slot_number
from cocoon_operator.reconcile.run import Next, Run


async def step(run: Run) -> Next:
    """Remove surplus pods in ascending order, then what is left of them."""
    surplus = [pod for pod in run.live if is_surplus(run, pod)]
    for pod in surplus:
        if run.claimed(pod.name):
            holder = run.deciders[pod.name].name
            run.find("HeldByHibernation", f"{pod.name} is not removed: CocoonHibernation {holder} holds its VM")
    going = [pod for pod in surplus if not run.claimed(pod.name)]
    await _write_down(run, going)
    for pod in sorted(going, key=_order):
        with apart(run):
            await run.delete(pod)
    await _collect(run)
    return Next.GO_ON


def is_surplus(run: Run, pod: Pod) -> bool:
    """Whether a live pod has no place in the spec any more."""
    if pod.role == Role.SUB_AGENT:
        slot = slot_number(pod)
        return slot is not None and slot > run.spec.agent.replicas
    return pod.role == Role.TOOLBOX and pod.slot not in {box.name for box in run.spec.toolboxes}


def _order(pod: Pod) -> tuple[int, str]:
    return slot_number(pod) or 0, pod.slot


async def _write_down(run: Run, going: list[Pod]) -> None:
    """Names whose pods are about to go, and no longer those whose pods stay after all (scaled up again in time)."""
    stays = {run.vm_name(pod) for pod in run.live} - {run.vm_name(pod) for pod in going}
    removing = (records.removing_names(run.set) - stays) | {run.vm_name(pod) for pod in going if pod.managed}
    if removing != records.removing_names(run.set):
        await run.annotate_set({keys.REMOVING_VM_NAMES: records.names_text(removing) or None})


async def _collect(run: Run) -> None:
    """Drop the tags of names whose pods are gone, then the names."""
    wanted = {member.vm_name for member in members_of(run.set, run.spec)}
    gone = await _gone(run, wanted)
    left = {name: why for name in sorted(gone) if (why := await _drop(run, name))}
    if left:
        _report(run, left, wanted)
    if dropped := gone - left.keys():
        await _strike_out(run, dropped, wanted)


async def _gone(run: Run, wanted: Collection[str]) -> frozenset[str]:
    """Names that are removed or that the spec does not have, which nobody holds, and whose pod is gone in a live list too."""
    gone = records.removing_names(run.set) | run.own_names.difference(wanted)
    gone -= {run.vm_name(pod) for pod in run.owned} | kept.held_names(run)
    if gone:
        live = await run.ctx.cluster.list_pods(run.set.namespace, run.set.name)
        gone -= {run.vm_name(pod) for pod in live if pod.owned_by(run.set.uid)}
    return gone


async def _strike_out(run: Run, dropped: Collection[str], wanted: Collection[str]) -> None:
    """Off both lists, with the history; a name that is asked for again stays the set's own."""
    left = [name for name in records.listed_names(run.set) if name not in dropped or name in wanted]
    changes: dict[str, str | None] = {keys.DELETE_VM_NAMES: records.names_text(left)}
    changes[keys.REMOVING_VM_NAMES] = records.names_text(records.removing_names(run.set).difference(dropped)) or None
    await run.annotate_set({**changes, **history.pruned(run)})
    for name in dropped:
        run.records.pop(name, None)


async def _drop(run: Run, name: str) -> str:
    """Take a removed VM's tags along: ``hibernate`` always, ``latest`` where the policy says that none is kept.

    "" when that is done, else the tag that is left, and why.
    """
    if tags.rival(run, name):
        return ""
    wanted = [keys.TAG_HIBERNATE]
    if not names.keeps_latest(run.spec.snapshot_policy, run.set.namespace, run.set.name, name):
        wanted.append(keys.TAG_LATEST)
    for tag in wanted:
        answer = await run.ctx.registry.drop(name, tag)
        if not isinstance(answer, Done):
            return f"{name}:{tag}: {tags.why_not(answer)}"
        run.answers.pop((name, tag), None)
    return ""


def _report(run: Run, left: Mapping[str, str], wanted: Collection[str]) -> None:
    """Tags that could not be dropped are owed as after a wake. A set that has its VMs is ready; a slot that waits is not.

    A condition that says more, such as that of a wake under way, is left as it is: the names are on the set.
    """
    why = next(iter(left.values()))
    found = run.snapshot or tags.stored(run)
    if found.reason in (tags.NO_SNAPSHOT, tags.TAG_DROP_PENDING, tags.KEPT):
        owed = tags.named(found) if found.reason == tags.TAG_DROP_PENDING else frozenset()
        waking = tags.named(found) - kept.held_names(run) if found.reason == tags.KEPT else frozenset()
        run.snapshot = kept.resting(run, owed.union(left), waking, why=why)
    for name in left.keys() & wanted:
        run.find(tags.TAG_DROP_PENDING, f"{name} is made again when the tags of the one before are gone: {left[name]}")
    known = run.stored(tags.CONDITION).get("reason") == tags.TAG_DROP_PENDING
    run.warn("TagDropPending", f"{', '.join(left)}: {why}; tried again until it is answered", known=known)
    run.errors.append(tags.TagDropPendingError(why))
