"""One CocoonHibernation, as a user makes, edits and deletes it."""

from __future__ import annotations

from seat import SECONDS, Seat, condition

from cocoon_devkit.rawapi import Obj
from cocoon_operator.api import keys

_MERGE = "application/merge-patch+json"


class Hold:
    """The CocoonHibernation of a seat's pod, or of any other pod in the seat's namespace."""

    def __init__(self, seat: Seat, *, name: str = "", pod: str = "") -> None:
        self.seat = seat
        self.pod = pod or seat.pod_name
        self.name = name or self.pod

    @property
    def _all(self) -> str:
        return f"/apis/{keys.API_VERSION}/namespaces/{self.seat.namespace}/{keys.PLURAL_HIBERNATIONS}"

    @property
    def path(self) -> str:
        return f"{self._all}/{self.name}"

    def create(self, desire: str = "Hibernate") -> None:
        body = {
            "apiVersion": keys.API_VERSION,
            "kind": keys.KIND_HIBERNATION,
            "metadata": {"name": self.name},
            "spec": {"podRef": {"name": self.pod}, "desire": desire},
        }
        self.seat.api.call("POST", self._all, body)

    def ask(self, desire: str) -> None:
        """Edit ``spec.desire``."""
        self.seat.api.call("PATCH", self.path, {"spec": {"desire": desire}}, _MERGE)

    def delete(self) -> None:
        self.seat.api.call("DELETE", self.path)

    def find(self) -> Obj | None:
        return self.seat.api.find(self.path)

    @property
    def status(self) -> Obj:
        return dict((self.find() or {}).get("status") or {})

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    @property
    def ready(self) -> Obj:
        """Its condition ``Ready``."""
        return condition(self.find() or {}, "Ready")

    def until_phase(self, phase: str, seconds: float = SECONDS) -> None:
        """Wait until this generation has come to a phase."""

        def there() -> bool:
            found = self.find() or {"metadata": {}}
            status = found.get("status") or {}
            return status.get("phase") == phase and status["observedGeneration"] == found["metadata"]["generation"]

        self.seat.until(there, f"{self.name} is {phase}", seconds)

    def until_gone(self, seconds: float = SECONDS) -> None:
        self.seat.until(lambda: self.find() is None, f"{self.name} is gone", seconds)

    def told(self) -> list[str]:
        """``reason: message`` of its events, one for each time it happened, sorted."""
        path = (
            f"/api/v1/namespaces/{self.seat.namespace}/events?fieldSelector=involvedObject.kind={keys.KIND_HIBERNATION}"
        )
        found: list[Obj] = self.seat.api.call("GET", f"{path},involvedObject.name={self.name}")["items"]
        return sorted(f"{e['reason']}: {e['message']}" for e in found for _ in range(int(e.get("count") or 1)))

    def until_told(self, reason: str) -> None:
        self.seat.until(lambda: any(line.startswith(f"{reason}: ") for line in self.told()), f"event {reason}")
