"""Conditions of both kinds (contract 1.7, S043)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from cocoon_operator.api.wire import Int64, WireModel


class Condition(WireModel):
    """One aspect of an object's state, in the usual Kubernetes sense."""

    type: str = Field(
        max_length=316,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    )
    """Type of the condition, unique in the list."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: str = Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    """Why, in one word for programs."""
    message: str = Field(max_length=32768)
    """Why, in a sentence for people; may be empty."""
    last_transition_time: Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
    """When the status changed last."""
    observed_generation: Annotated[Int64, Field(ge=0)] = 0
    """Generation of the spec that the condition was computed for."""


def timestamp(moment: datetime) -> str:
    """Return the API's text for a moment: UTC, whole seconds. The moment must be aware."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: str) -> datetime:
    """Read what :func:`timestamp` writes. Raises :class:`ValueError` on any other text."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def fresh(kind: str, status: bool, reason: str, message: str, generation: int) -> dict[str, Any]:
    """Return a condition without a timestamp, so that merging keeps the old one while the status holds (S043)."""
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def fresh_ready(status: bool, reason: str, message: str, generation: int) -> dict[str, Any]:
    """Return a fresh condition of type Ready (S043)."""
    return fresh("Ready", status, reason, message, generation)


def find(conditions: Sequence[Any], kind: str) -> Mapping[str, Any] | None:
    """Return the condition of a type, or None."""
    return next((item for item in conditions if _is_of(item, kind)), None)


def set_condition(
    existing: Sequence[Any], new: Mapping[str, Any], now: datetime, *, restart: bool = False
) -> list[dict[str, Any]]:
    """Return the list with ``new`` merged in by its type; neither argument is changed (contract 1.7).

    The transition time moves to ``now`` only when the status differs or the condition is new; ``restart`` moves it in
    any case (a transition begins anew, contract 1.7 extra rule). Everything else is taken from ``new``. Conditions of
    other types keep their content and place.
    """
    kind = new["type"]
    old = find(existing, kind)
    merged = dict(new)
    kept = old.get("lastTransitionTime") if old is not None and old.get("status") == new["status"] else None
    merged["lastTransitionTime"] = timestamp(now) if restart or not kept else kept
    if old is None:
        return [*existing, merged]
    return [merged if item is old else item for item in existing]


def _is_of(item: Any, kind: str) -> bool:
    return isinstance(item, Mapping) and item.get("type") == kind
