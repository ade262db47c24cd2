"""The main agent: made, remade when the user changed it, waited for (R10 to R12, contract 4.9.2)."""

from __future__ import annotations

from cocoon_operator.api import keys
from cocoon_operator.api.answers import Present
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.api.errors import AlreadyExistsError, ConflictError, KubeError
from cocoon_operator.api.pod import Pod
from cocoon_operator.api.vmspec import VMSpec
from cocoon_operator.reconcile import source, tags
from cocoon_operator.reconcile.drift import agent_drifted, patch_in_place
from cocoon_operator.reconcile.facts import Fact, read
from cocoon_operator.reconcile.members import main_member
from cocoon_operator.reconcile.pods import build_main
from cocoon_operator.reconcile.run import Next, Run

NAME_TAKEN_RETRY = 30.0


async def step(run: Run) -> Next:
    """See to it that there is a main agent, and that it is what the spec asks for."""
    main = run.main
    member = main_member(run.set)
    if run.held(member.pod_name):
        holder = run.holders[member.pod_name]
        run.find("HeldByHibernation", f"{member.vm_name} is held asleep by CocoonHibernation {holder}")
        return Next.STOP
    if main is None:
        return await create(run)
    if agent_drifted(main, run.spec):
        if await _replaceable(run, main):
            await run.delete(main)
            run.phase = SetPhase.PENDING
            return Next.STOP
        run.detail = f"waiting for {member.vm_name} to be ready before it is made again for the edited spec"
    else:
        await run.annotate(main, patch_in_place(main, VMSpec.for_agent(run.spec, main.vm_name)))
    if not main.ready:
        run.phase = run.phase or SetPhase.PENDING
        return Next.STOP
    return Next.GO_ON


async def _replaceable(run: Run, main: Pod) -> bool:
    """Whether a drifted pod may be deleted now (I1): the user changed a VM that is ready, or one that has no node yet.

    Not while a tag may lie behind it: the new image would come up with the old memory (design 4.3 rule 2).
    """
    if main.hibernate:
        return False
    if read(main) is Fact.AWAKE:
        owed = run.snapshot.reason != tags.NO_SNAPSHOT if run.snapshot else tags.may_exist(run)
        return not owed
    if read(main) is Fact.LOST:
        return isinstance(await tags.probe(run, run.vm_name(main)), Present)
    # On a node its agent may be bringing the VM up, and would have it beside the next one (I3).
    return read(main) is Fact.STARTING and main.spec.node_name == ""


async def create(run: Run) -> Next:
    """Make the main agent's pod from what the registry says it can be made from."""
    member = main_member(run.set)
    if any(pod.name == member.pod_name for pod in run.owned):
        run.phase = run.phase or _phase_before_create(run)
        run.detail = f"waiting for the terminating pod {member.pod_name} to go"
        return Next.STOP
    origin = await source.find(run, member)
    if isinstance(origin, source.Blocked):
        run.phase = run.phase or _phase_before_create(run)
        return Next.STOP
    if isinstance(origin, source.OtherMachine):
        run.phase = SetPhase.PENDING
        run.snapshot = tags.state("False", tags.MOVING_ASIDE, [member.vm_name], origin.why)
        return Next.PERSIST
    restore = isinstance(origin, source.Restore)
    if isinstance(origin, source.Restore) and not _announced(run):
        run.phase = run.phase or SetPhase.WAKING
        if not run.spec.suspend:
            run.records[member.vm_name] = origin.digest
        run.snapshot = tags.state("False", tags.WAKE_IN_PROGRESS, [member.vm_name], "restored from its tag")
        return Next.PERSIST
    await source.enlist(run, member)
    hint = run.set.annotations.get(keys.HINT_NODE, "") if restore else ""
    body = build_main(run.set, run.spec, member, restore=restore, hint=hint)
    run.phase = run.phase or (SetPhase.WAKING if restore else SetPhase.PENDING)
    await _post(run, body)
    return Next.STOP


def _announced(run: Run) -> bool:
    """Whether the stored status says that a tag is being restored: before a pod with the restore mark exists."""
    if run.spec.suspend:
        return tags.may_exist(run)
    return run.stored_phase == SetPhase.WAKING and tags.may_exist(run)


def _phase_before_create(run: Run) -> SetPhase:
    return SetPhase.WAKING if run.records and not run.spec.suspend else SetPhase.PENDING


async def _post(run: Run, body: dict[str, object]) -> None:
    try:
        await run.create(body)
    except AlreadyExistsError:
        await _taken(run, main_member(run.set).pod_name)
    except KubeError as error:
        run.fail(error)
        if run.stored("Ready").get("message") != error.message:
            run.event("Warning", "CreateFailed", f"pod {main_member(run.set).pod_name}: {error.message}")


async def _taken(run: Run, pod_name: str) -> None:
    """The name is taken: by our own pod that the cache lags behind, by one that is still going, or by somebody else's (W-25)."""
    other = await run.ctx.cluster.get_pod(run.set.namespace, pod_name)
    if other is None:
        run.errors.append(ConflictError(f"pod {pod_name} was in the way and is gone"))
        return
    if other.owned_by(run.set.uid):
        run.pods[other.name] = other
        return
    owner = other.controller
    who = f"{owner.kind} {owner.name}" if owner else "nobody"
    message = f"pod {pod_name} exists and is controlled by {who}; the main agent is made when it is gone"
    run.find("PodNameCollision", message)
    run.come_back(NAME_TAKEN_RETRY)
    if run.stored("Ready").get("reason") != "PodNameCollision":
        run.event("Warning", "PodNameCollision", message)
