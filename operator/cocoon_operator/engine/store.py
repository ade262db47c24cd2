"""Objects by key, newest version only, whatever order the watch, the lists and the answers of our own writes come in.

A resourceVersion of one resource type is an ordered integer (KEP-5504). So "newer" needs no clock, the answer of a
write overlays the watch until the watch has caught up (W-59), and an event that comes late neither rolls an object back
nor brings a deleted one to life.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_TOMBSTONES: Final = 20_000


class Key(NamedTuple):
    """Namespace and name."""

    namespace: str
    name: str


class Identity(NamedTuple):
    """What the store needs to know of an object."""

    key: Key
    uid: str
    version: int


def version_of(text: str) -> int:
    """Return a resourceVersion as a number; one that is none (no API server sends such) is older than all."""
    return int(text) if text.isascii() and text.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What one operation did to one object. None stands for "does not exist"."""

    old: T | None
    new: T | None


class Store(Generic[T]):
    """The newest known version of each object. ``group`` files objects under other keys too, such as their set."""

    def __init__(self, identify: Callable[[T], Identity], group: Callable[[T], Iterable[Key]] | None = None) -> None:
        self._identify = identify
        self._group = group
        self._objects: dict[Key, T] = {}
        self._groups: dict[Key, set[Key]] = {}
        self._buried: OrderedDict[str, float] = OrderedDict()
        self._listed_at = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def get(self, key: Key) -> T | None:
        """Return the newest known version."""
        return self._objects.get(key)

    def grouped(self, key: Key) -> list[T]:
        """Return the objects filed under ``key``, by name."""
        return [self._objects[member] for member in sorted(self._groups.get(key, ()))]

    def apply(self, obj: T) -> Change[T] | None:
        """Take a version that was seen or answered. None when nothing newer was learned from it."""
        identity = self._identify(obj)
        old = self._objects.get(identity.key)
        # What a list lacked did not exist at the list's version; an older version of it is news from the past.
        known_until = self._identify(old).version if old is not None else self._listed_at
        if identity.version <= max(known_until, self._buried.get(identity.uid, -1)):
            return None
        self._put(identity.key, old, obj)
        return Change(old, obj)

    def remove(self, obj: T) -> Change[T] | None:
        """Take the news that an object ended, or no longer matches the watch's selector, at this version of it."""
        identity = self._identify(obj)
        return self._end(identity.key, identity.uid, identity.version)

    def forget(self, key: Key, uid: str, *, at: str = "") -> Change[T] | None:
        """Take the news that the object with this UID did not exist at version ``at``; without one, that it never will.

        A UID is never used again, so that after a live 404 no version of it is news any more.
        """
        return self._end(key, uid, version_of(at) if at else math.inf)

    def _end(self, key: Key, uid: str, version: float) -> Change[T] | None:
        self._bury(uid, version)
        old = self._objects.get(key)
        if old is None:
            return None
        current = self._identify(old)
        if current.version > version or (current.uid != uid and version == math.inf):
            return None
        self._put(key, old, None)
        return Change(old, None)

    def replace(self, objects: Iterable[T], resource_version: str) -> list[Change[T]]:
        """Take a whole list: what it lacks is gone, unless it is newer than the list. Return what changed."""
        listed_at = version_of(resource_version)
        listed = {self._identify(obj).key: obj for obj in objects}
        if listed_at < self._listed_at:
            return self._restart(listed, listed_at)
        changes = [change for change in map(self.apply, listed.values()) if change is not None]
        for key, old in list(self._objects.items()):
            identity = self._identify(old)
            if key not in listed and identity.version <= listed_at:
                self._bury(identity.uid, listed_at)
                self._put(key, old, None)
                changes.append(Change(old, None))
        self._listed_at = listed_at
        return changes

    def _restart(self, listed: dict[Key, T], listed_at: int) -> list[Change[T]]:
        """Start over: versions went back, so etcd was restored from a backup and none from before means anything."""
        before = dict(self._objects)
        self._buried.clear()
        for key, old in before.items():
            self._put(key, old, None)
        for key, new in listed.items():
            self._put(key, None, new)
        self._listed_at = listed_at
        return [Change(before.get(key), listed.get(key)) for key in sorted(before.keys() | listed.keys())]

    def _put(self, key: Key, old: T | None, new: T | None) -> None:
        if self._group is not None:
            before = set(self._group(old)) if old is not None else set()
            after = set(self._group(new)) if new is not None else set()
            self._refile(key, before, after)
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new

    def _refile(self, key: Key, before: set[Key], after: set[Key]) -> None:
        for group in before - after:
            members = self._groups.get(group, set())
            members.discard(key)
            if not members:
                self._groups.pop(group, None)
        for group in after - before:
            self._groups.setdefault(group, set()).add(key)

    def _bury(self, uid: str, version: float) -> None:
        self._buried[uid] = max(version, self._buried.pop(uid, -1))
        if len(self._buried) > _TOMBSTONES:
            self._buried.popitem(last=False)
