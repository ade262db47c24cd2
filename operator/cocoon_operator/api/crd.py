"""Writes the two CustomResourceDefinitions from the models.

Usage: ``python -m cocoon_operator.api.crd --output crds [--check]``.

The models describe fields; this file knows what a structural schema is: no references, no alternatives but the one of
int-or-string, and only those defaults that the API server shall store.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel

from cocoon_operator.api import keys
from cocoon_operator.api.cocoonset import CocoonSetSpec, CocoonSetStatus
from cocoon_operator.api.hibernation import CocoonHibernationSpec, CocoonHibernationStatus
from cocoon_operator.api.wire import CRD_DEFAULT, Rule, rules

_HEADER: Final = "# Generated from cocoon_operator.api by `make generate`; edit the models, not this file.\n---\n"
_CATEGORY: Final = "cocoon"
_FULL_RANGE: Final = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
# Not "required": that would refuse every write to an object which an older CRD let in without a spec, the removal of its
# finalizer included, and so keep its namespace from going (W-61).
_SPEC_REQUIRED: Final = rules(
    Rule(
        "has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",
        "must be given",
        field=".spec",
        reason="FieldValueRequired",
        ratchets=True,
    )
)
_NOT_STRUCTURAL: Final = frozenset({"$defs", "$ref", "title", "default", *CRD_DEFAULT})


@dataclass(frozen=True, slots=True)
class Column:
    """What ``kubectl get`` prints."""

    name: str
    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: its names, its printed columns and the models behind it."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    description: str
    columns: tuple[Column, ...]
    spec: type[BaseModel]
    status: type[BaseModel]

    @property
    def file_name(self) -> str:
        return f"{keys.GROUP}_{self.plural}.yaml"


_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")

COCOON_SET: Final = Kind(
    kind=keys.KIND_SET,
    plural=keys.PLURAL_SETS,
    # core's ComponentStatus owns "cs" and wins; it stays declared for compatibility (S016).
    short_names=("cs", "cocoonsets", "cset"),
    description="A CocoonSet is a main agent, its forked sub-agents and their toolboxes: the VMs of one workspace.",
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Ready", "integer", ".status.readyAgents"),
        Column("Desired", "integer", ".status.desiredAgents"),
        _AGE,
    ),
    spec=CocoonSetSpec,
    status=CocoonSetStatus,
)
COCOON_HIBERNATION: Final = Kind(
    kind=keys.KIND_HIBERNATION,
    plural=keys.PLURAL_HIBERNATIONS,
    short_names=("ch", "cocoonhibernations"),
    description="A CocoonHibernation asks for one pod's VM to be put to sleep or woken.",
    columns=(
        Column("Pod", "string", ".spec.podRef.name"),
        Column("Desire", "string", ".spec.desire"),
        Column("Phase", "string", ".status.phase"),
        _AGE,
    ),
    spec=CocoonHibernationSpec,
    status=CocoonHibernationStatus,
)
KINDS: Final = (COCOON_SET, COCOON_HIBERNATION)


def definition(kind: Kind) -> dict[str, Any]:
    """Return a kind's CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{keys.GROUP}"},
        "spec": {
            "group": keys.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": list(kind.short_names),
                "categories": [_CATEGORY],
            },
            "versions": [
                {
                    "name": keys.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": column.name, "type": column.kind, "jsonPath": column.path} for column in kind.columns
                    ],
                    "schema": {"openAPIV3Schema": _object_schema(kind)},
                }
            ],
        },
    }


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema as the API server takes it."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _structural(schema, schema.get("$defs", {}))


def render(kind: Kind) -> str:
    """Return the text of a kind's file."""
    return _HEADER + yaml.safe_dump(definition(kind), sort_keys=True, width=110, allow_unicode=True)


def write(output: Path) -> None:
    """Write both files into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (output / kind.file_name).write_text(render(kind), encoding="utf-8")


def stale(output: Path) -> list[Path]:
    """Return the files that are missing or differ from the models."""
    return [path for kind in KINDS if _read(path := output / kind.file_name) != render(kind)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cocoon_operator.api.crd", description="Write the CRDs.")
    parser.add_argument("--output", type=Path, default=Path("crds"), help="folder of the files (default: crds)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.output)
        return 0
    outdated = stale(options.output)
    for path in outdated:
        sys.stderr.write(f"{path} does not match the models: run `make generate` and commit the result\n")
    return 1 if outdated else 0


def _object_schema(kind: Kind) -> dict[str, Any]:
    return {
        "type": "object",
        "description": kind.description,
        **_SPEC_REQUIRED,
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this object's schema."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": structural_schema(kind.spec),
            "status": structural_schema(kind.status),
        },
    }


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    node = _inlined(node, definitions)
    result: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword == "properties":
            result[keyword] = {name: _structural(child, definitions) for name, child in value.items()}
        elif keyword in {"items", "additionalProperties"}:
            result[keyword] = _structural(value, definitions)
        elif keyword == "description":
            result[keyword] = " ".join(value.split())
        elif keyword not in _NOT_STRUCTURAL and not _is_full_range(node, keyword):
            # A copy: the writer of YAML turns what is shared into anchors.
            result[keyword] = deepcopy(value)
    if CRD_DEFAULT.keys() <= node.keys():
        result["default"] = node["default"]
    return result


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put the definition in the place of a reference, and the one real alternative in the place of ``X or null``."""
    alternatives = [choice for choice in node.get("anyOf", ()) if choice != {"type": "null"}]
    if len(alternatives) == 1:
        rest = {keyword: value for keyword, value in node.items() if keyword != "anyOf"}
        return _inlined({**alternatives[0], **rest}, definitions)
    if "$ref" not in node:
        return node
    rest = {keyword: value for keyword, value in node.items() if keyword != "$ref"}
    return _inlined({**definitions[node["$ref"].rpartition("/")[2]], **rest}, definitions)


def _is_full_range(node: Mapping[str, Any], keyword: str) -> bool:
    """Whether a bound is only that of the number type, which the schema says by ``format``."""
    low, high = _FULL_RANGE.get(node.get("format", ""), (None, None))
    return (keyword == "minimum" and node[keyword] == low) or (keyword == "maximum" and node[keyword] == high)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main())
