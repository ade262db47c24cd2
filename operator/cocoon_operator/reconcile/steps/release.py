"""Release of a seat whose VM is saved: the pod goes, the node keeps its copy as a cache (contract 4.5)."""

from __future__ import annotations

from collections.abc import Mapping

from cocoon_operator.api import keys
from cocoon_operator.api.enums import SetPhase
from cocoon_operator.api.errors import ConflictError, KubeError
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile import facts, records, tags
from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.run import Next, Run


async def release(run: Run, digests: Mapping[str, str]) -> Next:
    """Write names, hint and digests down in one patch, then keep flag and delete, pod by pod (S153, I5)."""
    main = run.main
    changes: dict[str, str | None] = {
        keys.DELETE_VM_NAMES: records.names_text({*records.listed_names(run.set), *run.own_names, *digests}),
        keys.SNAPSHOT_DIGESTS: records.digests_text(run.records),
    }
    if main is not None and main.spec.node_name and facts.read(main) is not facts.Fact.DEAD:
        changes[keys.HINT_NODE] = main.spec.node_name
    await run.annotate_set(changes)
    for pod in run.live:
        if facts.read(pod) is not facts.Fact.DEAD:
            await _release(run, pod)
    if run.errors:
        run.snapshot = tags.state("True", tags.SAVED)
        return Next.STOP
    run.phase = SetPhase.SUSPENDED
    run.snapshot = tags.state("True", tags.SAVED)
    return Next.STOP


async def _release(run: Run, pod: Pod) -> None:
    """Delete exactly the pod that the gate saw: a VM that woke since makes the precondition fail."""
    with apart(run):
        flagged = await _keep_cache(run, pod)
        if flagged is not None and _still(run, flagged) and await run.delete(flagged):
            run.ctx.measures.count(
                "slot_release_pods_deleted_total", namespace=run.set.namespace, cocoonset=run.set.name
            )


def _still(run: Run, pod: Pod) -> bool:
    """Whether the pod is what the gate saw, in the answer of the keep patch too."""
    if not pod.managed or not pod.spec.node_name or facts.read(pod) is facts.Fact.LOST:
        return True
    if facts.asleep_at(pod, run.set.generation):
        return True
    run.errors.append(ConflictError(f"pod {pod.name} changed while it was released"))
    return False


async def _keep_cache(run: Run, pod: Pod) -> Pod | None:
    """Ask the agent to keep its copy. Best effort: losing the flag costs a pull at the wake, never correctness (I4, S152)."""
    if pod.keep_snapshot or not pod.managed or not pod.spec.node_name:
        return pod
    try:
        return await run.annotate(pod, {keys.KEEP_SNAPSHOT: "true"})
    except KubeError as error:
        run.event("Warning", "KeepSnapshotFailed", f"pod {pod.name}: {error.message}; the next wake pulls")
        return pod
