"""The pod that stands for a VM, built purely (contract, section 3)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from cocoon_operator.api import keys, quantity
from cocoon_operator.api.cocoonset import AgentSpec, CocoonSetSpec, ToolboxSpec
from cocoon_operator.api.enums import Role, ToolboxMode
from cocoon_operator.api.pod import Pod
from cocoon_operator.api.vmspec import VMSpec
from cocoon_operator.reconcile.applied import applied_resources_text
from cocoon_operator.reconcile.members import Member
from cocoon_operator.reconcile.objects import SetObject

PLACEHOLDER_IMAGE: Final = "ghcr.io/cocoonstack/placeholder:latest"
CONTAINER: Final = "agent"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"

_TOLERATIONS: Final = (
    {"key": keys.PROVIDER_TOLERATION, "operator": "Exists"},
    # Without tolerationSeconds: a node that is not heard of for a while still holds the VMs (S056).
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
)


def build_main(
    target: SetObject, spec: CocoonSetSpec, member: Member, *, restore: bool = False, hint: str = ""
) -> dict[str, Any]:
    """Build the main agent's pod. A pin is required (S058); the hint of a released seat is a preference (S159, S160)."""
    body = _agent_pod(target, spec, member, VMSpec.for_agent(spec, member.vm_name), restore=restore)
    if spec.node_name:
        body["spec"]["affinity"] = _required_node(spec.node_name)
    elif hint:
        body["spec"]["affinity"] = _preferred_node(hint)
    return body


def build_sub_agent(
    target: SetObject, spec: CocoonSetSpec, member: Member, *, fork_from: str, node: str, restore: bool = False
) -> dict[str, Any]:
    """Build a sub-agent's pod: forked from main's VM, bound to main's node past the scheduler (S046, S060)."""
    vm = VMSpec.for_agent(spec, member.vm_name, fork_from)
    body = _agent_pod(target, spec, member, vm, restore=restore)
    if node:
        body["spec"]["nodeName"] = node
    return body


def build_toolbox(
    target: SetObject, spec: CocoonSetSpec, member: Member, toolbox: ToolboxSpec, *, restore: bool = False
) -> dict[str, Any]:
    """Build a toolbox's pod. Only a static one carries its id, address and VNC port from the spec (S049, S064)."""
    vm = VMSpec.for_toolbox(spec, toolbox, member.vm_name)
    body = _pod(target, spec, member, vm, toolbox, restore=restore)
    if toolbox.mode is ToolboxMode.STATIC:
        body["metadata"]["annotations"].update(static_hints(toolbox))
    return body


def build(
    target: SetObject,
    spec: CocoonSetSpec,
    member: Member,
    *,
    main: Pod | None,
    restore: bool = False,
    hint: str = "",
) -> dict[str, Any]:
    """Build the pod of any member; ``main`` is the live main agent that sub-agents are forked from."""
    if member.toolbox is not None:
        return build_toolbox(target, spec, member, member.toolbox, restore=restore)
    if member.role is Role.MAIN:
        return build_main(target, spec, member, restore=restore, hint=hint)
    source, node = (main.vm_name, main.spec.node_name) if main is not None else ("", "")
    return build_sub_agent(target, spec, member, fork_from=source, node=node, restore=restore)


def static_hints(toolbox: ToolboxSpec) -> dict[str, str]:
    """The runtime annotations of a static toolbox (2.3)."""
    hints = {keys.VM_ID: toolbox.static_vm_id, keys.VM_IP: toolbox.static_ip}
    if toolbox.vnc_port > 0:
        hints[keys.VNC_PORT] = str(toolbox.vnc_port)
    return {key: value for key, value in hints.items() if value}


def container_resources(options: AgentSpec | ToolboxSpec) -> dict[str, dict[str, Any]]:
    """The container's resources: the user's, with storage as ephemeral-storage on both sides (3.4).

    The result shares nothing with the spec, which several builds may read at once (W-11).
    """
    resources = {
        "limits": dict(options.resources.limits),
        "requests": dict(options.resources.requests),
    }
    if options.storage is not None and not quantity.is_zero(options.storage):
        for side in resources.values():
            side[EPHEMERAL_STORAGE] = quantity.canonical(options.storage)
    filled: dict[str, Any] = {side: values for side, values in resources.items() if values}
    if options.resources.claims:
        filled["claims"] = [dict(claim) for claim in options.resources.claims]
    return filled


def _agent_pod(target: SetObject, spec: CocoonSetSpec, member: Member, vm: VMSpec, *, restore: bool) -> dict[str, Any]:
    body = _pod(target, spec, member, vm, spec.agent, restore=restore)
    if spec.agent.env_from:
        body["spec"]["containers"][0]["envFrom"] = copy.deepcopy(list(spec.agent.env_from))
    if spec.agent.service_account_name:
        body["spec"]["serviceAccountName"] = spec.agent.service_account_name
    return body


def _pod(
    target: SetObject,
    spec: CocoonSetSpec,
    member: Member,
    vm: VMSpec,
    options: AgentSpec | ToolboxSpec,
    *,
    restore: bool,
) -> dict[str, Any]:
    annotations = {
        keys.GENERATION: str(target.generation),
        keys.APPLIED_RESOURCES: applied_resources_text(options.resources),
        **vm.to_annotations(),
    }
    if restore:
        annotations[keys.RESTORE] = "true"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": member.pod_name,
            "namespace": target.namespace,
            "labels": _labels(target, member.role, member.slot),
            "annotations": annotations,
            "ownerReferences": [_owner(target)],
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": _node_selector(spec),
            "tolerations": [dict(toleration) for toleration in _TOLERATIONS],
            "containers": [
                {"name": CONTAINER, "image": PLACEHOLDER_IMAGE, "resources": container_resources(options)},
            ],
        },
    }


def _labels(target: SetObject, role: Role, slot: str) -> dict[str, str]:
    return {
        keys.LABEL_SET: target.name,
        keys.LABEL_ROLE: role.value,
        keys.LABEL_SLOT: slot,
        keys.LABEL_APP: target.name,
    }


def _owner(target: SetObject) -> dict[str, Any]:
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_SET,
        "name": target.name,
        "uid": target.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _node_selector(spec: CocoonSetSpec) -> dict[str, str]:
    selector = {keys.NODE_POOL: spec.node_pool or "default"}
    if spec.snapshot_compatibility_class:
        selector[keys.NODE_CPU_CLASS] = spec.snapshot_compatibility_class
    return selector


def _on_host(node: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": keys.NODE_HOSTNAME, "operator": "In", "values": [node]}]}


def _required_node(node: str) -> Mapping[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_on_host(node)]}}}


def _preferred_node(node: str) -> Mapping[str, Any]:
    term = {"weight": 100, "preference": _on_host(node)}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
