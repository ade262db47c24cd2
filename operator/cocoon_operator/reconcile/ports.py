"""The worlds as decisions see them: small protocols, implemented by ``engine`` and ``clients`` and by the tests' model cluster.

Every method of :class:`Cluster` raises a :class:`cocoon_operator.api.errors.KubeError`; no method of :class:`Registry` raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from cocoon_operator.api.answers import Answer, WriteAnswer
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.pod import Pod
from cocoon_operator.reconcile.objects import SetObject


class Clock(Protocol):
    """The time, injected."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...


class Cluster(Protocol):
    """Live reads of, and writes to, the Kubernetes API. A write's answer is part of every later view (W-59)."""

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod live, past every cache. None when it does not exist."""
        ...

    async def list_pods(self, namespace: str, set_name: str) -> Sequence[Pod]:
        """List the pods with the set's label live, past every cache, terminating ones too."""
        ...

    async def create_pod(self, namespace: str, body: Mapping[str, Any]) -> Pod:
        """Create a pod; :class:`AlreadyExistsError` when the name is taken, also by a pod that is still terminating."""
        ...

    async def patch_pod(self, pod: Pod, annotations: Mapping[str, str | None], *, guarded: bool = False) -> Pod:
        """Merge-patch annotations (None deletes a key) of exactly this pod: its UID is a precondition.

        ``guarded`` adds the resourceVersion, so that a view that is behind fails with :class:`ConflictError`.
        """
        ...

    async def delete_pod(self, pod: Pod) -> bool:
        """Delete exactly this pod as it was seen: UID and resourceVersion are preconditions (W-34).

        Returns False when it was gone already (W-32). :class:`ConflictError`: it changed since it was seen.
        """
        ...

    async def patch_set(
        self,
        target: SetObject,
        *,
        annotations: Mapping[str, str | None] | None = None,
        finalizers: Sequence[str] | None = None,
    ) -> SetObject:
        """Merge-patch metadata of a CocoonSet; ``spec`` is out of reach (I10). UID and resourceVersion are preconditions."""
        ...

    async def patch_set_status(self, target: SetObject, status: Mapping[str, Any]) -> SetObject:
        """Merge-patch the status subresource of a CocoonSet. UID and resourceVersion are preconditions."""
        ...

    async def patch_hibernation(self, target: Hibernation, *, finalizers: Sequence[str]) -> Hibernation:
        """Replace the finalizers of a CocoonHibernation. UID and resourceVersion are preconditions."""
        ...

    async def patch_hibernation_status(self, target: Hibernation, status: Mapping[str, Any]) -> Hibernation:
        """Merge-patch the status subresource of a CocoonHibernation. UID and resourceVersion are preconditions."""
        ...


class Registry(Protocol):
    """Manifests by tag or digest; the repository is a VM name. No method raises, none is retried past its time budget."""

    async def probe(self, vm_name: str, reference: str) -> Answer:
        """Ask whether a manifest exists, by tag or by digest (HEAD)."""
        ...

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        """As :meth:`probe`, but fetch the manifest (GET), so that ``base_image`` is told."""
        ...

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        """Untag, in one attempt that is never repeated in here; an absent tag is :class:`Done` (design 4.3 rule 2)."""
        ...

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        """Put the manifest behind ``source`` (tag or digest) under ``tag`` too, byte for byte, and verify it.

        :class:`Refused` also when ``source`` does not exist any more.
        """
        ...


class Recorder(Protocol):
    """Events on a CocoonSet or CocoonHibernation. Fire and forget; identical ones are folded by the implementation."""

    def event(self, target: SetObject | Hibernation, kind: str, reason: str, message: str) -> None:
        """Record an event; ``kind`` is ``Normal`` or ``Warning``."""
        ...


class Measures(Protocol):
    """The metrics of the contract (section 7.1), by what happened, not by how they are exported."""

    def count(self, name: str, **labels: str) -> None:
        """Add one to the counter ``cocoon_operator_<name>``."""
        ...

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to the histogram ``cocoon_operator_<name>``."""
        ...


class Claims(Protocol):
    """The index VM name -> sets (W-25: names are ambiguous across namespaces)."""

    def claimants(self, vm_name: str) -> Sequence[SetObject]:
        """Return the sets that can have a VM of this name, oldest first (creation time, then UID)."""
        ...

    def hibernations(self, vm_name: str) -> Sequence[Hibernation]:
        """Return the CocoonHibernations, of any namespace, on pods whose computed VM name this is."""
        ...

    @property
    def complete(self) -> bool:
        """Whether every namespace is watched; if not, nobody can say that a name is unclaimed."""
        ...
