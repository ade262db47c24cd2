"""One node of the double: start order, stop, kill (1.5)."""

from __future__ import annotations

import asyncio
import shutil

from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.informer import PodInformer
from cocoon_devkit.agent.journal import Journal, NodeJournal
from cocoon_devkit.agent.kube import Kube
from cocoon_devkit.agent.lifecycle import Lifecycle
from cocoon_devkit.agent.loss import on_engine_event
from cocoon_devkit.agent.node import NodeObject
from cocoon_devkit.agent.podapi import PodApi
from cocoon_devkit.agent.podstatus import PodStatuses
from cocoon_devkit.agent.podsync import PodSync
from cocoon_devkit.agent.probes import Probes
from cocoon_devkit.agent.reclaim import reclaim_forever
from cocoon_devkit.agent.reconcile import reconcile
from cocoon_devkit.agent.registryclient import RegistryClient
from cocoon_devkit.agent.settings import NodeSettings
from cocoon_devkit.agent.tracked import Table
from cocoon_devkit.agent.upkeep import flush_forever, repair_forever


class NodeAgent:
    """An agent that runs on one imaginary node. Start it again after :meth:`kill` and it knows only what is on disk (R0.2)."""

    def __init__(self, kube: Kube, settings: NodeSettings, journal: Journal) -> None:
        self._kube = kube
        self.settings = settings
        self.faults = Faults()
        self.faults.on_kill = self._die
        self._deaths: set[asyncio.Task[None]] = set()
        self._journal = NodeJournal(journal, settings.name)
        self._loops: list[asyncio.Task[None]] = []
        self.running = False
        self._build()

    def _build(self) -> None:
        """Make the volatile state anew, and read the persistent one from disk."""
        settings, faults, journal = self.settings, self.faults, self._journal
        self.engine = Engine(settings.state_dir / settings.name, settings.speeds, faults, journal)
        table = Table()
        api = PodApi(self._kube, settings.name, faults, journal)
        statuses = PodStatuses(api, settings.windows)
        self._sync = PodSync(lambda: self.context, settings.workers)
        informer = PodInformer(self._kube, settings.name, self._sync.on_change)
        self.context = Context(
            settings=settings,
            api=api,
            engine=self.engine,
            registry=self._registry(),
            faults=faults,
            journal=journal,
            table=table,
            lifecycle=Lifecycle(api, table, informer, faults, settings.windows),
            statuses=statuses,
            probes=Probes(self.engine, faults, table, statuses, settings),
            informer=informer,
        )
        self._sync.prepare()
        self.engine.on_loss = lambda name: on_engine_event(self.context, name)
        self.node = NodeObject(self._kube, settings, self.engine, table, journal)

    def _registry(self) -> RegistryClient | None:
        settings = self.settings
        if not settings.registry:
            return None
        return RegistryClient(
            settings.registry,
            username=settings.registry_username,
            password=settings.registry_password,
            tls=settings.registry_tls,
            ca=settings.registry_ca,
            speeds=settings.speeds,
            faults=self.faults,
            journal=self._journal,
        )

    async def start(self) -> None:
        """List, reconcile, work on pods, then register: a failure before that leaves no Node (R1.13, N194)."""
        await asyncio.gather(*self._deaths)
        self._build()
        try:
            await self.context.informer.list()
            await reconcile(self.context)
            self.context.informer.follow()
            self._sync.start()
            await self.node.register()
        except BaseException:
            await self._halt()
            raise
        self.node.start()
        self._loops = [
            asyncio.ensure_future(loop(self.context)) for loop in (flush_forever, repair_forever, reclaim_forever)
        ]
        self.running = True

    async def set_heartbeats(self, *, on: bool) -> None:
        """Stop or resume lease and node status (F-16). Pods are served on, but a silent agent volunteers nothing."""
        self.context.silent = not on
        if not on:
            await self.node.stop()
        elif not self.node.beating:
            await self.node.register()
            self.node.start()

    async def stop(self) -> None:
        """Stop gracefully: nothing new is begun; the Node and the pods stay (N013)."""
        await self.context.api.settle()
        await self._halt()

    async def kill(self) -> None:
        """Stop dead, whatever is in hand; what is on disk stays as it is (F-15)."""
        await self._halt()

    def _die(self) -> None:
        """Kill the agent from within one of its own steps (fault ``kill``)."""
        death = asyncio.ensure_future(self.kill())
        self._deaths.add(death)
        death.add_done_callback(self._deaths.discard)

    def wipe_disk(self) -> None:
        """Lose VMs and snapshots, as with the disk of the node (F-15). Raises :class:`ValueError` while the agent runs."""
        if self.running:
            raise ValueError(f"the agent of {self.settings.name} runs; kill it first")
        shutil.rmtree(self.settings.state_dir / self.settings.name, ignore_errors=True)
        self._build()

    async def _halt(self) -> None:
        self.running = False
        self.engine.on_loss = lambda _name: None
        await self.context.informer.stop()
        await self._sync.stop()
        await self.node.stop()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        tasks = [task for tracked in self.context.table for task in tracked.tasks.values()]
        for tracked in self.context.table:
            tracked.stop_all()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.context.registry is not None:
            await self.context.registry.close()
