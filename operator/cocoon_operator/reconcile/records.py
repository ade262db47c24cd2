"""What is written down on a set: which VM names are its own, and which saves are on record (design 4.3, rules 3 and 4).

Everything here reads text that a user can edit, so nothing raises, and names outside ``vk-<ns>-<set>-`` do not count (W-63).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from cocoon_operator.api import keys, names
from cocoon_operator.api.enums import SetPhase, ToolboxMode
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile.hibernation.holds import may_leave_a_tag
from cocoon_operator.reconcile.members import main_member, vm_name_of
from cocoon_operator.reconcile.objects import SetObject

SNAPSHOT_CURRENT: Final = "SnapshotCurrent"
NO_SNAPSHOT: Final = "NoSnapshot"
TAG_DROP_PENDING: Final = "TagDropPending"
KEPT: Final = "KeptAsleep"
WAKE_IN_PROGRESS: Final = "WakeInProgress"
_SLOT: Final = re.compile(r"(0|[1-9][0-9]{0,9})\Z", re.ASCII)
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")


def listed_names(target: SetObject) -> tuple[str, ...]:
    """The names of ``delete-vm-names`` as they are written, foreign ones included (S255)."""
    text = target.annotations.get(keys.DELETE_VM_NAMES, "")
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def foreign_names(target: SetObject) -> tuple[str, ...]:
    """Listed names that cannot be this set's: reported, never acted on (W-63)."""
    return tuple(name for name in listed_names(target) if not _fits(target, name))


def own_names(target: SetObject, pods: Iterable[Pod]) -> frozenset[str]:
    """The VM names that were settled as this set's.

    A set of the Go operator has the finalizer and no list: the names in its status and of its living pods count.
    """
    listed = {name for name in listed_names(target) if _fits(target, name)}
    if keys.DELETE_VM_NAMES in target.annotations or keys.SET_FINALIZER not in target.finalizers:
        return frozenset(listed)
    return frozenset(listed | {name for name in status_names(target) if _fits(target, name)} | pod_names(target, pods))


def pod_names(target: SetObject, pods: Iterable[Pod]) -> set[str]:
    """The computed VM names of managed pods; a static toolbox has neither a VM of ours nor a tag."""
    return {name for pod in pods if pod.managed and (name := vm_name_of(target, pod))}


def status_names(target: SetObject) -> set[str]:
    """The VM names in the stored status, without static toolboxes as far as the spec tells."""
    boxes = target.spec.toolboxes if target.spec else ()
    static = {names.vm_name(target.namespace, target.name, box.name) for box in boxes if box.mode is ToolboxMode.STATIC}
    return _status_names(target) - static


def _status_names(target: SetObject) -> set[str]:
    return {name for entry in status_entries(target) if isinstance(name := entry.get("vmName"), str) and name}


def can_have(target: SetObject, member: str, vm_name: str) -> bool:
    """Whether a set has or had a VM of this name: an agent of any slot, a toolbox of its spec, or one it wrote down.

    ``member`` is what the name ends with, after the set's prefix.
    """
    if _SLOT.match(member):
        return True
    if target.spec is not None and any(toolbox.name == member for toolbox in target.spec.toolboxes):
        return True
    return vm_name in listed_names(target) or vm_name in _status_names(target)


def can_have_pod(target: SetObject, pod_name: str) -> bool:
    """Whether a pod of this name can be, or have been, one of the set's."""
    member = pod_name.removeprefix(f"{target.name}-")
    return member != pod_name and can_have(target, member, names.vm_name_of_pod(target.namespace, pod_name))


def names_text(values: Iterable[str]) -> str:
    """The format of ``delete-vm-names``: sorted, without duplicates, joined by commas."""
    return ",".join(sorted(set(values)))


def digests(target: SetObject) -> dict[str, str]:
    """VM name to digest of the saves on record, from the annotation (released) and from the status (in place).

    "" is a save without a known digest: the hint alone, a set that the Go operator suspended, a name in the condition.
    """
    found: dict[str, str] = {}
    main = main_member(target).vm_name
    if target.annotations.get(keys.HINT_NODE):
        found[main] = ""
    if _suspended_by_go(target) and main in listed_names(target):
        found[main] = ""
    for name in condition_names(target, WAKE_IN_PROGRESS):
        if _fits(target, name):
            found[name] = ""
    for entry in status_entries(target):
        _take(target, found, entry.get("vmName"), entry.get("snapshotDigest"))
    for name, digest in annotated_digests(target).items():
        _take(target, found, name, digest)
    return found


