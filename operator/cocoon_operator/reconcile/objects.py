"""A CocoonSet as a run sees it: metadata and status as they are stored, the spec typed where it can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cocoon_operator.api.cocoonset import CocoonSetSpec, SpecError, parse_spec


@dataclass(frozen=True, slots=True)
class SetObject:
    """A CocoonSet. ``spec`` is None when what is stored cannot be read; ``spec_error`` then names the field.

    Deletion needs metadata and status only, so a spec that a newer schema refuses does not block it (S260).
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    creation_timestamp: str
    deleting: bool
    deletion_timestamp: str | None
    finalizers: tuple[str, ...]
    annotations: Mapping[str, str]
    spec: CocoonSetSpec | None
    spec_error: str
    status: Mapping[str, Any] = field(default_factory=dict)


def set_from_object(obj: Mapping[str, Any]) -> SetObject:
    """Read a CocoonSet from its decoded JSON. Never raises on the content of ``spec`` or ``status``."""
    metadata = obj.get("metadata") or {}
    spec: CocoonSetSpec | None = None
    spec_error = ""
    try:
        spec = parse_spec(obj.get("spec"))
    except SpecError as error:
        spec_error = str(error)
    return SetObject(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        generation=int(metadata.get("generation") or 0),
        creation_timestamp=metadata.get("creationTimestamp") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        deletion_timestamp=metadata.get("deletionTimestamp"),
        finalizers=tuple(metadata.get("finalizers") or ()),
        annotations=metadata.get("annotations") or {},
        spec=spec,
        spec_error=spec_error,
        status=obj.get("status") or {},
    )
