"""Names that are computed from a set, and what a name says about the VM behind it (contract 3.1, 4.15).

VM names are ambiguous across namespaces (W-25): ``vk-a-b-c-0`` belongs to set ``b-c`` of namespace ``a`` and to set
``c`` of namespace ``a-b``. Functions that read a name therefore take the namespace and the set they ask about.
"""

from __future__ import annotations

import re
from typing import Final

from cocoon_operator.api import keys
from cocoon_operator.api.enums import Role, SnapshotPolicy
from cocoon_operator.api.pod import Pod

NO_SLOT: Final = -1

_SLOT: Final = re.compile(r"[0-9]{1,19}\Z", re.ASCII)
_MAX_SLOT: Final = 2**63 - 1


def set_prefix(namespace: str, set_name: str) -> str:
    """Return what every VM name of a set starts with, the dash included."""
    return f"vk-{namespace}-{set_name}-"


def vm_name(namespace: str, set_name: str, slot: int | str) -> str:
    """Return the VM name of a slot, or of a toolbox by its name (S018). It is the registry repository too."""
    return f"{set_prefix(namespace, set_name)}{slot}"


def pod_name(set_name: str, slot: int | str) -> str:
    """Return the pod name of a slot, or of a toolbox by its name."""
    return f"{set_name}-{slot}"


def vm_name_of_pod(namespace: str, pod: str) -> str:
    """Return the VM name that belongs to a pod name (S018)."""
    return f"vk-{namespace}-{pod}"


def slot_of_vm_name(namespace: str, set_name: str, vm: str) -> int:
    """Return the slot in a VM name, :data:`NO_SLOT` when it is not an agent of this set (S019).

    Only plain ASCII digits within int64 are a slot: ``vk-ns-demo-db-0`` belongs to a toolbox.
    """
    prefix = set_prefix(namespace, set_name)
    if not vm.startswith(prefix):
        return NO_SLOT
    return _parse_slot(vm[len(prefix) :])


def role_of_slot(slot: int) -> Role:
    """Return the role of a slot: 0 is main, a positive one a sub-agent, a negative one a toolbox (S020)."""
    if slot == 0:
        return Role.MAIN
    return Role.SUB_AGENT if slot > 0 else Role.TOOLBOX


def role_of_pod(pod: Pod) -> Role:
    """Return the role by the set that owns the pod and its VM name; a pod without such an owner is a toolbox (S021)."""
    owner = next((ref for ref in pod.metadata.owner_references if ref.kind == keys.KIND_SET), None)
    if owner is None:
        return Role.TOOLBOX
    return role_of_slot(slot_of_vm_name(pod.namespace, owner.name, pod.vm_name))


def object_key(namespace: str, name: str) -> str:
    """Return ``namespace/name``, the text for an object in logs and messages (S040)."""
    return f"{namespace}/{name}"


def should_push(policy: str, role: str) -> bool:
    """Whether the snapshot policy pushes a VM of this role; an empty policy is ``always`` (S035)."""
    if policy == SnapshotPolicy.NEVER:
        return False
    if policy == SnapshotPolicy.MAIN_ONLY:
        return role == Role.MAIN
    return True


def keeps_latest(policy: str, namespace: str, set_name: str, vm: str) -> bool:
    """Whether ``<vm>:latest`` outlives the set: policy ``always``, or ``main-only`` and slot 0 (contract 4.15)."""
    return should_push(policy, role_of_slot(slot_of_vm_name(namespace, set_name, vm)))


def _parse_slot(text: str) -> int:
    if not _SLOT.match(text):
        return NO_SLOT
    slot = int(text)
    return slot if slot <= _MAX_SLOT else NO_SLOT
