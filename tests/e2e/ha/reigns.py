"""Who held the Lease when, and who wrote when, from the audit log: the proof that two never acted at once (I9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cocoon_devkit.audit import AuditEvent
from cocoon_operator.api import keys
from tests.e2e.ha.replicas import Home


@dataclass(frozen=True, slots=True)
class Term:
    """One write of the Lease: by whom, for whom, and from when to when it was on its way."""

    user: str
    holder: str
    received: datetime
    answered: datetime
    duration: timedelta


class Reigns:
    """What the replicas of one Lease did since a mark of the audit log."""

    def __init__(self, home: Home, since: int) -> None:
        self._events = home.cluster.audit_events(since)
        # Whoever writes right after the mark holds the Lease since before it.
        ever = [event for event in home.cluster.audit_events(home.since) if event.is_write]
        users = {home.user(name) for name in ("first", "second")}
        self.terms = [
            term(event)
            for event in sorted(ever, key=answered)
            if _is_lease(event)
            and (event.object_ref.namespace, event.object_ref.name or keys.LEASE_NAME)
            == (home.namespace, keys.LEASE_NAME)
            and event.verb in {"create", "update"}
            and event.response_status.code < 300
        ]
        self.writes = [
            event for event in self._events if event.is_write and event.user.username in users and not _is_lease(event)
        ]

    def by(self, user: str) -> list[AuditEvent]:
        """One replica's writes to anything but the Lease, refused ones too."""
        return [event for event in self.writes if event.user.username == user]

    def prove(self) -> None:
        """Every write happened while its writer held the Lease, and ended before that could have run out or changed hands."""
        for write in self.writes:
            held = self._held_at(received(write))
            assert held is not None, f"written without a Lease: {_tell(write)}"
            assert held.user == write.user.username, f"written under the Lease of {held.user}: {_tell(write)}"
            assert held.holder, f"written after the Lease was given back: {_tell(write)}"
            assert answered(write) < held.received + held.duration, f"outlived its Lease: {_tell(write)}"
            taken = self._next_taking(held)
            assert taken is None or answered(write) < taken, f"on its way when another one led: {_tell(write)}"

    def taking(self, user: str) -> Term:
        """The last time that a replica took the Lease from somebody else, or from nobody."""
        takings = [
            term
            for before, term in zip([None, *self.terms], self.terms, strict=False)
            if term.user == user and term.holder and (before is None or before.holder != term.holder)
        ]
        assert takings, f"{user} never took the Lease"
        return takings[-1]

    def first_write_after(self, user: str, moment: datetime) -> datetime:
        """When the API server got a replica's first write to a set or a pod after a moment."""
        times = [
            received(event)
            for event in self.by(user)
            if event.object_ref.resource in {"cocoonsets", "pods"} and received(event) > moment
        ]
        assert times, f"{user} wrote nothing"
        return min(times)

    def lists(self, user: str, start: datetime, end: datetime) -> list[str]:
        """Which kinds a replica listed in all namespaces, in a time."""
        return [
            event.object_ref.resource
            for event in self._events
            if event.verb == "list"
            and event.user.username == user
            and not event.object_ref.namespace
            and start <= received(event) <= end
        ]

    def _held_at(self, moment: datetime) -> Term | None:
        """The youngest write of the Lease that was on its way, or done, at a moment."""
        before = [term for term in self.terms if term.received <= moment]
        return before[-1] if before else None

    def _next_taking(self, held: Term) -> datetime | None:
        after = [term.received for term in self.terms if term.received > held.received and term.user != held.user]
        return min(after) if after else None


def term(event: AuditEvent) -> Term:
    spec = event.request_object["spec"]
    duration = timedelta(seconds=spec["leaseDurationSeconds"])
    return Term(event.user.username, spec.get("holderIdentity") or "", received(event), answered(event), duration)


def received(event: AuditEvent) -> datetime:
    return datetime.fromisoformat(event.request_received_timestamp)


def answered(event: AuditEvent) -> datetime:
    return datetime.fromisoformat(event.stage_timestamp)


def creates(events: Sequence[AuditEvent], namespace: str) -> list[str]:
    """The names of the pods that were made in a namespace, each as often as it was made."""
    return sorted(
        event.request_object["metadata"]["name"]
        for event in events
        if event.verb == "create"
        and event.object_ref.resource == "pods"
        and event.object_ref.namespace == namespace
        and event.response_status.code == 201
    )


def _is_lease(event: AuditEvent) -> bool:
    return event.object_ref.resource == "leases"


def _tell(event: AuditEvent) -> str:
    return f"{event.verb} {event.request_uri} by {event.user.username}, {received(event)} to {answered(event)}"
