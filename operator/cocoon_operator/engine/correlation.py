"""Which events are one, and which are too many: the rules of client-go's recorder, so that users see what they know.

* Identical ones (object, type, reason, message) are one event with a count.
* Similar ones (object, type, reason): from the tenth different message on, each no more than ten minutes after the one
  before it, they are one event that tells the newest message.
* One object may cause 25 events of each type in a burst, and then one every five minutes. What is over is counted and not sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

COMBINED: Final = "(combined from similar events): "

_REMEMBERED: Final = 4096
_DIFFERENT: Final = 10
_SIMILAR_SECONDS: Final = 600.0
_BURST: Final = 25.0
_REFILL_SECONDS: Final = 300.0


class Similar(NamedTuple):
    """What similar events have in common; ``kind`` is the event's type."""

    uid: str
    kind: str
    reason: str


@dataclass(slots=True)
class Thread:
    """The occurrences that are one event. ``name`` is the event's once it was created, ``sent`` the count that it shows."""

    first: str
    last: str = ""
    message: str = ""
    count: int = 0
    name: str = ""
    sent: int = 0

    def again(self, message: str, at: str) -> None:
        """Take another occurrence."""
        self.count += 1
        self.message, self.last = message, at

    def lost(self) -> None:
        """Begin anew with the last occurrence: the event does not exist any more."""
        self.first, self.count, self.name, self.sent = self.last, 1, "", 0


@dataclass(slots=True)
class _Variety:
    messages: set[str]
    at: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class _Newest(Generic[K, V]):
    """A mapping that forgets what was not used for longest."""

    entries: OrderedDict[K, V] = field(default_factory=OrderedDict)

    def use(self, key: K, make: Callable[[], V]) -> V:
        value = self.entries[key] if key in self.entries else make()
        self.entries[key] = value
        self.entries.move_to_end(key)
        if len(self.entries) > _REMEMBERED:
            self.entries.popitem(last=False)
        return value


class Correlator:
    """Remembers what was told. ``timer`` counts seconds and never goes back."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._varieties: _Newest[Similar, _Variety] = _Newest()
        self._threads: _Newest[tuple[Similar, str], Thread] = _Newest()
        self._buckets: _Newest[tuple[str, str], _Bucket] = _Newest()

    def take(self, similar: Similar, message: str, at: str) -> Thread | None:
        """Take an occurrence at the time ``at``; None when its object is over its limit, so that nothing is sent now."""
        combined = self._too_different(similar, message)
        thread = self._threads.use((similar, COMBINED if combined else message), lambda: Thread(at))
        thread.again(COMBINED + message if combined else message, at)
        return thread if self._allowed(similar) else None

    def _too_different(self, similar: Similar, message: str) -> bool:
        now = self._timer()
        variety = self._varieties.use(similar, lambda: _Variety(set(), now))
        if now - variety.at > _SIMILAR_SECONDS:
            variety.messages.clear()
        variety.at = now
        variety.messages.add(message)
        if len(variety.messages) < _DIFFERENT:
            return False
        variety.messages.discard(message)
        return True

    def _allowed(self, similar: Similar) -> bool:
        now = self._timer()
        bucket = self._buckets.use((similar.uid, similar.kind), lambda: _Bucket(_BURST, now))
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.at) / _REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True
