"""Requests to the API server that need not store anything, and what it says when it refuses one."""

from __future__ import annotations

import json
import urllib.error
from dataclasses import dataclass, replace
from typing import Any, Final

from cocoon_devkit.rawapi import Api
from cocoon_operator.api import keys

Obj = dict[str, Any]

TESTERS: Final = "admission-testers"
"""The group of users who may do everything that admission lets them."""

_PLURALS: Final = {
    "Pod": "pods",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    keys.KIND_SET: keys.PLURAL_SETS,
    keys.KIND_HIBERNATION: keys.PLURAL_HIBERNATIONS,
}


@dataclass(frozen=True)
class Request:
    """One request. With ``dry`` everything is done but the storing."""

    method: str
    path: str
    body: Obj
    content_type: str = "application/json"
    dry: bool = True

    def stored(self) -> Request:
        """The same request, but for good."""
        return replace(self, dry=False)


@dataclass(frozen=True)
class Refusal:
    """What the API server says; ``fields`` are those that a schema or its rules found wrong."""

    code: int
    reason: str
    message: str
    fields: tuple[str, ...]


class Asking:
    """The API server, as the administrator or as a user of a name and a group."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def as_user(self, name: str, group: str = TESTERS) -> Asking:
        return Asking(self._api.as_user(name, group))

    def allows(self, request: Request) -> Obj:
        """Send it; returns the object as it is, or would be, stored."""
        answer = self._refusal_or_object(request)
        assert not isinstance(answer, Refusal), f"refused: {answer}"
        return answer

    def refuses(self, request: Request) -> Refusal:
        """Send it and return why it was refused, which it has to be."""
        answer = self._refusal_or_object(request)
        assert isinstance(answer, Refusal), f"allowed: {json.dumps(answer)}"
        return answer

    def says(self, request: Request) -> str:
        """Send it; returns why it was refused, or nothing."""
        answer = self._refusal_or_object(request)
        return answer.message if isinstance(answer, Refusal) else ""

    def _refusal_or_object(self, request: Request) -> Refusal | Obj:
        try:
            return self._send(request)
        except urllib.error.HTTPError as error:
            status = json.loads(error.read())
            fields = tuple(cause.get("field", "") for cause in status.get("details", {}).get("causes", ()))
            return Refusal(error.code, status["reason"], status["message"], fields)

    def _send(self, request: Request) -> Obj:
        path, body = request.path, request.body
        if request.dry and request.method == "DELETE":
            # With a body the API server does not look at the query.
            body = {**body, "dryRun": ["All"]}
        elif request.dry:
            path += "?dryRun=All"
        return self._api.call(request.method, path, body, request.content_type)


def path_of(obj: Obj, *rest: str) -> str:
    """Where an object is, or a part of it such as ``scale``."""
    root = "/api" if obj["apiVersion"] == "v1" else "/apis"
    metadata = obj["metadata"]
    parts = (obj["apiVersion"], "namespaces", metadata["namespace"], _PLURALS[obj["kind"]], metadata["name"], *rest)
    return "/".join((root, *parts))


def create(obj: Obj) -> Request:
    """Create an object."""
    named = {**obj, "metadata": {"name": "", **obj["metadata"]}}
    return Request("POST", path_of(named).rpartition("/")[0], obj)


def patch(obj: Obj, change: Obj, *part: str) -> Request:
    """Merge a change into an object, or into a part of it."""
    return Request("PATCH", path_of(obj, *part), change, "application/merge-patch+json")


def delete(obj: Obj, propagation: str = "Background") -> Request:
    """Delete an object."""
    return Request("DELETE", path_of(obj), {"propagationPolicy": propagation})
