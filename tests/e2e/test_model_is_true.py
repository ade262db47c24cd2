"""The model API server of the unit tests against the real one: the same histories, the same answers.

What the machine proves on the model is worth as much as the model is true; so both are asked the same, and every answer is
compared: what was refused and why, generations, deletion, finalizers, annotations, and whether a write changed anything.
"""

from __future__ import annotations

import json
import random
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest

from cocoon_devkit.rawapi import Api
from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError
from tests.model.apiserver import ModelAPIServer, ModelClock, cocoonset

Obj = dict[str, Any]
FINALIZER = "example.com/held"
NODE = "still"
OPERATIONS = [
    "create",
    "annotate",
    "annotate",
    "unannotate",
    "annotate the same",
    "annotate another incarnation",
    "annotate a stale version",
    "edit the spec",
    "write the status",
    "hold",
    "let go",
    "bind",
    "fail",
    "delete",
    "delete",
    "delete another incarnation",
    "delete a stale version",
]


class RealServer:
    """The real API server behind the model's interface."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.roots = {
            "set": f"/apis/{keys.API_VERSION}/namespaces/{namespace}/cocoonsets",
            "pod": f"/api/v1/namespaces/{namespace}/pods",
        }

    def get(self, kind: str, name: str) -> Obj | None:
        return self.api.find(f"{self.roots[kind]}/{name}")

    def create(self, kind: str, body: Obj) -> None:
        self._call("POST", self.roots[kind], body)

    def patch(
        self, kind: str, name: str, body: Obj, *, uid: str = "", version: str = "", subresource: str = ""
    ) -> None:
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        path = f"{self.roots[kind]}/{name}" + (f"/{subresource}" if subresource else "")
        merged = {**body, "metadata": {**body.get("metadata", {}), **preconditions}}
        self._call("PATCH", path, merged, "application/merge-patch+json")

    def bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._call("POST", f"{self.roots['pod']}/{name}/binding", body)

    def delete(self, kind: str, name: str, uid: str = "", version: str = "") -> None:
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        self._call("DELETE", f"{self.roots[kind]}/{name}", {"preconditions": preconditions})

    def _call(self, method: str, path: str, body: Obj, content_type: str = "application/json") -> None:
        try:
            self.api.call(method, path, body, content_type)
        except urllib.error.HTTPError as error:
            told = json.load(error)
            # A patch that names another UID is called invalid; the operator's client reads it as a conflict.
            replaced = error.code == 422 and "metadata.uid" in told["message"]
            raise RefusedError(error.code, "Conflict" if replaced else told["reason"]) from error


class ModelServer:
    """The model behind the same interface."""

    def __init__(self, namespace: str) -> None:
        self.model = ModelAPIServer(ModelClock())
        self.namespace = namespace

    def get(self, kind: str, name: str) -> Obj | None:
        return self.model.get(kind, self.namespace, name)

    def create(self, kind: str, body: Obj) -> None:
        self._call(lambda: self.model.create(kind, body, by="test"))

    def patch(
        self, kind: str, name: str, body: Obj, *, uid: str = "", version: str = "", subresource: str = ""
    ) -> None:
        self._call(
            lambda: self.model.patch(
                kind, self.namespace, name, body, by="test", uid=uid, version=version, subresource=subresource
            )
        )

    def bind(self, name: str) -> None:
        self._call(lambda: self.model.patch("pod", self.namespace, name, {"spec": {"nodeName": NODE}}, by="test"))

    def delete(self, kind: str, name: str, uid: str = "", version: str = "") -> None:
        self._call(lambda: self.model.delete(kind, self.namespace, name, by="test", uid=uid, version=version))

    def _call(self, call: Callable[[], Any]) -> None:
        reasons = {"AlreadyExistsError": "AlreadyExists", "NotFoundError": "NotFound", "ConflictError": "Conflict"}
        try:
            call()
        except KubeError as error:
            raise RefusedError(error.status, reasons[type(error).__name__]) from error


class RefusedError(Exception):
    """A request that the API server refused."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.reason = reason


