"""The CocoonHibernations of one set, from their finalizer to their status (contract 5.2, design 4.1).

They run under the set's key. What they ask for is done by the set's own steps; here is said how far that has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cocoon_operator.api.errors import NotFoundError
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.reconcile import records
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.hibernation import report
from cocoon_operator.reconcile.hibernation.holds import spec_error
from cocoon_operator.reconcile.hibernation.look import Sight, look
from cocoon_operator.reconcile.hibernation.machine import FAILED, Seen, Verdict, decide, turns
from cocoon_operator.reconcile.run import Run


async def adopt(run: Run) -> None:
    """Put the finalizer on those that live (S262) and take it off those that are deleted.

    A deleted one asks for nothing any more: what its VM needs is the set's business, so nothing has to wait for it (W-07).
    """
    for name in sorted(run.driven):
        target = run.hibernations[name]
        if target.deleting and target.adopted:
            await _set_finalizers(run, target, target.finalizers_released)
        elif not target.deleting and not target.adopted:
            await _set_finalizers(run, target, target.finalizers_adopted)


async def observe(run: Run) -> dict[str, Sight]:
    """Look at each VM after the set's steps and before the set's status, which has to store the digests first (I5)."""
    living = [run.hibernations[name] for name in sorted(run.driven) if not run.hibernations[name].deleting]
    return {target.name: await look(run, target) for target in living if not spec_error(target)}


def unstored(run: Run, sights: dict[str, Sight]) -> bool:
    """Whether a save was seen whose digest the set's status does not have yet: it stands before ``Hibernated`` (I5)."""
    known = records.digests(run.set)
    saved = [sight.vm_name for sight in sights.values() if sight.seen is Seen.SAVED]
    return any(known.get(name) != run.records.get(name) for name in saved)


async def write(run: Run, sights: dict[str, Sight]) -> None:
    """Write what each has come to. One that fails does not keep the others from it."""
    for name in sorted(run.driven):
        target = run.hibernations[name]
        if target.deleting:
            continue
        with apart(run):
            try:
                await _write(run, target, sights.get(name))
            except NotFoundError:
                run.hibernations.pop(name)


async def _write(run: Run, target: Hibernation, sight: Sight | None) -> None:
    if sight is None:
        verdict, sight = Verdict(FAILED), Sight(Seen.ABSENT, why=spec_error(target))
    else:
        verdict = decide(target, sight.seen, run.now, run.ctx.limits)
    if verdict.wait is not None:
        run.come_back(verdict.wait.total_seconds())
    why = "" if verdict.phase == FAILED and not spec_error(target) else sight.why
    after = await report.store(run.ctx, target, verdict, vm_name=sight.vm_name, why=why, now=run.now)
    run.hibernations[target.name] = after
    if turns(target, after):
        run.come_back(0)


async def _set_finalizers(run: Run, target: Hibernation, finalizers: Sequence[str]) -> None:
    with apart(run), suppress(NotFoundError):
        after = await run.ctx.cluster.patch_hibernation(target, finalizers=finalizers)
        run.hibernations[target.name] = after
        decider = run.deciders.get(after.pod_name)
        if decider is not None and decider.uid == after.uid:
            run.deciders[after.pod_name] = after
