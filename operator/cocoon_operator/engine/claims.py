"""Which sets can have a VM of a given name (W-25): the names are ambiguous across namespaces, and so are their tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.engine.cache import Cache
from cocoon_operator.engine.store import Key
from cocoon_operator.engine.triggers import lone_key
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.records import can_have


class VmNameIndex:
    """The index VM name -> sets, read from the cache, so that there is nothing to keep in step with it."""

    def __init__(self, cache: Cache, *, clusterwide: bool) -> None:
        self._cache = cache
        self._clusterwide = clusterwide

    @property
    def complete(self) -> bool:
        """Whether every namespace is watched and known; if not, nobody can say that a name is unclaimed."""
        return self._clusterwide and self._cache.synced.sets

    def claimants(self, vm_name: str) -> Sequence[SetObject]:
        """Return the sets that can have a VM of this name, oldest first."""
        found = {obj.uid: obj for obj in self._candidates(vm_name)}
        return sorted(found.values(), key=lambda obj: (obj.creation_timestamp, obj.uid))

    def hibernations(self, vm_name: str) -> Sequence[Hibernation]:
        """Return the CocoonHibernations, of any namespace, on pods whose computed VM name this is."""
        return [
            found
            for namespace, pod_name in _pods(vm_name)
            for found in self._cache.hibernations.grouped(lone_key(namespace, pod_name))
        ]

    def _candidates(self, vm_name: str) -> Iterator[SetObject]:
        for key, member in _readings(vm_name):
            obj = self._cache.sets.get(key)
            if obj is not None and can_have(obj, member, vm_name):
                yield obj


def _pods(vm_name: str) -> Iterator[tuple[str, str]]:
    """Yield every way to read ``vk-<namespace>-<pod>``."""
    head, _, rest = vm_name.partition("-")
    if head == "vk":
        yield from ((rest[:at], rest[at + 1 :]) for at, letter in enumerate(rest) if letter == "-")


def _readings(vm_name: str) -> Iterator[tuple[Key, str]]:
    """Yield every way to read ``vk-<namespace>-<set>-<member>``."""
    head, _, rest = vm_name.partition("-")
    dashes = [at for at, letter in enumerate(rest) if letter == "-"]
    if head != "vk":
        return
    for index, first in enumerate(dashes):
        for second in dashes[index + 1 :]:
            yield Key(rest[:first], rest[first + 1 : second]), rest[second + 1 :]
