"""The schema of the chart's values: what of it is Kubernetes' own comes from an API server.

Usage: ``python -m cocoon_devkit.chartschema``. It starts an API server, which takes some seconds.

Values such as ``tolerations`` go into the pod as they are. So that a misspelt key of theirs is refused too, with its
path, before anything is installed, ``values.schema.json`` refers to the types that the API server publishes. The rest of
that file is written by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cocoon_devkit.chart import CHART
from cocoon_devkit.controlplane import ControlPlane
from cocoon_devkit.kubectl import Kubectl
from cocoon_devkit.scratch import Scratch
from cocoon_devkit.tools import find_tools

SCHEMA: Final = CHART / "values.schema.json"
PREFIX: Final = "io.k8s."
"""What the names of Kubernetes' types begin with."""

_DOCUMENTS: Final = ("/openapi/v3/api/v1", "/openapi/v3/apis/networking.k8s.io/v1")
_HERE: Final = "#/definitions/"
_THERE: Final = "#/components/schemas/"
_WIDTH: Final = 120

Schema = dict[str, Any]


def published_types(kubectl: Kubectl) -> dict[str, Schema]:
    """Return the types that an API server publishes, by name, as it describes them."""
    documents = [json.loads(kubectl("get", "--raw", path).stdout) for path in _DOCUMENTS]
    return {name: schema for each in documents for name, schema in each["components"]["schemas"].items()}


def with_types(schema: Schema, types: Mapping[str, Schema]) -> Schema:
    """Return a schema of values with all of Kubernetes' types to which it refers, directly or through another."""
    own = {name: each for name, each in schema["definitions"].items() if not name.startswith(PREFIX)}
    definitions: dict[str, Schema] = {}
    wanted = set(_references({**schema, "definitions": own}))
    while missing := wanted - definitions.keys():
        for name in missing:
            definitions[name] = _strict(types[name])
            wanted.update(_references(definitions[name]))
    return {**schema, "definitions": {**own, **dict(sorted(definitions.items()))}}


def render(schema: Schema) -> str:
    """Return the text of a schema: what fits into a line is one."""
    return _text(schema, "") + "\n"


def main() -> int:
    """Write the chart's schema anew; returns the exit code."""
    with Scratch("schema") as scratch, ControlPlane(find_tools(), scratch.path) as cluster:
        types = published_types(cluster.kubectl)
    current = json.loads(SCHEMA.read_text("utf-8"))
    SCHEMA.write_text(render(with_types(current, types)), encoding="utf-8")
    return 0


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str) and value.startswith(_HERE + PREFIX):
                yield value.removeprefix(_HERE)
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _strict(node: Mapping[str, Any]) -> Schema:
    """Turn a type of OpenAPI into one of JSON Schema that refuses what it does not know."""
    if "$ref" in node:
        return {"$ref": _HERE + str(node["$ref"]).removeprefix(_THERE)}
    if "allOf" in node:
        # OpenAPI allows nothing beside a reference, so the only one is wrapped to give it a description.
        [only] = node["allOf"]
        return _strict(only)
    kept: Schema = {key: node[key] for key in ("type", "required", "enum", "oneOf") if key in node}
    if "items" in node:
        kept["items"] = _strict(node["items"])
    if "properties" in node:
        kept["properties"] = {name: _strict(each) for name, each in node["properties"].items()}
        kept["additionalProperties"] = False
    elif "additionalProperties" in node:
        kept["additionalProperties"] = _strict(node["additionalProperties"])
    return kept


def _text(node: Any, indent: str) -> str:
    line = json.dumps(node, ensure_ascii=False)
    if not isinstance(node, dict | list) or len(indent) + len(line) <= _WIDTH:
        return line
    inner = indent + "  "
    if isinstance(node, list):
        rows = [_text(value, inner) for value in node]
        return f"[\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}]"
    rows = [f"{json.dumps(key)}: {_text(value, inner)}" for key, value in node.items()]
    return f"{{\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}}}"


if __name__ == "__main__":
    sys.exit(main())
