"""A CocoonHibernation whose pod belongs to no CocoonSet: nobody else wakes its VM (contract 5, design 4.2).

The same table, the same proofs: a flag is cleared only while the VM lives or its tag was seen, a tag is dropped only behind a
VM that one live read shows awake, and only under the name that is computed from the pod's (W-63).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from cocoon_operator.api import conditions, keys
from cocoon_operator.api.answers import Absent, Present, Refused, Unknown, WriteAnswer
from cocoon_operator.api.enums import LifecycleState
from cocoon_operator.api.errors import ConflictError, KubeError, NotFoundError
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.names import vm_name_of_pod
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts
from cocoon_operator.reconcile.context import Context
from cocoon_operator.reconcile.hibernation import report
from cocoon_operator.reconcile.hibernation.holds import deciders, holds, spec_error
from cocoon_operator.reconcile.hibernation.look import (
    Sight,
    is_asleep,
    no_vm_name,
    not_present,
    nothing_saved,
    overruled_by,
    without_tag,
)
from cocoon_operator.reconcile.hibernation.machine import (
    ACTIVE,
    FAILED,
    HIBERNATED,
    HIBERNATING,
    PENDING,
    WAKING,
    Seen,
    Verdict,
    decide,
    going_to_sleep,
    turns,
)
from cocoon_operator.reconcile.tags import RegistryUnreachableError
from cocoon_operator.reconcile.view import Outcome

T = TypeVar("T")

_LOOK_AGAIN: Final = 5.0
"""Seconds between looks while something is under way; a pod outside every set is no part of the cache."""
_LOOK_LATER: Final = 30.0


@dataclass(slots=True)
class _Pass:
    """One look at one object."""

    ctx: Context
    target: Hibernation
    others: Sequence[Hibernation]
    now: datetime
    pod: Pod | None = None
    requeue: float | None = None
    errors: list[Exception] = field(default_factory=list)

    @property
    def computed(self) -> str:
        """The only repository whose tag may be touched."""
        return vm_name_of_pod(self.target.namespace, self.target.pod_name)

    def noted(self, answer: T) -> T:
        """Return what the registry said; that it said nothing leads to a retry with back-off (I6)."""
        if isinstance(answer, Unknown):
            self.errors.append(RegistryUnreachableError(answer.reason))
        return answer

    def come_back(self, seconds: float) -> None:
        self.requeue = seconds if self.requeue is None else min(self.requeue, seconds)


async def reconcile(ctx: Context, target: Hibernation, others: Sequence[Hibernation], now: datetime) -> Outcome:
    """Run once. ``others`` are the CocoonHibernations on the same pod, this one included."""
    run = _Pass(ctx, target, others, now)
    try:
        if target.deleting:
            await _let_go(run)
        else:
            await _drive(run)
    except NotFoundError:
        # The pod went, or the object itself: the next look tells.
        return Outcome(requeue_after=_LOOK_AGAIN)
    except KubeError as error:
        return Outcome(requeue_after=run.requeue, error=error)
    return Outcome(requeue_after=run.requeue, error=run.errors[0] if run.errors else None)


# -- living ------------------------------------------------------------------------------------------------------------


async def _drive(run: _Pass) -> None:
    if not run.target.adopted:
        finalizers = run.target.finalizers_adopted
        run.target = await run.ctx.cluster.patch_hibernation(run.target, finalizers=finalizers)
    if problem := spec_error(run.target):
        await _write(run, Verdict(FAILED), Sight(Seen.ABSENT, why=problem))
        return
    before = run.target.phase
    await _advance(run)
    if run.target.phase in (HIBERNATING, WAKING) and run.target.phase != before:
        # Nothing is done to the pod before the status says so: whoever comes after a crash, or a deletion, has to know of it.
        await _advance(run)


async def _advance(run: _Pass) -> None:
    """One look and what it comes to."""
    sight = await _look(run)
    verdict = decide(run.target, sight.seen, run.now, run.ctx.limits)
    if verdict.wait is not None:
        run.come_back(verdict.wait.total_seconds())
    if verdict.phase in (HIBERNATING, WAKING):
        run.come_back(_LOOK_AGAIN)
    elif verdict.phase == PENDING:
        run.come_back(_LOOK_LATER)
    why = "" if verdict.phase == FAILED else sight.why
    await _write(run, verdict, Sight(sight.seen, sight.vm_name, why))


async def _look(run: _Pass) -> Sight:
    target = run.target
    if overruled := overruled_by(target, deciders(run.others).get(target.pod_name)):
        return overruled
    if target.phase == ACTIVE and not going_to_sleep(target):
        return Sight(Seen.AWAKE, target.vm_name)
    pod = await run.ctx.cluster.get_pod(target.namespace, target.pod_name)
    if pod is None or pod.terminating:
        return Sight(await _left_behind(run), target.vm_name, not_present(target))
    if not pod.vm_name:
        return no_vm_name(target)
    run.pod = pod
    seen = await _put_to_sleep(run, pod) if going_to_sleep(target) else await _wake(run, pod)
    return Sight(seen, pod.vm_name, nothing_saved(pod))


async def _left_behind(run: _Pass) -> Seen:
    """The pod is gone: what was said of its VM stays true only while the tag is there (S266)."""
    if run.target.phase != HIBERNATED or not run.target.vm_name:
        return Seen.ABSENT
    answer = await run.ctx.registry.probe(run.target.vm_name, keys.TAG_HIBERNATE)
    return Seen.GONE if isinstance(answer, Absent) else Seen.ABSENT


async def _put_to_sleep(run: _Pass, pod: Pod) -> Seen:
    if not pod.hibernate:
        if run.target.phase in (HIBERNATING, HIBERNATED) and facts.begun(pod):
            run.pod = pod = await run.ctx.cluster.patch_pod(pod, {keys.HIBERNATE: "true"})
        return Seen.MOVING
    if not is_asleep(pod, run.target):
        return Seen.MOVING
    answer = run.noted(await run.ctx.registry.probe(pod.vm_name, keys.TAG_HIBERNATE))
    if isinstance(answer, Unknown):
        return Seen.UNANSWERED
    return Seen.SAVED if isinstance(answer, Present) else without_tag(pod)


async def _wake(run: _Pass, pod: Pod) -> Seen:
    if pod.hibernate:
        if run.target.phase not in ("", PENDING) and await _may_clear(run, pod):
            run.pod = pod = await run.ctx.cluster.patch_pod(pod, {keys.HIBERNATE: None}, guarded=True)
        return Seen.MOVING
    if facts.read(pod) is not facts.Fact.AWAKE:
        return Seen.MOVING
    # Also by one that never put it to sleep: an earlier one, or a restore at the pod's creation, may have left a tag (S295).
    return Seen.AWAKE if await _dropped(run, pod) else Seen.MOVING


async def _may_clear(run: _Pass, pod: Pod) -> bool:
    """A sleeping VM's flag only with its tag seen; a living one's not while its agent may be saving (I2)."""
    if facts.has_vm(pod):
        return pod.lifecycle not in (LifecycleState.READY, LifecycleState.HIBERNATING)
    return isinstance(run.noted(await run.ctx.registry.probe(pod.vm_name, keys.TAG_HIBERNATE)), Present)


async def _dropped(run: _Pass, pod: Pod) -> bool:
    """Drop the tag behind a VM that is awake by a read of this very pass; True when that was answered."""
    answer = await _drop(run, pod.vm_name)
    if isinstance(answer, Refused):
        message = f"{pod.vm_name}:{keys.TAG_HIBERNATE} is left behind the VM, which is awake: {answer.reason}"
        run.ctx.recorder.event(run.target, "Warning", "TagDropRefused", message)
    return not isinstance(answer, Unknown)


async def _drop(run: _Pass, vm_name: str) -> WriteAnswer:
    claims = run.ctx.claims
    namesakes = [item for item in claims.hibernations(vm_name) if item.namespace != run.target.namespace]
    if run.pod is None and (namesakes or not claims.complete):
        return Refused(f"{vm_name} can be the name of a VM in another namespace")
    if vm_name != run.computed or claims.claimants(vm_name):
        return Refused(
            f"{vm_name} is not the name that is computed from pod {run.target.namespace}/{run.target.pod_name}"
        )
    return run.noted(await run.ctx.registry.drop(vm_name, keys.TAG_HIBERNATE))


async def _write(run: _Pass, verdict: Verdict, sight: Sight) -> None:
    before = run.target
    run.target = await report.store(run.ctx, before, verdict, vm_name=sight.vm_name, why=sight.why, now=run.now)
    if turns(before, run.target):
        run.come_back(0)


# -- deleted -----------------------------------------------------------------------------------------------------------


async def _let_go(run: _Pass) -> None:
    """End the intent: the VM is woken and its tag dropped, then the finalizer goes; it goes anyway after the wake's limit."""
    if run.target.adopted and await _settled(run):
        await run.ctx.cluster.patch_hibernation(run.target, finalizers=run.target.finalizers_released)


