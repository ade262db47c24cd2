"""What each transition of a set with every role costs, exactly: API writes from the audit log, requests from the registry's."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, NamedTuple

import pytest
from fleet import RUN_BOX, STATIC_BOX, Fleet, other_node
from nodes import PREFIX
from seat import Seat

from cocoon_devkit.audit import AuditEvent
from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys


class Cost(NamedTuple):
    """Writes to the set, its status and its pods, and requests about the ``:hibernate`` tags of all its VMs.

    Of the statuses those with an edge: how often a message is brought up to date in between depends on how long it all takes.
    """

    sets: int = 0
    statuses: int = 0
    patched: int = 0
    created: int = 0
    deleted: int = 0
    refused: int = 0
    get: int = 0
    head: int = 0
    drop: int = 0


# A set with other members than main cannot be released: what release and wake cost is in test_operator_writes.py.
TABLE: Final = {
    # A main agent, 3 sub-agents, a toolbox of mode run and a static one: 6 pods, 5 VMs. The tags of what comes after main
    # are asked twice: before their names are claimed, and before their pods are made.
    "create": Cost(sets=1, statuses=3, created=6, get=9),
    "suspend": Cost(statuses=2, patched=6, head=5),
    "unsuspend": Cost(statuses=2, patched=6, head=5, drop=5),
    # One of the 3 sub-agents is kept; the two others go one after the other.
    "scale to 1": Cost(sets=3, statuses=1, patched=4, deleted=2, drop=2),
    "remove a toolbox": Cost(sets=2, statuses=1, patched=3, deleted=1, drop=1),
    "migrate": Cost(statuses=4, patched=3, created=1, deleted=1, get=1, head=1, drop=2),
    # The names of sub-agents and of toolboxes are claimed by the step that makes them.
    "scale to 3 and a toolbox": Cost(sets=2, statuses=2, patched=3, created=3, get=3),
    "delete": Cost(sets=1, deleted=6, drop=5),
}


class Bill:
    """What was written and asked since the last look."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.costs: dict[str, Cost] = {}
        self._told: dict[str, tuple[str, str]] = {}
        self._forget()

    def _forget(self) -> None:
        self._audit = self._seat.audit.mark()
        self._log = self._seat.registry.mark()

    def settle(self, transition: str) -> None:
        """Note the cost of a transition once the set is at rest."""
        self._seat.rest()
        writes, asked = self._seat.writes(self._audit), self._asked()
        self.costs[transition] = Cost(
            sets=_count(writes, "patch cocoonsets "),
            statuses=sum(self._has_edge(event.request_object["status"]) for event in self._statuses()),
            patched=_count(writes, "patch pods "),
            created=_count(writes, "create pods "),
            deleted=_count(writes, "delete pods "),
            refused=sum(write.endswith(")") for write in writes),
            get=asked.count("GET"),
            head=asked.count("HEAD"),
            drop=asked.count("DELETE"),
        )
        self._forget()

    def _statuses(self) -> list[AuditEvent]:
        """The accepted writes of the set's status."""
        written = self._seat.audit.write_requests(self._audit, namespace=self._seat.namespace, resources=["cocoonsets"])
        return [
            event
            for event in written
            if event.object_ref.subresource == "status" and event.response_status.code < HTTPStatus.BAD_REQUEST
        ]

    def _has_edge(self, status: Obj) -> bool:
        """Whether it says more than other messages, counts and entries."""
        told = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", [])} or self._told
        edge = told != self._told or not {"phase", "observedGeneration"}.isdisjoint(status)
        self._told = told
        return edge

    def _asked(self) -> list[str]:
        start = f"/v2/{PREFIX}/vk-{self._seat.namespace}-{self._seat.name}-"
        end = f"/manifests/{keys.TAG_HIBERNATE}"
        return [
            request.method
            for request in self._seat.registry.requests(self._log)
            if request.user_agent == keys.EVENT_COMPONENT
            and request.path.startswith(start)
            and request.path.endswith(end)
        ]


def _count(writes: list[str], start: str) -> int:
    """Accepted writes of one kind."""
    return sum(write.startswith(start) and not write.endswith(")") for write in writes)


@pytest.mark.scenario("S041", "S134", "S136", "S141", "S197", "S202", "S229", "S241", "S251")
def test_every_write_of_a_set_with_all_roles_carries_information(seat: Seat) -> None:
    fleet, bill = Fleet(seat), Bill(seat)
    fleet.up(1, 2, 3, "db", agent={"replicas": 3}, toolboxes=[RUN_BOX, STATIC_BOX])
    bill.settle("create")

    seat.suspend()
    fleet.asleep()
    bill.settle("suspend")

    with fleet.members_wait("lifecycle.ready", 1, 2, 3, "db"):
        seat.edit(suspend=False)
        seat.until(lambda: seat.tag() is None, "main is awake, and its tag is dropped")
    fleet.settled()
    bill.settle("unsuspend")

    with fleet.member(3).barrier("delete"):
        fleet.scale(1)
        seat.until(lambda: "demo-2" not in fleet.listed(), "slot 2 is gone")
    seat.until(lambda: fleet.listed() == {"demo-0", "demo-1", "demo-db"}, "slot 3 is gone")
    fleet.forget(2)
    fleet.forget(3)
    fleet.settled()
    bill.settle("scale to 1")

    seat.edit(toolboxes=[STATIC_BOX])
    seat.until(lambda: fleet.listed() == {"demo-0", "demo-1"}, "the toolbox is gone")
    fleet.forget("db")
    fleet.settled()
    bill.settle("remove a toolbox")

    target = other_node(seat.node)
    seat.edit(nodeName=target)
    seat.until(lambda: seat.homes() == [target], "main has moved")
    fleet.settled()
    bill.settle("migrate")

    with fleet.members_wait("lifecycle.ready", 2, 3, "db"):
        seat.edit(agent={"replicas": 3}, toolboxes=[RUN_BOX, STATIC_BOX])
        seat.until_observed()
    fleet.settled()
    bill.settle("scale to 3 and a toolbox")

    seat.delete()
    seat.until_gone()
    bill.settle("delete")
    assert bill.costs == TABLE
