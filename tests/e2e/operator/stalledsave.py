"""A save that its node agent left half done. Two minutes pass before it is begun again; other tests pass meanwhile."""

from __future__ import annotations

import uuid

from seat import Seat, Surroundings


class StalledSave:
    """``begin()`` as early as possible, and again to get the seat."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._seat: Seat | None = None

    def begin(self) -> Seat:
        """Let an agent die between the removal of a VM and the word about it, and the operator notice; once in a run.

        An operator has to run, this one or another: the time is in the status.
        """
        if self._seat is None:
            self._seat = Seat(self._around, self._namespace(), "stalled")
            self._stall(self._seat)
        return self._seat

    def end(self) -> None:
        """Ask for the end of the namespace."""
        if self._seat is not None:
            self._around.api.call("DELETE", f"/api/v1/namespaces/{self._seat.namespace}")

    def _namespace(self) -> str:
        api, name = self._around.api, f"test-{uuid.uuid4().hex[:8]}"
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self._around.agent.wait(lambda: api.find(account) is not None, seconds=30)
        return name

    @staticmethod
    def _stall(seat: Seat) -> None:
        seat.up()
        node = seat.node
        with seat.barrier("lifecycle.hibernated", node) as held:
            seat.edit(suspend=True)
            held()
            seat.agent.kill_node(node)
        seat.agent.start_node(node)
