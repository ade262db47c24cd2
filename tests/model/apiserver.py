"""An in-memory API server as far as the operator can tell: resourceVersions, UIDs, preconditions, finalizers, deletion."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cocoon_operator.api import keys
from cocoon_operator.api.errors import AlreadyExistsError, ConflictError, NotFoundError

Object = dict[str, Any]


@dataclass
class Write:
    """One accepted write, as the audit log would tell it."""

    by: str
    verb: str
    kind: str
    name: str
    body: Any = None

    def __str__(self) -> str:
        return f"{self.verb} {self.kind}/{self.name}"


@dataclass
class ModelClock:
    """Time that moves when it is told to."""

    moment: datetime = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)

    def text(self) -> str:
        return self.moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ModelAPIServer:
    """Objects by kind, namespace and name; every change raises the one resourceVersion."""

    clock: ModelClock
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    changes: list[tuple[str, Object]] = field(default_factory=list)
    """The watch: ``(MODIFIED|DELETED, object)`` in order."""
    version: int = 100

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        found = self.objects.get((kind, namespace, name))
        return copy.deepcopy(found) if found is not None else None

    def list(self, kind: str, namespace: str | None = None) -> list[Object]:
        return [
            copy.deepcopy(obj)
            for (a_kind, a_namespace, _), obj in sorted(self.objects.items())
            if a_kind == kind and namespace in (None, a_namespace)
        ]

    def create(self, kind: str, body: Mapping[str, Any], *, by: str) -> Object:
        obj = copy.deepcopy(dict(body))
        metadata = obj["metadata"]
        key = (kind, metadata["namespace"], metadata["name"])
        if key in self.objects:
            raise AlreadyExistsError(f"{kind} {metadata['name']} already exists", status=409)
        self.version += 1
        metadata.update(
            uid=f"uid-{self.version}",
            generation=1,
            creationTimestamp=self.clock.text(),
            resourceVersion=str(self.version),
        )
        obj.setdefault("status", {"phase": "Pending"} if kind == "pod" else {})
        self.objects[key] = obj
        self._log(by, "create", kind, metadata["name"], body)
        self.changes.append(("MODIFIED", copy.deepcopy(obj)))
        return copy.deepcopy(obj)

    def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        by: str,
        uid: str = "",
        version: str = "",
        subresource: str = "",
    ) -> Object:
        """Apply a JSON merge patch, with UID and resourceVersion as preconditions where given."""
        obj = self._existing(kind, namespace, name, uid, version)
        changed = copy.deepcopy(obj)
        allowed = {"status": body.get("status", {})} if subresource == "status" else dict(body)
        if subresource != "status":
            allowed.pop("status", None)
        _merge(changed, allowed)
        for empty in [key for key in ("annotations", "finalizers") if changed["metadata"].get(key) in ({}, [])]:
            # As in Go's JSON: what is empty is not there.
            del changed["metadata"][empty]
        self._log(by, f"patch{'/' + subresource if subresource else ''}", kind, name, body)
        if changed == obj:
            return copy.deepcopy(obj)
        if changed.get("spec") != obj.get("spec") and kind != "pod":
            changed["metadata"]["generation"] += 1
        return self._store(kind, changed)

    def delete(self, kind: str, namespace: str, name: str, *, by: str, uid: str = "", version: str = "") -> Object:
        """Delete: at once without finalizers (pods: while no node has them), else by a deletionTimestamp."""
        obj = self._existing(kind, namespace, name, uid, version)
        self._log(by, "delete", kind, name)
        waits = bool(obj["metadata"].get("finalizers")) or (kind == "pod" and _on_node(obj))
        if not waits:
            return self.remove(kind, namespace, name, by="system")
        if obj["metadata"].get("deletionTimestamp"):
            return copy.deepcopy(obj)
        changed = copy.deepcopy(obj)
        changed["metadata"]["deletionTimestamp"] = self.clock.text()
        if kind != "pod":
            changed["metadata"]["generation"] += 1
        return self._store(kind, changed)

    def remove(self, kind: str, namespace: str, name: str, *, by: str = "agent") -> Object:
        self._log(by, "remove", kind, name)
        obj = self.objects.pop((kind, namespace, name))
        self.version += 1
        gone = copy.deepcopy(obj)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(("DELETED", gone))
        return gone

    def writes_by(self, by: str, since: int = 0) -> list[str]:
        return [str(write) for write in self.writes[since:] if write.by == by]

    def _existing(self, kind: str, namespace: str, name: str, uid: str, version: str) -> Object:
        obj = self.objects.get((kind, namespace, name))
        if obj is None:
            raise NotFoundError(f"{kind} {name} not found", status=404)
        if uid and obj["metadata"]["uid"] != uid:
            raise ConflictError(f"{kind} {name}: UID precondition failed", status=409)
        if version and obj["metadata"]["resourceVersion"] != version:
            raise ConflictError(f"{kind} {name}: resourceVersion precondition failed", status=409)
        return obj

    def _store(self, kind: str, obj: Object) -> Object:
        metadata = obj["metadata"]
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.objects[(kind, metadata["namespace"], metadata["name"])] = obj
        if (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not (kind == "pod" and _on_node(obj))
        ):
            return self.remove(kind, metadata["namespace"], metadata["name"], by="system")
        self.changes.append(("MODIFIED", copy.deepcopy(obj)))
        return copy.deepcopy(obj)

    def _log(self, by: str, verb: str, kind: str, name: str, body: Any = None) -> None:
        self.writes.append(Write(by, verb, kind, name, copy.deepcopy(body)))


def _on_node(pod: Object) -> bool:
    return bool(pod.get("spec", {}).get("nodeName")) and pod["status"].get("phase") not in ("Failed", "Succeeded")


def _merge(target: Object, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            inner = target.get(key)
            if not isinstance(inner, dict):
                inner = target[key] = {}
            _merge(inner, value)
        else:
            target[key] = copy.deepcopy(value)


def cocoonset(name: str = "demo", namespace: str = "ns", **spec: Any) -> Object:
    """A CocoonSet as a user would apply it, with the CRD's defaults filled in."""
    agent = {"image": "base", "mode": "clone", "os": "linux", "backend": "cloud-hypervisor", "replicas": 0}
    agent.update(spec.pop("agent", {}))
    filled = {"snapshotPolicy": "always", "hibernatePolicy": "retain", "nodePool": "default", "agent": agent, **spec}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": keys.KIND_SET,
        "metadata": {"name": name, "namespace": namespace},
        "spec": filled,
    }
