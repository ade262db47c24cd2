"""Suspend: every VM of the set is saved under its ``:hibernate`` tag (contract 4.3, 4.4; rows 7 to 11 of the intent table)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Absent, Present
from cocoon_operator.api.enums import HibernatePolicy, LifecycleState, SetPhase
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, flags, stalled, tags
from cocoon_operator.reconcile.intent import Ask, Intent, decide
from cocoon_operator.reconcile.members import main_member
from cocoon_operator.reconcile.run import Next, Run
from cocoon_operator.reconcile.settling import status_follows
from cocoon_operator.reconcile.steps import main, release


async def step(run: Run) -> Next:
    """Put the set to sleep. Nothing is scaled, drift-checked or made here, but a main agent that was never saved."""
    if not run.spec.suspend:
        return Next.GO_ON
    run.phase = SetPhase.SUSPENDING
    run.snapshot = tags.state("True", tags.SAVED) if _sleeps_on(run) else tags.saving()
    if run.main is None and _main_intent(run) is Intent.ASLEEP:
        return await main.create(run)
    if not run.live:
        return await _nothing_left(run)
    if await stalled.look(run, run.live) is Next.PERSIST:
        return Next.PERSIST
    owed = await flags.ask_for_sleep(run, run.live)
    gate = await _gate(run)
    if gate.waiting or run.errors:
        if owed:
            why = "a drop of their tags was not answered; not put to sleep before one is"
            unflagged = tags.scoped(run) - {run.vm_name(pod) for pod in run.live if pod.hibernate}
            run.snapshot = tags.state("False", tags.TAG_DROP_PENDING, owed | unflagged, why)
        run.detail = gate.text()
        return Next.STOP
    run.records.update(gate.digests)
    if run.spec.hibernate_policy is HibernatePolicy.RELEASE:
        return await release.release(run, gate.digests)
    run.phase = SetPhase.SUSPENDED
    run.snapshot = tags.state("True", tags.SAVED)
    return Next.STOP


def _sleeps_on(run: Run) -> bool:
    """An edit of a set that is asleep: nothing wakes, so what was proven of its saves stays proven."""
    saved = tags.stored(run).reason == tags.SAVED and bool(run.live)
    return saved and all(pod.hibernate and facts.read(pod) is facts.Fact.ASLEEP for pod in run.live if pod.managed)


def _main_intent(run: Run) -> Intent:
    member = main_member(run.set)
    return decide(
        Ask(
            suspend=True,
            policy=run.spec.hibernate_policy,
            held=run.held(member.pod_name),
            pod=False,
            saved=member.vm_name in run.records,
        )
    )


async def _nothing_left(run: Run) -> Next:
    """No live pod: asleep without a seat, or never booted (S145, S146)."""
    run.phase = SetPhase.SUSPENDED
    run.snapshot = None
    if not tags.may_exist(run):
        run.snapshot = tags.state("True", tags.NO_SNAPSHOT)
        return Next.STOP
    vm_name = main_member(run.set).vm_name
    hinted = keys.HINT_NODE in run.set.annotations
    if not run.records.get(vm_name) and not hinted and not _seen_before(run):
        # Suspended by the Go operator, or the last pod vanished in the middle of its save: see what there is.
        answer = await tags.probe(run, vm_name)
        if isinstance(answer, Present):
            run.records[vm_name] = answer.digest
        elif vm_name in run.records:
            tags.report_missing(run, vm_name, "")
            return Next.STOP
    run.snapshot = tags.state("True", tags.SAVED)
    return Next.STOP


# -- the gate ----------------------------------------------------------------------------------------------------------


class Asleep(Enum):
    """What the gate says of one pod."""

    YES = auto()
    NOT_YET = auto()
    SKIP = auto()


@dataclass(slots=True)
class Gate:
    """What the gate found: digests of the saves that are proven, and who is waited for."""

    digests: dict[str, str]
    saved: int
    managed: int
    waiting: list[str]

    def text(self) -> str:
        """``1 of 3 VMs saved; waiting for demo-2 (hibernating)``."""
        return f"{self.saved} of {self.managed} VMs saved; waiting for {', '.join(self.waiting)}"


async def _gate(run: Run) -> Gate:
    """Every managed VM is asleep in this generation, and its tag was seen (4.4). The tag is asked only after the agent spoke."""
    gate = Gate({}, 0, 0, [])
    for pod in run.live:
        verdict = judge(pod, run.set.generation, run.spec.hibernate_policy)
        if verdict is Asleep.YES and status_follows(run, pod):
            verdict = Asleep.NOT_YET
        if verdict is Asleep.SKIP or await _never_came_up(run, pod):
            continue
        gate.managed += 1
        vm_name = run.vm_name(pod) or pod.vm_name
        found = await _saved(run, pod, vm_name) if verdict is Asleep.YES else None
        if found is None:
            gate.waiting.append(f"{pod.name} ({_doing(pod)})")
        else:
            gate.saved += 1
            gate.digests[vm_name] = found.digest
    return gate


async def _never_came_up(run: Run, pod: Pod) -> bool:
    """A boot that failed, such as a fork whose source fell asleep first: nothing to save, and made again after the wake."""
    vm_name = run.vm_name(pod)
    if facts.read(pod) is not facts.Fact.LOST or vm_name in run.records:
        return False
    return isinstance(await tags.probe(run, vm_name), Absent)


def judge(pod: Pod, generation: int, policy: HibernatePolicy) -> Asleep:
    """Read one pod for the gate. A pod that failed to hibernate holds a living VM, and does block (W-62).

    A pod without a node has no VM: a release takes it away, and what its tag holds stays on record.
    """
    if not pod.managed or pod.dead_letter or facts.read(pod) is facts.Fact.DEAD:
        return Asleep.SKIP
    if pod.spec.node_name == "" and policy is HibernatePolicy.RELEASE:
        return Asleep.SKIP
    if not pod.hibernate or pod.vm_name == "":
        return Asleep.NOT_YET
    if facts.asleep_at(pod, generation):
        return Asleep.YES
    # A wake that failed left no VM: what the tag holds is all there is (design 4.4).
    lost = facts.read(pod) is facts.Fact.LOST and pod.observed_generation >= generation
    return Asleep.YES if lost else Asleep.NOT_YET


async def _saved(run: Run, pod: Pod, vm_name: str) -> Present | None:
    """The tag of a VM that is asleep; asked once a generation, however many passes the others take."""
    if _seen_before(run) and run.records.get(vm_name):
        return Present(run.records[vm_name])
    generation, digest = run.memory.saved.get(pod.uid, (-1, ""))
    if generation == run.set.generation:
        return Present(digest)
    answer = await tags.probe(run, vm_name)
    if isinstance(answer, Present):
        run.memory.saved[pod.uid] = (run.set.generation, answer.digest)
        return answer
    if isinstance(answer, Absent) and tags.proven(run, vm_name):
        return await tags.put_back(run, vm_name)
    if isinstance(answer, Absent):
        tags.report_missing(run, vm_name, "")
    return None


def _seen_before(run: Run) -> bool:
    """Whether the gate was passed in this very generation: a run for another reason asks the registry nothing."""
    stored = run.stored(tags.CONDITION)
    asleep = run.stored_phase == SetPhase.SUSPENDED and stored.get("reason") == tags.SAVED
    return asleep and run.set.status.get("observedGeneration") == run.set.generation


def _doing(pod: Pod) -> str:
    if message := pod.unschedulable:
        return f"not scheduled: {message}"
    if pod.lifecycle == LifecycleState.FAILED:
        return pod.lifecycle_message
    return pod.lifecycle or "not seen by a node agent yet"
