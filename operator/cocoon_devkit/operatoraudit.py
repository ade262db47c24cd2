"""What the operator really asked of the API server, counted from the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cocoon_devkit.audit import AuditEvent
from cocoon_devkit.chart import OPERATOR_USER
from cocoon_devkit.cluster import Cluster


class OperatorAudit:
    """The requests of one user, the operator's ServiceAccount unless told otherwise."""

    def __init__(self, cluster: Cluster, user: str = OPERATOR_USER) -> None:
        self._cluster = cluster
        self._user = user

    def mark(self) -> int:
        """A place in the log after everything that was answered until now, for ``since``."""
        return self._cluster.audit_mark()

    def requests(self, since: int = 0, *, namespace: str = "", name: str = "") -> list[AuditEvent]:
        """Every answered request, refused ones too, in the order of the answers; of one namespace or object if named."""
        return [
            event
            for event in self._cluster.audit_events(since)
            if event.user.username == self._user
            and namespace in ("", event.object_ref.namespace)
            and name in ("", event.object_ref.name)
        ]

    def write_requests(self, since: int = 0, *, namespace: str, resources: Sequence[str] = ()) -> list[AuditEvent]:
        """Writes in a namespace, refused ones too: to sets and pods, or to the ``resources`` named."""
        wanted = tuple(resources) or ("cocoonsets", "pods")
        requests = self.requests(since, namespace=namespace)
        return [event for event in requests if event.is_write and event.object_ref.resource in wanted]

    def writes(self, since: int = 0, *, namespace: str, name: str = "", resources: Sequence[str] = ()) -> list[str]:
        """The same as text: ``["patch cocoonsets/status demo", "create pods demo-0"]``; a refused one ends with its code.

        ``name`` leaves out other objects: a set's pods are those named ``<name>-...``.
        """
        events = self.write_requests(since, namespace=namespace, resources=resources)
        belongs = _belongs_to(name)
        return [describe(event) for event in events if belongs(event.object_ref.name)]

    def moves(self, since: int, *, namespace: str) -> bool:
        """Whether anybody, not the operator alone, wrote anything in a namespace."""
        events = self._cluster.audit_events(since)
        return any(event.is_write and event.object_ref.namespace == namespace for event in events)


def describe(event: AuditEvent) -> str:
    """``patch cocoonsets/status demo``, and the status code where it is an error."""
    ref = event.object_ref
    resource = f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource
    words = [event.verb, resource, ref.name]
    if event.response_status.code >= 400:
        words.append(f"({event.response_status.code})")
    return " ".join(word for word in words if word)


def _belongs_to(name: str) -> Callable[[str], bool]:
    return lambda other: not name or other == name or other.startswith(f"{name}-")
