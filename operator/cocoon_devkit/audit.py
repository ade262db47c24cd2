"""The API server's audit log: what was really asked of it, by whom, with which answer.

Tests count API writes here, so that a budget is an exact number instead of an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})

# Health checks tell nothing. Writes to the objects of the contract are kept with their bodies, everything else without.
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*"]
- level: Request
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: cocoonset.cocoonstack.io
  - group: ""
    resources: [pods, "pods/*", events]
  - group: events.k8s.io
    resources: [events]
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
"""


class AuditUser(msgspec.Struct, frozen=True):
    username: str = ""


class AuditObject(msgspec.Struct, frozen=True, rename="camel"):
    """Which object a request was about; ``name`` is empty for lists, watches and ``generateName``."""

    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = msgspec.field(default="", name="apiGroup")


class AuditStatus(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One request at one stage; ``request_object`` is the body of a write where the policy keeps it."""

    audit_id: str = msgspec.field(name="auditID")
    stage: str
    verb: str
    request_uri: str = msgspec.field(default="", name="requestURI")
    user: AuditUser = AuditUser()
    user_agent: str = ""
    object_ref: AuditObject = AuditObject()
    response_status: AuditStatus = AuditStatus()
    request_object: Any = None
    request_received_timestamp: str = ""
    stage_timestamp: str = ""

    @property
    def is_write(self) -> bool:
        return self.verb in WRITE_VERBS


class AuditLog:
    """Reads events from a log; ``read`` gives its bytes from an offset to the end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    @classmethod
    def of_file(cls, file: Path) -> AuditLog:
        def read(offset: int) -> bytes:
            if not file.exists():
                return b""
            with file.open("rb") as log:
                log.seek(offset)
                return log.read()

        return cls(read)

    def mark(self) -> int:
        """A place in the log, for ``events(since=...)``."""
        return len(self._complete(0))

    def events(self, since: int = 0) -> list[AuditEvent]:
        """Every request that was answered after the mark, in the order of the answers.

        The start of a watch (stage ``ResponseStarted``) is left out; its end counts like any answer.
        """
        events = [_DECODER.decode(line) for line in self._complete(since).splitlines()]
        return [event for event in events if event.stage != "ResponseStarted"]

    def _complete(self, offset: int) -> bytes:
        content = self._read(offset)
        return content[: content.rfind(b"\n") + 1]


_DECODER = msgspec.json.Decoder(AuditEvent)