async def _settled(run: _Pass) -> bool:
    """Whether nothing is left to be done, or nothing that may be waited for any longer."""
    target = run.target
    others = _others(run)
    heirs = [other for other in others if other.phase != ACTIVE or holds(other)]
    if not target.vm_name or any(heir.vm_name for heir in heirs):
        return True
    left = _deadline(run) - run.now
    run.pod = pod = await run.ctx.cluster.get_pod(target.namespace, target.pod_name)
    if pod is None and others:
        return True
    # One that does not know its VM yet would forget it, should it be deleted next.
    done = not heirs and await _released(run, pod)
    if done or left > timedelta():
        run.come_back(_LOOK_AGAIN)
        return done
    message = (
        f"{target.vm_name} is not awake yet; {target.vm_name}:{keys.TAG_HIBERNATE} is kept, and nothing waits for it"
    )
    run.ctx.recorder.event(target, "Warning", "HibernationLetGo", message)
    run.errors.clear()
    return True


def _others(run: _Pass) -> list[Hibernation]:
    """Other living ones on this pod or this VM: flag and tag become their business (S302 to S304), unless they are inert."""
    target = run.target
    return [
        other
        for other in run.others
        if not other.deleting
        and not spec_error(other)
        and other.uid != target.uid
        and (other.pod_name == target.pod_name or other.vm_name == target.vm_name)
    ]


async def _released(run: _Pass, pod: Pod | None) -> bool:
    if pod is None:
        # The tag belongs to nobody (S299).
        return not isinstance(await _drop(run, run.target.vm_name), Unknown)
    if pod.terminating:
        return False
    if pod.hibernate:
        if await _may_clear(run, pod):
            try:
                await run.ctx.cluster.patch_pod(pod, {keys.HIBERNATE: None}, guarded=True)
            except ConflictError as error:
                run.errors.append(error)
        return False
    if facts.read(pod) is not facts.Fact.AWAKE:
        return False
    if run.target.phase == ACTIVE:
        return True
    return await _dropped(run, pod)


def _deadline(run: _Pass) -> datetime:
    deleted = conditions.moment(run.target.deletion_timestamp or conditions.timestamp(run.now))
    return deleted + run.ctx.limits.wake
