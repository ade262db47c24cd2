"""Everything of one process put together: the connection, both clients, the engine and what decides.

Both ways to start the operator use it: ``cocoon-operator run`` and ``kopf run -m cocoon_operator.handlers``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import structlog
from typing_extensions import override

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError, NotFoundError
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection, ConnectionSetupError, find_connection
from cocoon_operator.clients.kubernetes.resources import SETS
from cocoon_operator.clients.registry.client import RegistryClient
from cocoon_operator.clients.registry.patience import Patience
from cocoon_operator.config import Config
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.engine import Engine, EngineSettings, Ports
from cocoon_operator.engine.lease import Elector, Periods
from cocoon_operator.metrics import Metrics
from cocoon_operator.reconcile.reconciler import Reconciler

log = structlog.get_logger(__name__)

_KINDS = frozenset({keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS})


class StartError(Exception):
    """The operator cannot start; the message is one sentence that says what to do."""


class Runtime:
    """One process's parts, made by :meth:`open` and ended by :meth:`close`."""

    def __init__(self, config: Config, connection: Connection, metrics: Metrics) -> None:
        self.config = config
        self.connection = connection
        self._metrics = metrics
        self._client = KubeClient(connection, observe=metrics.kube_request)
        self._elector_client: KubeClient | None = None
        self._registry = RegistryClient(
            config.registry,
            patience=Patience(total=config.registry_timeout, attempt=min(4.0, config.registry_timeout)),
            on_request=metrics.registry_request,
        )
        self.engine = Engine(
            self._client,
            self._reconciler,
            settings=EngineSettings(
                workers=config.set_workers,
                resync_interval=config.resync_interval,
                namespace=config.watch_namespace,
            ),
            measures=metrics,
            elector=self._elector() if config.leader_elect else None,
        )

    @classmethod
    async def open(cls, config: Config, env: Mapping[str, str], metrics: Metrics) -> Runtime:
        """Find the API server and the CRDs, then start the engine. Raises :class:`StartError`."""
        try:
            connection = await find_connection(config.kubeconfig, env=env)
            connection.ssl_context()
        except ConnectionSetupError as error:
            raise StartError(f"no way to the API server: {error}") from error
        runtime = cls(config, connection, metrics)
        try:
            await runtime.check()
        except BaseException:
            await runtime.close_clients()
            raise
        runtime.engine.start()
        return runtime

    async def check(self) -> None:
        """Wait for the API server and for both kinds to be served. Raises :class:`StartError`."""
        try:
            version = await self._client.get_path("/version")
        except KubeError as error:
            raise StartError(
                f"the API server {self.connection.server} ({self.connection.source}) does not answer: {error};"
                " check that it runs and that KUBECONFIG or --kubeconfig names the right cluster"
            ) from error
        log.info(
            "connected", server=self.connection.server, source=self.connection.source, version=version["gitVersion"]
        )
        deadline = time.monotonic() + self.config.crd_timeout
        while missing := _KINDS - await self._served():
            if time.monotonic() >= deadline:
                names = " and ".join(f"{name}.{keys.GROUP}" for name in sorted(missing))
                raise StartError(
                    f"the API server does not serve {names}: install the CRDs first (kubectl apply -f crds/)"
                )
            log.info("waiting for the CRDs", missing=sorted(missing))
            await asyncio.sleep(1.0)

    async def _served(self) -> frozenset[str]:
        try:
            document = await self._client.get_path(SETS.root)
        except NotFoundError:
            return frozenset()
        except KubeError as error:
            raise StartError(f"the API server does not tell what it serves: {error}") from error
        return frozenset(str(resource.get("name")) for resource in document.get("resources") or ())

    async def close(self) -> None:
        """Stop the engine gracefully, then close the clients."""
        await self.engine.stop()
        await self.close_clients()

    async def close_clients(self) -> None:
        """Close every session."""
        await self._client.close()
        if self._elector_client is not None:
            await self._elector_client.close()
        await self._registry.close()

    def _elector(self) -> Elector:
        periods = Periods()
        patience = periods.renew_deadline / 2
        self._elector_client = KubeClient(
            self.connection, limits=Limits(attempt=patience, budget=patience), observe=self._metrics.kube_request
        )
        namespace = self.connection.namespace or self.config.lease_namespace
        return Elector(self._elector_client, SystemClock(), namespace=namespace, periods=periods)

    def _reconciler(self, ports: Ports) -> Reconciler:
        return _ForgettingReconciler(
            self._metrics,
            cluster=ports.cluster,
            registry=self._registry,
            recorder=ports.recorder,
            measures=self._metrics,
            claims=ports.claims,
            clock=ports.clock,
            tag_collection_timeout=self.config.tag_collection_timeout,
        )


class _ForgettingReconciler(Reconciler):
    """Drops a set's series together with what is remembered of it."""

    def __init__(self, metrics: Metrics, **settings: Any) -> None:
        super().__init__(**settings)
        self._metrics = metrics

    @override
    def forget(self, namespace: str, name: str) -> None:
        super().forget(namespace, name)
        self._metrics.forget(namespace, name)
