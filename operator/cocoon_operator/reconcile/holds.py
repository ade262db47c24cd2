"""Which pods a CocoonHibernation keeps asleep: read from the objects, no more (``docs/design/intent.md``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cocoon_operator.api.enums import Desire, HibernationPhase


def holders(hibernations: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Pod name to the name of the CocoonHibernation that holds its VM.

    Of several on one pod the oldest living one decides. It holds while it asks for ``Hibernate``, and while a hibernation it
    asked for is still under way (S190, S191). One that is being deleted asks for nothing.
    """
    decided: dict[str, str] = {}
    seen: set[str] = set()
    for item in sorted(hibernations, key=_age):
        pod = _text(item, "spec", "podRef", "name")
        if not pod or pod in seen or _text(item, "metadata", "deletionTimestamp"):
            continue
        seen.add(pod)
        asks = _text(item, "spec", "desire") == Desire.HIBERNATE
        under_way = _text(item, "status", "phase") == HibernationPhase.HIBERNATING
        if asks or under_way:
            decided[pod] = _text(item, "metadata", "name")
    return decided


def _age(item: Mapping[str, Any]) -> tuple[str, str]:
    return _text(item, "metadata", "creationTimestamp"), _text(item, "metadata", "uid")


def _text(item: Mapping[str, Any], *path: str) -> str:
    value: Any = item
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
