"""A small API server in this process: enough of the real rules to test clients, and faults that a real one will not do.

Objects live by path. Versions rise with every write; UID and resourceVersion are preconditions; merge patches, dry
deletes and watches behave as documented by Kubernetes. ``faults`` are consumed one per request, in order.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Object = dict[str, Any]


@dataclass
class Fault:
    """What to do instead of, or after, the real thing to the next request that ``matches``.

    ``kind``: ``status`` answers with ``code``; ``drop`` cuts the connection before anything happens; ``lose`` does the work and
    cuts the connection; ``hang`` does the work and never answers.
    """

    kind: str
    code: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    method: str = ""
    status: Object = field(default_factory=dict)

    def matches(self, request: web.Request) -> bool:
        return not self.method or request.method == self.method


def status_of(code: int, reason: str, message: str) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response(body, status=code)


def merge(target: Any, patch: Any) -> Any:
    """Apply RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


class KubeApiServer:
    """Objects by path, a log of requests, a queue of faults, and watches."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.version = 100
        self.requests: list[tuple[str, str]] = []
        self.queries: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Fault] = []
        self.history: list[tuple[int, str, Object]] = []
        self.compacted_before = 0
        self.watches: list[web.StreamResponse] = []
        self.silent = False
        self.on_request: Callable[[web.Request], None] | None = None
        self.on_change: Callable[[], None] | None = None
        self._changed = asyncio.Event()
        self._stopping = False
        self.url = ""

    # -- what a test does ----------------------------------------------------------------------------------------

    def put(self, path: str, obj: Object) -> Object:
        """Store an object as some other client of the API would."""
        previous = self.objects.get(path)
        self.version += 1
        stored = copy.deepcopy(obj)
        metadata = stored.setdefault("metadata", {})
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", f"uid-{self.version}")
        self.objects[path] = stored
        self._record("MODIFIED" if previous else "ADDED", path, stored)
        return stored

    def patch(self, path: str, patch: Object) -> Object:
        """Merge-patch as some other client would."""
        return self.put(path, merge(self.objects[path], patch))

    def remove(self, path: str) -> None:
        """Delete as some other client would."""
        obj = self.objects.pop(path)
        self.version += 1
        gone = copy.deepcopy(obj)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._record("DELETED", path, gone)

    def forget_history(self) -> None:
        """Compact: a watch from before now is answered with 410."""
        self.compacted_before = self.version
        self.history.clear()

    async def cut_watches(self) -> None:
        """Close every open watch connection."""
        for response in self.watches:
            if response._req is not None and response._req.transport is not None:
                response._req.transport.abort()
        self.watches.clear()
        await asyncio.sleep(0)

    def count(self, method: str, part: str = "") -> int:
        """Count requests by method and part of their path."""
        return sum(1 for verb, path in self.requests if verb == method and part in path)

    def _record(self, kind: str, path: str, obj: Object) -> None:
        self.history.append((self.version, kind, {**obj, "_path": path}))
        self._changed.set()
        self._changed = asyncio.Event()
        if self.on_change is not None:
            self.on_change()

    # -- the server ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[KubeApiServer]:
        """Listen on a free port of the loopback."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            self._stopping = True
            self._changed.set()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        self.queries.append(dict(request.query))
        self.headers.append(dict(request.headers))
        if self.on_request is not None:
            self.on_request(request)
        fault = next((item for item in self.faults if item.matches(request)), None)
        if fault is None:
            return await self._answer(request)
        self.faults.remove(fault)
        if fault.kind == "status":
            return web.json_response(fault.status, status=fault.code, headers=fault.headers)
        if fault.kind in {"lose", "hang"}:
            await self._answer(request)
        if fault.kind == "hang":
            await asyncio.sleep(30)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and request.query.get("watch"):
            return await self._watch(request)
        body = json.loads(await request.read() or b"null")
        handler = getattr(self, f"_{request.method.lower()}")
        answer = handler(request.path, body, request)
        assert isinstance(answer, web.StreamResponse)
        return answer

    def _members(self, path: str, selector: str) -> list[tuple[str, Object]]:
        key, _, value = selector.partition("=")
        found = []
        parts = path.strip("/").split("/")
        for name, obj in sorted(self.objects.items()):
            if not _within(name, parts):
                continue
            labels = obj["metadata"].get("labels", {})
            if selector and (key not in labels or (value and labels[key] != value)):
                continue
            found.append((name, obj))
        return found

    def _get(self, path: str, _: Object, request: web.Request) -> web.Response:
        if path in self.objects:
            return web.json_response(self.objects[path])
        if not _is_collection(path):
            return status_of(404, "NotFound", f"{path} not found")
        members = [obj for _, obj in self._members(path, request.query.get("labelSelector", ""))]
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(members) or 1
        metadata: Object = {"resourceVersion": str(self.version)}
        if start + limit < len(members):
            metadata["continue"] = str(start + limit)
        return web.json_response({"metadata": metadata, "items": members[start : start + limit]})

    def _post(self, path: str, body: Object, _: web.Request) -> web.Response:
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            return status_of(409, "AlreadyExists", f"{name} already exists")
        body["metadata"]["namespace"] = path.split("/")[-2]
        return web.json_response(self.put(name, body), status=201)

    def _put(self, path: str, body: Object, _: web.Request) -> web.Response:
        refusal = self._refusal(path, body.get("metadata", {}))
        return refusal or web.json_response(self.put(path, body))

    def _patch(self, path: str, body: Object, request: web.Request) -> web.Response:
        if request.content_type != "application/merge-patch+json":
            return status_of(415, "UnsupportedMediaType", request.content_type)
        subresource = path.endswith("/status")
        path = path.removesuffix("/status")
        refusal = self._refusal(path, body.get("metadata", {}))
        if refusal is not None:
            if refusal.status == 409 and body["metadata"].get("uid", "") not in (
                "",
                self.objects[path]["metadata"]["uid"],
            ):
                # For a patch the UID is an immutable field, not a precondition (seen on the real one).
                return status_of(422, "Invalid", "metadata.uid: Invalid value: field is immutable")
            return refusal
        metadata = {key: value for key, value in body.get("metadata", {}).items() if key != "resourceVersion"}
        change = {"status": body.get("status")} if subresource else {**body, "metadata": metadata}
        before = self.objects[path]
        after = merge(before, change)
        if after == before:
            return web.json_response(before)
        stored = self.put(path, after)
        if stored["metadata"].get("deletionTimestamp") and not stored["metadata"].get("finalizers"):
            self.remove(path)
        return web.json_response(stored)

    def _delete(self, path: str, body: Object, _: web.Request) -> web.Response:
        refusal = self._refusal(path, (body or {}).get("preconditions") or {})
        if refusal is not None:
            return refusal
        obj = self.objects[path]
        if obj.get("spec", {}).get("nodeName"):
            obj = self.put(path, merge(obj, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        else:
            self.remove(path)
        return web.json_response(obj)

    def _refusal(self, path: str, preconditions: Object) -> web.Response | None:
        obj = self.objects.get(path)
        if obj is None:
            return status_of(404, "NotFound", f"{path} not found")
        for key in ("uid", "resourceVersion"):
            wanted = preconditions.get(key)
            if wanted and wanted != obj["metadata"][key]:
                return status_of(409, "Conflict", f"precondition {key} failed")
        return None

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"] or self.version)
        if since < self.compacted_before:
            return status_of(410, "Expired", "too old resource version")
        response = web.StreamResponse()
        await response.prepare(request)
        self.watches.append(response)
        selector = request.query.get("labelSelector", "")
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        parts = request.path.strip("/").split("/")
        if not request.query["resourceVersion"]:
            # Without a version what is there comes first, as events.
            for path, obj in self._members("/" + "/".join(parts), selector):
                if name in ("", path.rsplit("/", 1)[-1]):
                    await response.write(json.dumps({"type": "ADDED", "object": obj}).encode() + b"\n")
        while not self._stopping:
            changed = self._changed
            for version, kind, obj in list(self.history):
                path = obj["_path"]
                if version <= since or not _within(path, parts) or self.silent:
                    continue
                since = version
                event = _selected(kind, obj, selector)
                if event is not None and name in ("", obj["metadata"]["name"]):
                    await response.write(json.dumps(event).encode() + b"\n")
            await changed.wait()
        return response

    async def say(self, event: Object) -> None:
        """Write a line into every open watch."""
        for response in self.watches:
            await response.write(json.dumps(event).encode() + b"\n")


def _selected(kind: str, obj: Object, selector: str) -> Object | None:
    labels = obj["metadata"].get("labels", {})
    shown = {key: value for key, value in obj.items() if key != "_path"}
    key, _, value = selector.partition("=")
    if selector and (key not in labels or (value and labels[key] != value)):
        return {"type": "DELETED", "object": shown} if kind == "MODIFIED" else None
    return {"type": kind, "object": shown}


def _is_collection(path: str) -> bool:
    return path.rsplit("/", 1)[-1] in {"pods", "cocoonsets", "cocoonhibernations", "events", "leases"}


def _within(path: str, collection: list[str]) -> bool:
    """Whether an object's path lies in a collection, of one namespace or of all."""
    parts = path.strip("/").split("/")
    return parts[:-1] == collection or (
        parts[-2] == collection[-1] and parts[-4] == "namespaces" and parts[:-4] == collection[:-1]
    )
