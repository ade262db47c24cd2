"""Several nodes of the double in one process, with their control endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from aiohttp import web

from cocoon_devkit.agent.control import build_app
from cocoon_devkit.agent.journal import Journal
from cocoon_devkit.agent.kube import Kube
from cocoon_devkit.agent.nodeagent import NodeAgent
from cocoon_devkit.agent.registryclient import RegistryClient
from cocoon_devkit.agent.registrygate import RegistryGate
from cocoon_devkit.agent.settings import NodeSettings


class FakeNodes:
    """``async with FakeNodes(kubeconfig, template, ["n1", "n2"]) as nodes``: running nodes and ``nodes.control``, a URL.

    ``template`` tells everything but the name. With ``registry_gate`` the agents reach the registry through :attr:`gate`.
    Leaving stops the agents; Node objects and pods stay (R1.6).
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        template: NodeSettings,
        names: Sequence[str],
        *,
        control_port: int = 0,
        registry_gate: bool = False,
    ) -> None:
        if registry_gate and (not template.registry or template.registry_tls or template.registry_ca):
            raise ValueError("a gate needs a registry that speaks plain HTTP")
        self._kubeconfig = kubeconfig
        self._template = template
        self._names = list(names)
        self._control_port = control_port
        self._runner: web.AppRunner | None = None
        self._kube: Kube | None = None
        self._gate_wanted = registry_gate
        self.gate: RegistryGate | None = None
        self.journal = Journal()
        self.nodes: dict[str, NodeAgent] = {}
        self.control = ""

    async def __aenter__(self) -> FakeNodes:
        self._kube = await Kube.connect(self._kubeconfig)
        try:
            if self._gate_wanted:
                await self._open_gate()
            for name in self._names:
                await self.add(name)
            await self._serve()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open_gate(self) -> None:
        self.gate = RegistryGate(self._template.registry.partition("/")[0])
        await self.gate.start()

    def _registry_of_agents(self) -> str:
        """Return where the agents find the registry: behind their door, if there is a gate."""
        host, slash, prefix = self._template.registry.partition("/")
        return f"{self.gate.doors['agent'] if self.gate else host}{slash}{prefix}"

    async def add(self, name: str) -> NodeAgent:
        """Start one more node."""
        assert self._kube is not None
        settings = replace(
            self._template,
            name=name,
            registry=self._registry_of_agents(),
            capacity=replace(self._template.capacity),
            speeds=replace(self._template.speeds),
            windows=replace(self._template.windows),
            kubelet_port=self._template.kubelet_port + len(self.nodes),
        )
        agent = NodeAgent(self._kube, settings, self.journal)
        await agent.start()
        self.nodes[name] = agent
        return agent

    def registry(self) -> RegistryClient:
        """Return a client of the same registry, without faults and journal; the caller closes it."""
        template = self._template
        return RegistryClient(
            template.registry,
            username=template.registry_username,
            password=template.registry_password,
            tls=template.registry_tls,
            ca=template.registry_ca,
        )

    async def close(self) -> None:
        """Stop the control endpoint and every node."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        for agent in self.nodes.values():
            agent.faults.clear()
            if agent.running:
                await agent.stop()
        if self.gate is not None:
            await self.gate.close()
            self.gate = None
        if self._kube is not None:
            await self._kube.close()
            self._kube = None

    async def _serve(self) -> None:
        self._runner = web.AppRunner(build_app(self), access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._control_port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.control = f"http://{host}:{port}"
