"""Kopf as a source of events that writes nothing: no annotations, no finalizers, no events, no status."""

from __future__ import annotations

from typing import Any

import kopf
from typing_extensions import override

from cocoon_operator.api import keys


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last-handled state; the stock one copies each object for every event and writes an annotation."""

    @override
    def build(self, **_: Any) -> Any:
        return {}

    @override
    def fetch(self, **_: Any) -> Any:
        return None

    @override
    def store(self, **_: Any) -> None:
        return None


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers: there are none that could have any."""

    @override
    def fetch(self, **_: Any) -> Any:
        return None

    @override
    def store(self, **_: Any) -> None:
        return None

    @override
    def purge(self, **_: Any) -> None:
        return None

    @override
    def touch(self, **_: Any) -> None:
        return None

    @override
    def clear(self, *, essence: Any) -> Any:
        return essence


def configure(settings: kopf.OperatorSettings) -> None:
    """Apply the project's settings to a Kopf operator."""
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    # Kopf *removes* this finalizer from every object it sees, so it must be neither ours nor another operator's.
    settings.persistence.finalizer = f"{keys.GROUP}/never-written"
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.chunk_size = 500
    settings.networking.enforce_retry_after = True
