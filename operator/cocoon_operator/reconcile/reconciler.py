"""One run of one set: the ordered chain of steps, then the status (``docs/design/intent.md``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from cocoon_operator.api.errors import ConflictError, KubeError, NotFoundError
from cocoon_operator.reconcile import kept, slow, status
from cocoon_operator.reconcile.context import Context
from cocoon_operator.reconcile.hibernation import drive, lone
from cocoon_operator.reconcile.hibernation.machine import Limits
from cocoon_operator.reconcile.ports import Claims, Clock, Cluster, Measures, Recorder, Registry
from cocoon_operator.reconcile.run import Memory, Next, Run
from cocoon_operator.reconcile.stamp import stamp
from cocoon_operator.reconcile.steps import (
    agents,
    aside,
    deletion,
    enlist,
    failure,
    hold,
    main,
    migration,
    obstacles,
    surplus,
    suspend,
    toolboxes,
    wake,
)
from cocoon_operator.reconcile.view import Outcome, View

Step: TypeAlias = Callable[[Run], Awaitable[Next]]

STEPS: Final[tuple[Step, ...]] = (
    deletion.step,
    enlist.step,
    obstacles.step,
    aside.step,
    hold.step,
    failure.step,
    suspend.step,
    wake.step,
    migration.step,
    main.step,
    surplus.step,
    agents.step,
    toolboxes.step,
)

# Each round stores one status and starts the chain again; no path needs more than three.
_ROUNDS: Final = 5


class Reconciler:
    """Brings sets and CocoonHibernations to what they ask for. Stateless but for :class:`Memory`, which may be lost."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        registry: Registry,
        recorder: Recorder,
        measures: Measures,
        claims: Claims,
        clock: Clock,
        tag_collection_timeout: float = 600.0,
        limits: Limits | None = None,
    ) -> None:
        self._context = Context(
            cluster=cluster,
            registry=registry,
            recorder=recorder,
            measures=measures,
            claims=claims,
            clock=clock,
            tag_collection_timeout=tag_collection_timeout,
            limits=limits or Limits(),
        )
        self._memory: dict[str, Memory] = {}

    async def reconcile(self, view: View) -> Outcome:
        """Run the chain once. Never raises for what the worlds answered; every error ends in the outcome."""
        if view.set is None:
            return await self._reconcile_lone(view)
        memory = self._memory.setdefault(f"{view.set.namespace}/{view.set.name}", Memory())
        run = Run(self._context, view, view.set, memory)
        try:
            await self._rounds(run)
        except NotFoundError:
            # The set went away under the pass: its deletion is the next event.
            return Outcome()
        except KubeError as error:
            return Outcome(requeue_after=run.requeue, error=error)
        return Outcome(requeue_after=run.requeue, error=run.errors[0] if run.errors else None)

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered of a set that is gone."""
        self._memory.pop(f"{namespace}/{name}", None)

    async def _reconcile_lone(self, view: View) -> Outcome:
        """CocoonHibernations that belong to no set, one after another; the first that has to be looked at again decides when."""
        outcomes = [
            await lone.reconcile(self._context, target, view.hibernations, view.now)
            for target in view.hibernations
            if target.name in view.driven
        ]
        waits = [outcome.requeue_after for outcome in outcomes if outcome.requeue_after is not None]
        error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        return Outcome(requeue_after=min(waits, default=None), error=error)

    async def _rounds(self, run: Run) -> None:
        for _ in range(_ROUNDS):
            run.begin()
            await drive.adopt(run)
            verdict = await self._chain(run)
            slow.report(run)
            if verdict is Next.PERSIST:
                await status.write(run, now=True)
                continue
            sights = await drive.observe(run)
            kept.report(run)
            if not run.silent:
                run.memory.told = run.holding
                await status.write(run, now=drive.unstored(run, sights))
                _forget_settled(run)
            await drive.write(run, sights)
            return
        run.errors.append(ConflictError("the set did not settle in one pass"))

    async def _chain(self, run: Run) -> Next:
        """Run the steps; one that fails does not keep the status from being written (W-23, W-50)."""
        verdict = Next.GO_ON
        try:
            for step in STEPS:
                verdict = await step(run)
                if verdict is not Next.GO_ON:
                    break
        except ConflictError as error:
            run.errors.append(error)
            verdict = Next.STOP
        except KubeError as error:
            run.fail(error)
            verdict = Next.STOP
        if verdict is not Next.PERSIST and not run.set.deleting:
            await stamp(run)
        return verdict


def _forget_settled(run: Run) -> None:
    """Once the status says that no tag is left, who dropped which one is of no more interest."""
    if run.snapshot is None or run.snapshot.status == "True":
        run.memory.dropped.clear()
