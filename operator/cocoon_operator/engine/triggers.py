"""What makes a set run: which differences between two versions of an object matter, and to which sets (contract 4.0).

A fingerprint holds what decisions look at and nothing else, so that heartbeats, live snapshots (W-22) and our own
writes cost no run.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from cocoon_operator.api import keys
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.pod import Pod
from cocoon_operator.engine.store import Identity, Key, version_of
from cocoon_operator.reconcile.objects import SetObject

_LIVE_SNAPSHOT: Final = frozenset({keys.SNAPSHOT_REQUEST, keys.SNAPSHOT_STATUS})


def identify_pod(pod: Pod) -> Identity:
    """Return the store's identity of a pod."""
    return Identity(Key(pod.namespace, pod.name), pod.uid, version_of(pod.resource_version))


def identify_set(obj: SetObject) -> Identity:
    """Return the store's identity of a CocoonSet."""
    return Identity(Key(obj.namespace, obj.name), obj.uid, version_of(obj.resource_version))


def identify_hibernation(obj: Hibernation) -> Identity:
    """Return the store's identity of a CocoonHibernation."""
    return Identity(Key(obj.namespace, obj.name), obj.uid, version_of(obj.resource_version))


def set_of_label(pod: Pod) -> Key | None:
    """Return the set whose label a pod carries."""
    name = pod.labels.get(keys.LABEL_SET)
    return Key(pod.namespace, name) if name else None


def sets_of_pod(pod: Pod) -> set[Key]:
    """Return the sets that a pod concerns: its controller, and the one of its label."""
    found = {set_of_label(pod)} - {None}
    owner = pod.controller
    if owner is not None and owner.kind == keys.KIND_SET:
        found.add(Key(pod.namespace, owner.name))
    return {key for key in found if key is not None}


def pod_fingerprint(pod: Pod) -> Hashable:
    """Return what of a pod matters to a set (W-22: container running and node bound count too)."""
    scheduled = pod.condition("PodScheduled")
    return (
        pod.uid,
        pod.metadata.deletion_timestamp,
        pod.status.phase,
        pod.ready,
        pod.running,
        pod.spec.node_name,
        (scheduled.status, scheduled.reason, scheduled.message) if scheduled is not None else None,
        frozenset(pod.labels.items()),
        frozenset((key, value) for key, value in pod.annotations.items() if key not in _LIVE_SNAPSHOT),
    )


def set_fingerprint(obj: SetObject) -> Hashable:
    """Return what of a CocoonSet matters to itself: the spec by its generation, the annotations of this project."""
    return (
        obj.uid,
        obj.generation,
        obj.deletion_timestamp,
        obj.finalizers,
        frozenset((key, value) for key, value in obj.annotations.items() if key.startswith(f"{keys.GROUP}/")),
        _frozen(obj.status),
    )


def hibernation_fingerprint(obj: Hibernation) -> Hashable:
    """Return what of a CocoonHibernation matters: everything but its version and the order of its keys."""
    return (
        obj.uid,
        obj.generation,
        obj.deletion_timestamp,
        obj.finalizers,
        obj.phase,
        obj.vm_name,
        obj.observed_generation,
        _frozen(obj.conditions),
    )


def sets_of_hibernation(obj: Hibernation) -> set[Key]:
    """Return every set, existing or not, that a CocoonHibernation maps to by name (design 4.1)."""
    vm = obj.vm_name.removeprefix(f"vk-{obj.namespace}-")
    return {Key(obj.namespace, name) for name in _owners(obj.pod_name) | _owners(vm)}


def lone_key(namespace: str, pod_name: str) -> Key:
    """Return the key of the CocoonHibernations on a pod outside every set; no set can have such a name (design 4.1)."""
    return Key(namespace, f"pods/{pod_name}")


def lone_pod(key: Key) -> str | None:
    """Return the pod of a key that :func:`lone_key` made, None for the key of a set."""
    head, slash, name = key.name.partition("/")
    return name if slash and head == "pods" else None


def _owners(member: str) -> set[str]:
    """Return the names of the sets that can have a member of this name: it starts with one of them and a dash."""
    return {member[:at] for at, letter in enumerate(member) if letter == "-" and at > 0}


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value if isinstance(value, Hashable) else repr(value)