class History:
    """One history on one server; what it does depends on the random numbers and on the server's answers alone."""

    def __init__(self, server: RealServer | ModelServer, namespace: str, seed: int) -> None:
        self.server = server
        self.namespace = namespace
        self.random = random.Random(seed)
        self.name = f"h{seed}"
        self.stale = ""

    def step(self) -> tuple[str, ...]:
        kind = self.random.choice(["set", "pod"])
        operation = self.random.choice(OPERATIONS)
        value = str(self.random.randrange(4))
        before = self.server.get(kind, self.name)
        if not _makes_sense(kind, operation, before):
            return (kind, operation, "left out")
        try:
            self._do(kind, operation, value, before)
            outcome = "ok"
        except RefusedError as error:
            outcome = error.reason
        return kind, operation, outcome, *_said(before, self.server.get(kind, self.name))

    def _do(self, kind: str, operation: str, value: str, before: Obj | None) -> None:
        version = before["metadata"]["resourceVersion"] if before else ""
        annotate = {"metadata": {"annotations": {"a": value}}}
        match operation:
            case "create":
                self.server.create(kind, _body(kind, self.name, self.namespace))
            case "annotate":
                self.server.patch(kind, self.name, annotate, version=version)
            case "unannotate":
                self.server.patch(kind, self.name, {"metadata": {"annotations": {"a": None}}})
            case "annotate the same":
                had = (before or {}).get("metadata", {}).get("annotations", {}).get("a")
                self.server.patch(kind, self.name, {"metadata": {"annotations": {"a": had}}})
            case "annotate another incarnation":
                self.server.patch(kind, self.name, annotate, uid="00000000-0000-0000-0000-000000000000")
            case "annotate a stale version":
                self.server.patch(kind, self.name, annotate, version="1")
            case "edit the spec":
                self.server.patch(kind, self.name, {"spec": {"suspend": value > "1"}})
            case "write the status":
                self.server.patch(kind, self.name, {"status": {"phase": _phase(kind, value)}}, subresource="status")
            case "hold":
                self.server.patch(kind, self.name, {"metadata": {"finalizers": [FINALIZER]}})
            case "let go":
                self.server.patch(kind, self.name, {"metadata": {"finalizers": None}})
            case "bind":
                self.server.bind(self.name)
            case "fail":
                self.server.patch(kind, self.name, {"status": {"phase": "Failed"}}, subresource="status")
            case "delete":
                self.server.delete(kind, self.name)
            case "delete another incarnation":
                self.server.delete(kind, self.name, uid="00000000-0000-0000-0000-000000000000")
            case "delete a stale version":
                self.server.delete(kind, self.name, version="1")


def _makes_sense(kind: str, operation: str, before: Obj | None) -> bool:
    """What the operator's worlds never do is left out: finalizers on pods, a second binding, a new finalizer on the dying."""
    going = before is not None and before["metadata"].get("deletionTimestamp") is not None
    if operation in ("bind", "fail"):
        bound = before is not None and before["spec"].get("nodeName")
        return kind == "pod" and not going and not bound if operation == "bind" else kind == "pod"
    if operation in ("hold", "let go", "edit the spec"):
        return kind == "set" and not (operation == "hold" and going)
    return True


def _body(kind: str, name: str, namespace: str) -> Obj:
    if kind == "set":
        return cocoonset(name, namespace)
    container = {"name": "agent", "image": "example.com/none:1"}
    # No scheduler of this name: nobody but the test binds the pod.
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def _phase(kind: str, value: str) -> str:
    if kind == "pod":
        return "Running" if value > "1" else "Pending"
    return ["Pending", "Running", "Suspending", "Suspended"][int(value)]


def _said(before: Obj | None, after: Obj | None) -> tuple[str, ...]:
    """What a decision could read off the object."""
    if after is None:
        return ("gone",)
    metadata = after["metadata"]
    changed = before is None or before["metadata"]["resourceVersion"] != metadata["resourceVersion"]
    same = before is not None and before["metadata"]["uid"] == metadata["uid"]
    return (
        "changed" if changed else "unchanged",
        "the same object" if same else "a new object",
        f"generation {metadata['generation'] if after.get('kind') == keys.KIND_SET else '-'}",
        "terminating" if metadata.get("deletionTimestamp") else "live",
        f"finalizers {metadata.get('finalizers') or []}",
        f"a={(metadata.get('annotations') or {}).get('a')}",
        f"phase {after.get('status', {}).get('phase')}",
    )


@pytest.mark.parametrize("seeds", [range(12), range(12, 24)], ids=["first", "second"])
def test_the_model_answers_as_the_real_api_server(api: Api, namespace: str, seeds: range) -> None:
    if api.find(f"/api/v1/nodes/{NODE}") is None:
        api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    for seed in seeds:
        real = History(RealServer(api, namespace), namespace, seed)
        model = History(ModelServer(namespace), namespace, seed)
        told: list[tuple[str, ...]] = []
        for _ in range(25):
            told.append(model.step())
            assert real.step() == told[-1], f"history {seed}: {told}"
