"""The marks by which the operator steers the node agent: flags and the generation stamp (contract 2.4).

A mark is read, set and cleared on a map of annotations, or turned into the merge-patch map that makes it so. That map
is empty when the mark is right already: then no request is sent (S041, N096).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cocoon_operator.api import keys
from cocoon_operator.api.pod import parse_int


@dataclass(frozen=True, slots=True)
class Mark:
    """A flag: true only for the exact text ``true``; it is cleared by deleting the key, never by ``false`` (S022)."""

    key: str

    def read(self, annotations: Mapping[str, str] | None) -> bool:
        """Whether the mark is set; any text but ``true`` is not (S022, N094)."""
        return bool(annotations) and annotations is not None and annotations.get(self.key) == "true"

    def mark(self, annotations: Mapping[str, str] | None) -> dict[str, str]:
        """Return the annotations with the mark set; the given map stays as it is."""
        return {**(annotations or {}), self.key: "true"}

    def clear(self, annotations: Mapping[str, str] | None) -> dict[str, str]:
        """Return the annotations without the mark's key; missing annotations are tolerated (S022)."""
        return {key: value for key, value in (annotations or {}).items() if key != self.key}

    def patch(self, annotations: Mapping[str, str] | None, on: bool = True) -> dict[str, str | None]:
        """Return the merge-patch map that sets or clears the mark, empty when it reads so already (S041)."""
        if self.read(annotations) == on:
            return {}
        return {self.key: "true" if on else None}


HIBERNATE: Final = Mark(keys.HIBERNATE)
"""The VM shall sleep."""
RESTORE: Final = Mark(keys.RESTORE)
"""The VM is made from its ``:hibernate`` tag; set before a pod is created, never removed."""
KEEP_SNAPSHOT: Final = Mark(keys.KEEP_SNAPSHOT)
"""The node keeps its local snapshot as a cache; set right before a seat is released (I4)."""
DEAD_LETTER: Final = Mark(keys.DEAD_LETTER)
"""The rebuild budget of a sub-agent is used up."""


def read_generation(annotations: Mapping[str, str] | None) -> int:
    """Return the generation stamp; absent or malformed reads as 0 (S028)."""
    return parse_int((annotations or {}).get(keys.GENERATION))


def generation_patch(annotations: Mapping[str, str] | None, generation: int) -> dict[str, str | None]:
    """Return the merge-patch map that stamps a generation, empty when the stamp reads so already (S028, S041)."""
    return {} if read_generation(annotations) == generation else {keys.GENERATION: str(generation)}


def apply(annotations: Mapping[str, str] | None, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return what the annotations are after a merge-patch map was applied."""
    merged = {**(annotations or {}), **changes}
    return {key: value for key, value in merged.items() if value is not None}


def patch_body(changes: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the merge patch of an object for a map of annotations: None becomes null and deletes the key (S042)."""
    return {"metadata": {"annotations": dict(changes)}}
