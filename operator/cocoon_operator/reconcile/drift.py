"""Whether a pod still stands for what the spec asks for (contract 3.6), and what can be patched in place (W-12)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from cocoon_operator.api import keys
from cocoon_operator.api.cocoonset import CocoonSetSpec, ToolboxSpec, VMOptions
from cocoon_operator.api.enums import Role, ToolboxMode
from cocoon_operator.api.pod import Pod
from cocoon_operator.api.vmspec import VMSpec
from cocoon_operator.reconcile.applied import applied_resources_text, resources_match
from cocoon_operator.reconcile.facts import Fact, read
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.pods import static_hints


def drifted(pod: Pod, spec: CocoonSetSpec, member: Member) -> bool:
    """Whether a member's pod has to be made again for the spec as it is now."""
    if member.toolbox is None:
        return agent_drifted(pod, spec)
    return toolbox_drifted(pod, spec, member.toolbox)


def agent_drifted(pod: Pod, spec: CocoonSetSpec) -> bool:
    """Whether an agent's pod has to be made again. A sub-agent keeps the fork source it was made from."""
    have = VMSpec.from_annotations(pod.annotations)
    fork_from = have.fork_from if pod.role == "sub-agent" else ""
    want = VMSpec.for_agent(spec, have.name, fork_from)
    return (
        _vm_drifted(have, want)
        or not _placed(pod, spec)
        or not resources_match(pod, spec.agent.resources)
        or _service_account(pod.spec.service_account_name) != _service_account(spec.agent.service_account_name)
        or _env_from(pod) != list(spec.agent.env_from)
    )


def toolbox_drifted(pod: Pod, spec: CocoonSetSpec, toolbox: ToolboxSpec) -> bool:
    """Whether a toolbox's pod has to be made again."""
    have = VMSpec.from_annotations(pod.annotations)
    want = VMSpec.for_toolbox(spec, toolbox, have.name)
    if _vm_drifted(have, want) or not _placed(pod, spec) or not resources_match(pod, toolbox.resources):
        return True
    return toolbox.mode is ToolboxMode.STATIC and _static_drifted(pod, toolbox)


def patch_in_place(pod: Pod, spec: CocoonSetSpec, member: Member) -> dict[str, str | None]:
    """The annotations that the node agent reads only later, where they differ: snapshot policy, connection type, force pull."""
    wanted = _wanted(pod, spec, member).to_annotations()
    patch: dict[str, str | None] = {}
    for key in (keys.SNAPSHOT_POLICY, keys.CONN_TYPE, keys.FORCE_PULL):
        value = wanted.get(key)
        if pod.annotations.get(key) != value:
            patch[key] = value
    return patch


def fingerprint(spec: CocoonSetSpec, member: Member) -> str:
    """A digest of everything that :func:`drifted` compares with the spec, to be remembered where there is no pod."""
    options: VMOptions = spec.agent if member.toolbox is None else member.toolbox
    vm = VMSpec.for_agent(spec, "") if member.toolbox is None else VMSpec.for_toolbox(spec, member.toolbox, "")
    compared: dict[str, object] = {
        "vm": replace(vm, snapshot_policy="", conn_type="", force_pull=False).to_annotations(),
        "placed": [spec.node_pool or "default", spec.snapshot_compatibility_class],
        "resources": applied_resources_text(options.resources),
    }
    if member.toolbox is None:
        compared["identity"] = [_service_account(spec.agent.service_account_name), list(spec.agent.env_from)]
    else:
        compared["static"] = static_hints(member.toolbox) if member.toolbox.mode is ToolboxMode.STATIC else {}
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]


def other_machine(pod: Pod, spec: CocoonSetSpec, member: Member) -> bool:
    """Whether the spec asks for a machine that the pod's saved memory cannot be part of: image, backend, OS (W-13)."""
    have = VMSpec.from_annotations(pod.annotations)
    want = _wanted(pod, spec, member)
    return (have.image, have.backend, have.os) != (want.image, want.backend, want.os)


def _wanted(pod: Pod, spec: CocoonSetSpec, member: Member) -> VMSpec:
    """The VM that the spec asks for; a sub-agent keeps the fork source it was made from."""
    if member.toolbox is not None:
        return VMSpec.for_toolbox(spec, member.toolbox, pod.vm_name)
    fork_from = VMSpec.from_annotations(pod.annotations).fork_from if member.role is Role.SUB_AGENT else ""
    return VMSpec.for_agent(spec, pod.vm_name, fork_from)


def _vm_drifted(have: VMSpec, want: VMSpec) -> bool:
    """Field by field but the name, and without what :func:`patch_in_place` takes care of."""
    return (
        replace(
            have,
            name=want.name,
            snapshot_policy=want.snapshot_policy,
            conn_type=want.conn_type,
            force_pull=want.force_pull,
        )
        != want
    )


def _placed(pod: Pod, spec: CocoonSetSpec) -> bool:
    """Pool and CPU class fit; a live pod without class selector is adopted until its next recreate (S075)."""
    if _pool(pod) != (spec.node_pool or "default"):
        return False
    selected = pod.spec.node_selector.get(keys.NODE_CPU_CLASS, "")
    if selected == spec.snapshot_compatibility_class:
        return True
    return selected == "" and read(pod) not in (Fact.DEAD, Fact.LOST)


def _pool(pod: Pod) -> str:
    sources = (pod.spec.node_selector, pod.labels, pod.annotations)
    return next((value for source in sources if (value := source.get(keys.NODE_POOL))), "default")


def _service_account(name: str) -> str:
    return name or "default"


def _env_from(pod: Pod) -> list[dict[str, object]]:
    return pod.spec.containers[0].env_from if pod.spec.containers else []


def _static_drifted(pod: Pod, toolbox: ToolboxSpec) -> bool:
    hints = static_hints(toolbox)
    return any(pod.annotations.get(key, "") != hints.get(key, "") for key in (keys.VM_ID, keys.VM_IP, keys.VNC_PORT))
