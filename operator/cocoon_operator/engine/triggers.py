"""What makes a set run: which differences between two versions of an object matter, and to which sets (contract 4.0).

A fingerprint holds what decisions look at and nothing else, so that heartbeats, live snapshots (W-22) and our own
writes cost no run.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from cocoon_operator.api import keys
from cocoon_operator.api.pod import Pod
from cocoon_operator.engine.store import Identity, Key, version_of
from cocoon_operator.reconcile.objects import SetObject

_LIVE_SNAPSHOT: Final = frozenset({keys.SNAPSHOT_REQUEST, keys.SNAPSHOT_STATUS})

Object = Mapping[str, Any]


def identify_pod(pod: Pod) -> Identity:
    """Return the store's identity of a pod."""
    return Identity(Key(pod.namespace, pod.name), pod.uid, version_of(pod.resource_version))


def identify_set(obj: SetObject) -> Identity:
    """Return the store's identity of a CocoonSet."""
    return Identity(Key(obj.namespace, obj.name), obj.uid, version_of(obj.resource_version))


def identify_object(obj: Object) -> Identity:
    """Return the store's identity of a decoded JSON object."""
    metadata = obj.get("metadata") or {}
    key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
    return Identity(key, metadata.get("uid", ""), version_of(metadata.get("resourceVersion", "")))


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


def hibernation_concerns(obj: Object, target: Key) -> bool:
    """Whether a CocoonHibernation maps to a set by name: its pod, or the VM in its status, may be one of the set's."""
    return target in sets_of_hibernation(obj)


def sets_of_hibernation(obj: Object) -> set[Key]:
    """Return every set, existing or not, that a CocoonHibernation maps to by name (design 4.1)."""
    namespace = identify_object(obj).key.namespace
    pod = _text(obj, "spec", "podRef", "name")
    vm = _text(obj, "status", "vmName").removeprefix(f"vk-{namespace}-")
    return {Key(namespace, name) for name in _owners(pod) | _owners(vm)}


def _owners(member: str) -> set[str]:
    """Return the names of the sets that can have a member of this name: it starts with one of them and a dash."""
    return {member[:at] for at, letter in enumerate(member) if letter == "-" and at > 0}


def _text(obj: Object, *path: str) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value if isinstance(value, Hashable) else repr(value)
