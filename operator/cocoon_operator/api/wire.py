"""What the typed kinds share: how a model reads JSON, and the number types and schema notes of the CRDs.

Reading is lenient where the API server is: unknown fields are ignored, null and an empty text mean the default (S009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

CRD_DEFAULT: Final[Mapping[str, Any]] = {"x-cocoon-crd-default": True}
"""Marks a field whose default is stored by the API server; every other default is the reader's alone."""

Int32: TypeAlias = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1, json_schema_extra={"format": "int32"})]
Int64: TypeAlias = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1, json_schema_extra={"format": "int64"})]
Bool: TypeAlias = Annotated[bool, Field(strict=True)]


def list_map(key: str) -> dict[str, Any]:
    """Return the schema note of a list that is merged by one key of its items."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule of a CRD.

    ``field`` is the field that the refusal names, below the one that the rule hangs on; ``reason`` is one of the API
    server's words for a refusal. ``ratchets``: the expression looks at ``oldSelf``, which is an optional then.
    """

    rule: str
    message: str
    field: str = ""
    reason: str = ""
    ratchets: bool = False

    def note(self) -> dict[str, Any]:
        """Return the rule as the schema has it."""
        optional = {"fieldPath": self.field, "reason": self.reason, "optionalOldSelf": self.ratchets}
        return {"rule": self.rule, "message": self.message, **{key: value for key, value in optional.items() if value}}


def rules(*given: Rule) -> dict[str, Any]:
    """Return the schema note of CEL rules."""
    return {"x-kubernetes-validations": [rule.note() for rule in given]}


class WireModel(BaseModel):
    """A part of an object as the API server stores it: camelCase keys, frozen once read."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
    )

    def to_object(self) -> dict[str, Any]:
        """Return the JSON object with the API's names; what is default is left out (S010)."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, raw: Any) -> Any:
        """Drop nulls and empty texts, so that the default takes their place; a required field keeps its empty text."""
        if not isinstance(raw, dict):
            return raw
        required = _required_keys(cls)
        return {key: value for key, value in raw.items() if value is not None and (value != "" or key in required)}


@cache
def _required_keys(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items() if field.is_required())
