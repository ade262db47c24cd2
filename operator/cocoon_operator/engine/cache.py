"""What this process knows of the cluster, and who has to run when that changes.

Fed by the pod informer, by Kopf's events and by lists of the two kinds, and by the answers of our own writes. A change
that somebody else made enqueues the sets it concerns. A change of our own does not: the run that wrote it knows. What
somebody else changed while our write was on its way is told apart from it by the fingerprints of ``triggers``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Literal, NamedTuple

from cocoon_operator.api import keys, names
from cocoon_operator.api.hibernation import Hibernation
from cocoon_operator.api.pod import Pod
from cocoon_operator.engine.store import Change, Key, Store
from cocoon_operator.engine.triggers import (
    hibernation_fingerprint,
    identify_hibernation,
    identify_pod,
    identify_set,
    lone_key,
    pod_fingerprint,
    set_fingerprint,
    set_of_label,
    sets_of_hibernation,
    sets_of_pod,
)
from cocoon_operator.reconcile.objects import SetObject
from cocoon_operator.reconcile.records import can_have_pod
from cocoon_operator.reconcile.view import View


class Ref(NamedTuple):
    """An object that can be written."""

    kind: Literal["pod", "set", "hibernation"]
    key: Key


class Synced:
    """Which parts of the cache have been filled once. No set runs before all have."""

    def __init__(self) -> None:
        self._parts = {keys.PLURAL_SETS: False, keys.PLURAL_HIBERNATIONS: False, "pods": False}
        self._all = asyncio.Event()

    @property
    def sets(self) -> bool:
        """Whether CocoonSets were listed."""
        return self._parts[keys.PLURAL_SETS]

    def fill(self, part: str) -> None:
        """Note that a part was listed."""
        self._parts[part] = True
        if all(self._parts.values()):
            self._all.set()

    def missing(self) -> list[str]:
        """Return the names of what is not there yet."""
        return [name for name, done in self._parts.items() if not done]

    async def wait(self) -> None:
        """Wait until every part was listed."""
        await self._all.wait()


class Cache:
    """Stores of pods, CocoonSets and CocoonHibernations; ``enqueue`` is called with every set that has to run."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self.pods: Store[Pod] = Store(identify_pod, _set_group)
        self.sets: Store[SetObject] = Store(identify_set)
        self.hibernations: Store[Hibernation] = Store(identify_hibernation, _groups)
        self.synced = Synced()
        self._enqueue = enqueue
        self._writing: Counter[Ref] = Counter()
        self._doubtful: dict[Key, set[Ref]] = {}

    def view(self, key: Key, now: datetime) -> View:
        """Return everything that lives under a key, as it is known now: of a set, or of a pod outside every set."""
        hibernations = tuple(self.hibernations.grouped(key))
        return View(
            set=self.sets.get(key),
            pods=tuple(self.pods.grouped(key)),
            hibernations=hibernations,
            now=now,
            driven=frozenset(obj.name for obj in hibernations if self.home(obj) == key),
        )

    def home(self, obj: Hibernation) -> Key:
        """Return the key under which a CocoonHibernation runs: its pod's set, the set that can have such a pod, else its own."""
        pod = self.pods.get(Key(obj.namespace, obj.pod_name))
        own = lone_key(obj.namespace, obj.pod_name)
        if pod is not None:
            owner = pod.controller
            found = self.sets.get(Key(pod.namespace, owner.name)) if owner is not None else None
            return identify_set(found).key if found is not None and pod.owned_by(found.uid) else own
        candidates = [found for key in sets_of_hibernation(obj) if (found := self.sets.get(key)) is not None]
        fitting = [found for found in candidates if can_have_pod(found, obj.pod_name)]
        oldest = min(fitting, key=lambda found: (found.creation_timestamp, found.uid), default=None)
        return identify_set(oldest).key if oldest is not None else own

    def is_home(self, key: Key) -> bool:
        """Whether a CocoonHibernation runs under this key."""
        return any(self.home(obj) == key for obj in self.hibernations.grouped(key))

    def known_keys(self) -> list[Key]:
        """Return every set that exists or left pods behind, and every CocoonHibernation without a set, in order."""
        named = {key for pod in self.pods for key in sets_of_pod(pod)}
        homes = {self.home(obj) for obj in self.hibernations}
        return sorted({Key(obj.namespace, obj.name) for obj in self.sets} | named | homes)

    # -- news from the watches and lists ---------------------------------------------------------------------------

    def see_pod(self, pod: Pod) -> None:
        """Take a pod from a watch or a live read."""
        self._pod_changed(self.pods.apply(pod))

    def lose_pod(self, pod: Pod) -> None:
        """Take the news that a pod was deleted, or lost the label."""
        self._pod_changed(self.pods.remove(pod))

    def miss_pod(self, pod: Pod, *, at: str = "") -> None:
        """Take a live 404, a list at version ``at`` that lacks the pod, or an accepted delete without grace."""
        self._pod_changed(self.pods.forget(identify_pod(pod).key, pod.uid, at=at))

    def replace_pods(self, pods: Iterable[Pod], resource_version: str) -> None:
        """Take the whole list of pods."""
        for change in self.pods.replace(pods, resource_version):
            self._pod_changed(change)
        self.synced.fill("pods")

    def see_set(self, obj: SetObject) -> None:
        """Take a CocoonSet from a watch or a live read."""
        self._set_changed(self.sets.apply(obj))

    def lose_set(self, obj: SetObject) -> None:
        """Take the news that a CocoonSet was deleted."""
        self._set_changed(self.sets.forget(identify_set(obj).key, obj.uid))

    def replace_sets(self, objects: Iterable[SetObject], resource_version: str) -> None:
        """Take the whole list of CocoonSets."""
        for change in self.sets.replace(objects, resource_version):
            self._set_changed(change)
        self.synced.fill(keys.PLURAL_SETS)

    def see_hibernation(self, obj: Hibernation) -> None:
        """Take a CocoonHibernation from a watch or a live read."""
        self._hibernation_changed(self.hibernations.apply(obj))

    def lose_hibernation(self, obj: Hibernation) -> None:
        """Take the news that a CocoonHibernation was deleted."""
        identity = identify_hibernation(obj)
        self._hibernation_changed(self.hibernations.forget(identity.key, identity.uid))

    def replace_hibernations(self, objects: Iterable[Hibernation], resource_version: str) -> None:
        """Take the whole list of CocoonHibernations."""
        for change in self.hibernations.replace(objects, resource_version):
            self._hibernation_changed(change)
        self.synced.fill(keys.PLURAL_HIBERNATIONS)

    # -- our own writes --------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, ref: Ref) -> Iterator[OwnWrite]:
        """Hold back what the watch says of an object while our write of it is on its way, then compare."""
        write = OwnWrite(self, ref)
        self._writing[ref] += 1
        try:
            yield write
        finally:
            self._writing[ref] -= 1
            if not self._writing[ref]:
                del self._writing[ref]
            if self.fingerprint(ref) != write.expected:
                for key in self.concerned(ref) | write.concerned:
                    self._enqueue(key)

    def fingerprint(self, ref: Ref) -> Hashable:
        """Return what matters of the object as it is known now; None when it does not exist."""
        if ref.kind == "pod":
            pod = self.pods.get(ref.key)
            return pod_fingerprint(pod) if pod is not None else None
        if ref.kind == "hibernation":
            hibernation = self.hibernations.get(ref.key)
            return hibernation_fingerprint(hibernation) if hibernation is not None else None
        obj = self.sets.get(ref.key)
        return set_fingerprint(obj) if obj is not None else None

    def concerned(self, ref: Ref) -> set[Key]:
        """Return the keys that an object concerns as it is known now."""
        if ref.kind == "set":
            return {ref.key}
        if ref.kind == "hibernation":
            hibernation = self.hibernations.get(ref.key)
            return self._concerned_by(hibernation) if hibernation is not None else set()
        pod = self.pods.get(ref.key)
        return sets_of_pod(pod) if pod is not None else set()

    # -- doubt -----------------------------------------------------------------------------------------------------

    def doubt(self, ref: Ref, concerned: Iterable[Key]) -> None:
        """Remember that nothing known of an object is good enough for the next view of these sets."""
        for key in concerned:
            self._doubtful.setdefault(key, set()).add(ref)

    def doubtful(self, key: Key) -> set[Ref]:
        """Return the objects that have to be read live before the next view of a set."""
        return set(self._doubtful.get(key, ()))

    def trust(self, key: Key, ref: Ref) -> None:
        """Take back a doubt: the object was read live."""
        rest = self._doubtful.get(key, set())
        rest.discard(ref)
        if not rest:
            self._doubtful.pop(key, None)

    # -- who has to run --------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change[Pod] | None) -> None:
        if change is None:
            return
        pods = [pod for pod in (change.old, change.new) if pod is not None]
        if self._writing[Ref("pod", identify_pod(pods[0]).key)]:
            return
        if len({pod_fingerprint(pod) for pod in pods}) == len(pods):
            named = lone_key(pods[0].namespace, pods[0].name)
            homes = {self.home(obj) for obj in self.hibernations.grouped(named)}
            for key in homes.union(*map(sets_of_pod, pods)):
                self._enqueue(key)

    def _set_changed(self, change: Change[SetObject] | None) -> None:
        if change is None:
            return
        versions = [obj for obj in (change.old, change.new) if obj is not None]
        key = identify_set(versions[0]).key
        if change.new is None:
            self._free_names(versions[0])
        if len(versions) == 1:
            # With a set, the CocoonHibernations of its pods come and go too.
            for obj in self.hibernations.grouped(key):
                self._enqueue(self.home(obj))
        if self._writing[Ref("set", key)]:
            return
        if len({set_fingerprint(obj) for obj in versions}) == len(versions):
            self._enqueue(key)

    def _free_names(self, gone: SetObject) -> None:
        """Run the sets whose VM names can have been this one's: they may wait for it to go (W-25)."""
        prefix = names.set_prefix(gone.namespace, gone.name)
        for obj in self.sets:
            other = names.set_prefix(obj.namespace, obj.name)
            if obj.uid != gone.uid and (other.startswith(prefix) or prefix.startswith(other)):
                self._enqueue(Key(obj.namespace, obj.name))

    def _hibernation_changed(self, change: Change[Hibernation] | None) -> None:
        if change is None:
            return
        versions = [obj for obj in (change.old, change.new) if obj is not None]
        if self._writing[Ref("hibernation", identify_hibernation(versions[0]).key)]:
            return
        if len({hibernation_fingerprint(obj) for obj in versions}) == len(versions):
            for key in set().union(*map(self._concerned_by, versions)):
                self._enqueue(key)

    def _concerned_by(self, obj: Hibernation) -> set[Key]:
        """The key that drives it, and every set that it may hold a VM of."""
        return {self.home(obj)} | {key for key in sets_of_hibernation(obj) if self.sets.get(key) is not None}


class OwnWrite:
    """One write of ours: what its answer should have made of the object, and whom a surprise concerns."""

    def __init__(self, cache: Cache, ref: Ref) -> None:
        self.expected: Hashable = cache.fingerprint(ref)
        self.concerned: set[Key] = cache.concerned(ref)


def _set_group(pod: Pod) -> Iterable[Key]:
    key = set_of_label(pod)
    return () if key is None else (key,)


def _groups(obj: Hibernation) -> Iterable[Key]:
    """Under every set it maps to by name, and under its pod: no list is ever searched."""
    return {*sets_of_hibernation(obj), lone_key(obj.namespace, obj.pod_name)}
