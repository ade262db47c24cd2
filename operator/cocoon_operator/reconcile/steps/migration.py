"""Migration of the main agent to ``spec.nodeName``: saved, deleted, made again around its snapshot (contract 4.6).

Sub-agents and toolboxes stay where they are. The status says ``Migrating`` before anything else happens, the recorded digest
is stored before the pod goes, and the tag is dropped by the same rule as after every wake.
"""

from __future__ import annotations

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Present
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, kept, records, stalled, tags
from cocoon_operator.reconcile.facts import Fact
from cocoon_operator.reconcile.run import Next, Run
from cocoon_operator.reconcile.settling import status_follows


async def step(run: Run) -> Next:
    """Put a main agent that lives on another node to sleep, and let its pod go once it is saved."""
    main = run.main
    if main is None or run.held(main.name):
        return Next.GO_ON
    if _pinned_elsewhere(run, main):
        await run.delete(main)
        run.phase = SetPhase.MIGRATING if run.stored_phase == SetPhase.MIGRATING else SetPhase.PENDING
        return Next.STOP
    if not misplaced(run, main) or not (main.hibernate or _may_start(run, main)):
        return Next.GO_ON
    run.phase = SetPhase.MIGRATING
    run.detail = f"waiting for {run.vm_name(main)} to be saved"
    run.snapshot = tags.state("False", tags.SAVING, why="saved for the move to another node")
    if run.stored_phase != SetPhase.MIGRATING or not tags.may_exist(run):
        return Next.PERSIST
    if await stalled.look(run, [main]) is Next.PERSIST:
        return Next.PERSIST
    if not main.hibernate and not stalled.waking(run, main):
        await run.annotate(main, {keys.HIBERNATE: "true"}, guarded=True)
        return Next.STOP
    return await _move(run, main)


async def _move(run: Run, main: Pod) -> Next:
    """The same proof as for a release: lifecycle ``hibernated`` of this generation, and the tag (W-05, I1)."""
    vm_name = run.vm_name(main)
    stamped = await run.annotate(main, {})
    if stamped is None or not facts.asleep_at(stamped, run.set.generation) or status_follows(run, stamped):
        run.detail = f"waiting for {vm_name} to be saved ({main.lifecycle_message or main.lifecycle})"
        return Next.STOP
    answer = await tags.probe(run, vm_name)
    if isinstance(answer, Absent) and tags.proven(run, vm_name):
        answer = await tags.put_back(run, vm_name) or answer
    elif isinstance(answer, Absent):
        tags.report_missing(run, vm_name, "")
    if not isinstance(answer, Present):
        return Next.STOP
    run.snapshot = tags.state("True", tags.SAVED)
    run.records[vm_name] = answer.digest
    if records.digests(run.set).get(vm_name) != answer.digest:
        return Next.PERSIST
    await run.delete(stamped)
    return Next.STOP


def moving(run: Run) -> bool:
    """Whether a move was announced and main is still where it was: there is no wake to end yet."""
    main = run.main
    return run.stored_phase == SetPhase.MIGRATING and main is not None and misplaced(run, main)


def misplaced(run: Run, main: Pod) -> bool:
    """Whether main lives on another node than the user asks for."""
    return run.spec.node_name != "" and main.spec.node_name not in ("", run.spec.node_name)


def _may_start(run: Run, main: Pod) -> bool:
    """Only a VM that is awake, with no wake to end: anything else first ends what it is in (W-01).

    A tag that the registry refuses to drop does not hold it back: the new save takes its place.
    """
    if facts.read(main) is not Fact.AWAKE or run.vm_name(main) in run.unanswered:
        return False
    if not tags.may_exist(run) or (run.snapshot and run.snapshot.reason == tags.NO_SNAPSHOT):
        return True
    # Owed for main alone: the end of the move settles main, and must not be taken for the others' too. Nor for one that a
    # CocoonHibernation has let go and whose tag is still there.
    alone = tags.stored_names(run, tags.TAG_DROP_PENDING) == {run.vm_name(main)}
    held = tags.stored_names(run, tags.KEPT)
    return alone or (bool(held) and held <= kept.held_names(run)) or _announced(run)


def _announced(run: Run) -> bool:
    saving = run.stored(tags.CONDITION).get("reason") == tags.SAVING
    return run.stored_phase == SetPhase.MIGRATING and saving


def _pinned_elsewhere(run: Run, main: Pod) -> bool:
    """A pod that waits for a node the user no longer wants: there is no VM yet, and what its tag holds stays."""
    return main.spec.node_name == "" and main.required_host not in ("", run.spec.node_name)