def digests_text(values: Mapping[str, str]) -> str | None:
    """The format of ``snapshot-digests``; None (remove the key) when there is nothing to say."""
    known = {name: digest for name, digest in sorted(values.items()) if digest}
    return json.dumps(known, separators=(",", ":")) if known else None


def removing_names(target: SetObject) -> frozenset[str]:
    """The names of ``removing-vm-names``: VMs that the user gave up, whose tags are not collected yet."""
    text = target.annotations.get(keys.REMOVING_VM_NAMES, "")
    return frozenset(name for name in (part.strip() for part in text.split(",")) if _fits(target, name))


def fresh_names(target: SetObject) -> tuple[str, ...]:
    """The names of ``start-fresh``."""
    text = target.annotations.get(keys.START_FRESH, "")
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def status_entries(target: SetObject) -> list[Mapping[str, Any]]:
    """The entries of ``status.agents`` and ``status.toolboxes``, whatever garbage may be stored around them."""
    entries: list[Mapping[str, Any]] = []
    for key in ("agents", "toolboxes"):
        value = target.status.get(key)
        if isinstance(value, list):
            entries.extend(entry for entry in value if isinstance(entry, Mapping))
    return entries


def condition(target: SetObject, kind: str) -> Mapping[str, Any]:
    """A stored condition; an empty mapping when there is none."""
    stored = target.status.get("conditions")
    if isinstance(stored, list):
        for entry in stored:
            if isinstance(entry, Mapping) and entry.get("type") == kind:
                return entry
    return {}


def overtaken(target: SetObject, found: Mapping[str, Any], hibernations: Iterable[Hibernation] = ()) -> bool:
    """Whether a word on who can have a tag is older than what is around it: the set was with the Go operator since.

    That one keeps conditions that it does not know as they are (contract 1.7), and leaves tags behind (W-17). It raises no
    generation for a CocoonHibernation; but here one that sleeps, or wakes, is never beside a ``NoSnapshot``.
    """
    if found.get("type") != SNAPSHOT_CURRENT or found.get("reason") not in (NO_SNAPSHOT, KEPT, TAG_DROP_PENDING):
        return False
    if found.get("reason") == NO_SNAPSHOT and any(may_leave_a_tag(item) for item in hibernations):
        return True
    said, now = found.get("observedGeneration"), target.status.get("observedGeneration")
    return isinstance(said, int) and isinstance(now, int) and said < now


def condition_names(target: SetObject, reason: str) -> frozenset[str]:
    """The VM names that the stored ``SnapshotCurrent`` lists before its colon, if it has this reason."""
    stored = condition(target, SNAPSHOT_CURRENT)
    if stored.get("reason") != reason or overtaken(target, stored):
        return frozenset()
    return names_before_colon(str(stored.get("message", "")))


def names_before_colon(message: str) -> frozenset[str]:
    """The names that a condition's message lists before its colon, so that any process can go on from them."""
    head, colon, _ = message.partition(": ")
    return frozenset(name.strip() for name in head.split(",") if name.strip()) if colon else frozenset()


def _suspended_by_go(target: SetObject) -> bool:
    return target.status.get("phase") == SetPhase.SUSPENDED and not condition(target, SNAPSHOT_CURRENT)


def annotated_digests(target: SetObject) -> dict[str, Any]:
    """The content of ``snapshot-digests``; empty when it is missing or malformed."""
    try:
        value = json.loads(target.annotations.get(keys.SNAPSHOT_DIGESTS, "{}"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _take(target: SetObject, found: dict[str, str], name: object, digest: object) -> None:
    if isinstance(name, str) and isinstance(digest, str) and _fits(target, name) and DIGEST.match(digest):
        found[name] = digest


def _fits(target: SetObject, name: str) -> bool:
    prefix = names.set_prefix(target.namespace, target.name)
    return name.startswith(prefix) and len(name) > len(prefix)
