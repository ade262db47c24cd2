"""The typed view of a pod: the fields the operator uses, and what they mean (contract, sections 0 and 2).

The structs mirror the Kubernetes JSON, so a list of ten thousand pods is decoded straight into them and nothing else of the
pod is kept in memory. They are frozen: a run's view cannot be changed under it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cocoon_operator.api import keys

_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,19})\Z")
_INT64: Final = range(-(2**63), 2**63)
_MESSAGE_LIMIT: Final = 1024


def parse_int(text: str | None) -> int:
    """Return a signed base-10 64-bit integer; absent, empty, malformed or out of range reads as 0 (contract ``int(k)``)."""
    match = _INTEGER.match(text or "")
    if match is None:
        return 0
    # Only the 19 digits that can fit are converted: Python refuses texts of more than 4300 digits with an error.
    value = int(match[1] + match[2])
    return value if value in _INT64 else 0


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """A controller reference is the only proof that a pod is ours (I7)."""

    uid: str = ""
    name: str = ""
    kind: str = ""
    api_version: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Object metadata as far as decisions need it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)


class Resources(msgspec.Struct, frozen=True):
    """Container resources; quantities are kept as the API server stores them."""

    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    requests: dict[str, Any] = msgspec.field(default_factory=dict)


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container of the pod spec."""

    name: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    env_from: list[dict[str, Any]] = msgspec.field(default_factory=list)


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The pod spec as far as drift and placement look at it."""

    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    service_account_name: str = ""
    affinity: dict[str, Any] = msgspec.field(default_factory=dict)
    containers: list[Container] = msgspec.field(default_factory=list)


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of the pod status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    """A container status; ``state`` has one of the keys running, waiting, terminated."""

    name: str = ""
    state: dict[str, Any] = msgspec.field(default_factory=dict)


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The pod status as far as decisions need it."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] = msgspec.field(default_factory=list)
    container_statuses: list[ContainerStatus] = msgspec.field(default_factory=list)


class Pod(msgspec.Struct, frozen=True):
    """One pod, read."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    # -- identity -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        return self.metadata.resource_version

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``, or None."""
        return next((ref for ref in self.metadata.owner_references if ref.controller), None)

    def owned_by(self, uid: str) -> bool:
        """Whether the set with this UID controls the pod; a namesake of it does not (S091)."""
        ref = self.controller
        return ref is not None and ref.uid == uid and uid != ""

    @property
    def role(self) -> str:
        return self.labels.get(keys.LABEL_ROLE, "")

    @property
    def slot(self) -> str:
        return self.labels.get(keys.LABEL_SLOT, "")

    @property
    def vm_name(self) -> str:
        return self.annotations.get(keys.VM_NAME, "")

    # -- what the operator wrote -----------------------------------------------------------------------------------

    def flag(self, key: str) -> bool:
        """True only for the exact text ``true`` (S022)."""
        return self.annotations.get(key) == "true"

    @property
    def hibernate(self) -> bool:
        return self.flag(keys.HIBERNATE)

    @property
    def restore(self) -> bool:
        return self.flag(keys.RESTORE)

    @property
    def keep_snapshot(self) -> bool:
        return self.flag(keys.KEEP_SNAPSHOT)

    @property
    def managed(self) -> bool:
        return self.flag(keys.MANAGED)

    @property
    def dead_letter(self) -> bool:
        return self.flag(keys.DEAD_LETTER)

    @property
    def generation(self) -> int:
        """The generation stamp (S028)."""
        return parse_int(self.annotations.get(keys.GENERATION))

    # -- what the node agent wrote ---------------------------------------------------------------------------------

    @property
    def vm_id(self) -> str:
        return self.annotations.get(keys.VM_ID, "")

    @property
    def lifecycle(self) -> str:
        """``creating``, ``ready``, ``hibernating``, ``hibernated``, ``failed``; "" from an agent without lifecycle."""
        return self.annotations.get(keys.LIFECYCLE_STATE, "")

    @property
    def observed_generation(self) -> int:
        return parse_int(self.annotations.get(keys.LIFECYCLE_GENERATION))

    @property
    def lifecycle_message(self) -> str:
        """The agent's text for people, its first 1024 characters: it is repeated in conditions, events and logs."""
        return self.annotations.get(keys.LIFECYCLE_MESSAGE, "")[:_MESSAGE_LIMIT]

    # -- what the pod status says ----------------------------------------------------------------------------------

    def condition(self, kind: str) -> PodCondition | None:
        return next((c for c in self.status.conditions if c.type == kind), None)

    @property
    def ready(self) -> bool:
        """Pod condition ``Ready`` is ``True`` (S037)."""
        condition = self.condition("Ready")
        return condition is not None and condition.status == "True"

    @property
    def running(self) -> bool:
        """At least one container has ``state.running`` (S038)."""
        return any("running" in status.state for status in self.status.container_statuses)

    @property
    def required_host(self) -> str:
        """The one host that the pod's required node affinity names (3.3), "" when it names none."""
        try:
            required = self.spec.affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            [term] = required["nodeSelectorTerms"]
            [expression] = term["matchExpressions"]
            [host] = expression["values"]
        except (KeyError, TypeError, ValueError):
            return ""
        return str(host) if expression.get("key") == keys.NODE_HOSTNAME else ""

    @property
    def unschedulable(self) -> str:
        """The scheduler's message when it found no node, else ""."""
        condition = self.condition("PodScheduled")
        if condition is not None and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.message
        return ""


def decode_pod(body: bytes | str) -> Pod:
    """Decode one pod from JSON. Raises :class:`msgspec.ValidationError` when it is not one."""
    return _DECODER.decode(body)


def pod_from_object(obj: Any) -> Pod:
    """Convert a decoded JSON object to a :class:`Pod`."""
    return msgspec.convert(obj, Pod)


_DECODER: Final = msgspec.json.Decoder(Pod)
