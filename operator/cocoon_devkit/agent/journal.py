"""The ordered log of what the double did: API writes, registry calls, engine calls, provider calls (F-25)."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

Entry = dict[str, Any]


class Journal:
    """A bounded log in memory. Entries carry ``seq``, ``time`` (Unix seconds), ``node``, ``kind``, ``op`` and details.

    Kinds: ``api`` (writes to the Kubernetes API), ``registry`` (HTTP requests), ``engine`` (the imaginary hypervisor),
    ``provider`` (calls of the pod framework).
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._next = 1

    def add(self, node: str, kind: str, op: str, **details: Any) -> None:
        self._entries.append({"seq": self._next, "time": time.time(), "node": node, "kind": kind, "op": op, **details})
        self._next += 1

    def select(self, *, since: int = 0, node: str = "", kind: str = "", op: str = "") -> list[Entry]:
        """Return the entries after ``since`` that match, oldest first."""
        return [
            entry
            for entry in self._entries
            if entry["seq"] > since
            and node in ("", entry["node"])
            and kind in ("", entry["kind"])
            and op in ("", entry["op"])
        ]


class NodeJournal:
    """The journal of one node: every entry carries its name."""

    def __init__(self, journal: Journal, node: str) -> None:
        self._journal = journal
        self._node = node

    def api(self, op: str, **details: Any) -> None:
        self._journal.add(self._node, "api", op, **details)

    def registry(self, op: str, **details: Any) -> None:
        self._journal.add(self._node, "registry", op, **details)

    def engine(self, op: str, **details: Any) -> None:
        self._journal.add(self._node, "engine", op, **details)

    def provider(self, op: str, **details: Any) -> None:
        self._journal.add(self._node, "provider", op, **details)
