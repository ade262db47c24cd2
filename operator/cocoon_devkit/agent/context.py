"""Everything the agent's operations share on one node."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.journal import NodeJournal
from cocoon_devkit.agent.podapi import PodApi
from cocoon_devkit.agent.registryclient import RegistryClient
from cocoon_devkit.agent.settings import NodeSettings, Windows
from cocoon_devkit.agent.tracked import Table, Tracked

if TYPE_CHECKING:
    from cocoon_devkit.agent.informer import PodInformer
    from cocoon_devkit.agent.lifecycle import Lifecycle
    from cocoon_devkit.agent.podstatus import PodStatuses
    from cocoon_devkit.agent.probes import Probes


@dataclass(slots=True)
class Context:
    """The parts of one node's agent. ``registry`` is None for an agent without a registry.

    ``silent`` is an agent whose heartbeats were stopped: it volunteers nothing, also no repair of a status (N012).
    ``flights`` are locks by snapshot name: concurrent pulls or saves of one name are one (R2.4, R2.9).
    """

    settings: NodeSettings
    api: PodApi
    engine: Engine
    registry: RegistryClient | None
    faults: Faults
    journal: NodeJournal
    table: Table
    lifecycle: Lifecycle
    statuses: PodStatuses
    probes: Probes
    informer: PodInformer
    silent: bool = False
    flights: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    @property
    def windows(self) -> Windows:
        return self.settings.windows

    def background(self, tracked: Tracked, name: str, work: Awaitable[None]) -> None:
        """Run something for a pod beside its calls; it ends with the pod's record."""
        tracked.start(name, asyncio.ensure_future(_guarded(self, name, work)))


async def _guarded(context: Context, name: str, work: Awaitable[None]) -> None:
    """Journal a failure of background work; a task that dies silently would hide a bug of the double."""
    try:
        await work
    except Exception as error:
        context.journal.provider("background-failed", name=name, error=repr(error))
        raise
