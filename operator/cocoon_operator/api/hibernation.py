"""The CocoonHibernation as types (contract 1.8).

The CRD is generated from them: a field's text here is its text there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from cocoon_operator.api import conditions, keys
from cocoon_operator.api.conditions import Condition
from cocoon_operator.api.enums import Desire, HibernationPhase
from cocoon_operator.api.wire import Int64, Rule, WireModel, list_map, rules

_IMMUTABLE: Final = rules(Rule("self == oldSelf", "spec.podRef is immutable"))


class PodReference(WireModel):
    """A pod of the same namespace."""

    model_config = ConfigDict(json_schema_extra=_IMMUTABLE)

    name: str = Field(min_length=1)
    """Name of the pod."""


class CocoonHibernationSpec(WireModel):
    """What a user asks for."""

    pod_ref: PodReference
    """The pod whose VM is meant. It cannot be changed."""
    desire: Desire
    """Hibernate: save the VM and let it sleep. Wake: let it run."""


class CocoonHibernationStatus(WireModel):
    """What was last seen of the VM."""

    observed_generation: Int64 = 0
    """Generation of the spec that this status was computed for."""
    phase: HibernationPhase | None = None
    """The hibernation in one word."""
    vm_name: str = ""
    """Name of the VM, and of its repository in the registry."""
    conditions: Annotated[tuple[Condition, ...], Field(json_schema_extra=list_map("type"))] = ()
    """Conditions in the usual sense; Ready tells whether the desire is fulfilled."""


@dataclass(frozen=True, slots=True)
class Hibernation:
    """A CocoonHibernation as a run sees it.

    The texts are as stored: ``pod_name`` is "" where an old object has no spec (S017), and ``desire`` may be a word
    that this version does not know; both end in phase Failed with a message, not in an error.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    creation_timestamp: str
    deletion_timestamp: str | None
    finalizers: tuple[str, ...]
    pod_name: str
    desire: str
    phase: str
    vm_name: str
    observed_generation: int
    conditions: tuple[Mapping[str, Any], ...]

    @property
    def adopted(self) -> bool:
        """Whether it carries the finalizer, which stands before every effect (contract 4.17)."""
        return keys.HIBERNATION_FINALIZER in self.finalizers

    @property
    def finalizers_adopted(self) -> tuple[str, ...]:
        """Its finalizers with ours, which comes first (S262)."""
        return (keys.HIBERNATION_FINALIZER, *self.finalizers)

    @property
    def finalizers_released(self) -> tuple[str, ...]:
        """Its finalizers without ours; those of others stay."""
        return tuple(name for name in self.finalizers if name != keys.HIBERNATION_FINALIZER)

    @property
    def deleting(self) -> bool:
        """Whether somebody deleted it; it asks for nothing any more (design 4.2)."""
        return self.deletion_timestamp is not None

    @property
    def ready(self) -> Mapping[str, Any]:
        """The stored condition ``Ready``, empty when there is none."""
        return conditions.find(self.conditions, "Ready") or {}

    @property
    def ready_since(self) -> datetime | None:
        """The transition time of ``Ready``, which is the clock of the deadlines (contract 1.7); None when it has none."""
        try:
            return conditions.moment(_text(self.ready.get("lastTransitionTime")))
        except ValueError:
            return None


def hibernation_from_object(obj: Mapping[str, Any]) -> Hibernation:
    """Read a CocoonHibernation from its decoded JSON. Never raises on its content."""
    metadata = _object(obj.get("metadata"))
    spec = _object(obj.get("spec"))
    status = _object(obj.get("status"))
    return Hibernation(
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        resource_version=_text(metadata.get("resourceVersion")),
        generation=_integer(metadata.get("generation")),
        creation_timestamp=_text(metadata.get("creationTimestamp")),
        deletion_timestamp=_text(metadata.get("deletionTimestamp")) or None,
        finalizers=tuple(item for item in _list(metadata.get("finalizers")) if isinstance(item, str)),
        pod_name=_text(_object(spec.get("podRef")).get("name")),
        desire=_text(spec.get("desire")),
        phase=_text(status.get("phase")),
        vm_name=_text(status.get("vmName")),
        observed_generation=_integer(status.get("observedGeneration")),
        conditions=tuple(item for item in _list(status.get("conditions")) if isinstance(item, Mapping)),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
