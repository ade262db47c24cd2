"""Everything of one process put together: the connection, both clients, the engine and what decides.

Both ways to start the operator use it: ``cocoon-operator run`` and ``kopf run -m cocoon_operator.handlers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from cocoon_operator.clients.kubernetes.client import KubeClient
from cocoon_operator.clients.kubernetes.client import Limits as RequestLimits
from cocoon_operator.clients.kubernetes.connection import Connection
from cocoon_operator.clients.registry.client import RegistryClient
from cocoon_operator.clients.registry.patience import Patience
from cocoon_operator.clients.registry.tls import ClientCertificate
from cocoon_operator.config import Config
from cocoon_operator.engine.clock import SystemClock
from cocoon_operator.engine.engine import Engine, EngineSettings, Ports
from cocoon_operator.engine.fence import FencedRegistry
from cocoon_operator.engine.lease import Elector, Periods
from cocoon_operator.engine.registrylog import LoggedRegistry
from cocoon_operator.enginemetrics import EngineCollector
from cocoon_operator.metrics import Metrics
from cocoon_operator.reconcile.hibernation.machine import Limits
from cocoon_operator.reconcile.ports import Registry
from cocoon_operator.reconcile.reconciler import Reconciler
from cocoon_operator.reconcile.view import Outcome, View
from cocoon_operator.startup import connect
from cocoon_operator.tracing import Tracer, open_tracer


class Runtime:
    """One process's parts, made by :meth:`open` and ended by :meth:`close`."""

    def __init__(self, config: Config, connection: Connection, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self.config = config
        self.connection = connection
        self._metrics = metrics
        self._tracer = tracer
        self._client = KubeClient(connection, observe=self._kube_request)
        self._count_request = metrics.kube_requests(urlsplit(connection.server).netloc)
        self._elector_client: KubeClient | None = None
        self._elector = self._candidate() if config.leader_elect else None
        self._registry = RegistryClient(
            config.registry,
            patience=Patience(total=config.registry_timeout, attempt=min(4.0, config.registry_timeout)),
            on_request=self._registry_request,
            client_certificate=_client_certificate(config),
        )
        self.engine = Engine(
            self._client,
            self._reconciler,
            settings=EngineSettings(
                workers=config.set_workers,
                lone_workers=config.hibernation_workers,
                resync_interval=config.resync_interval,
                namespace=config.watch_namespace,
            ),
            measures=metrics,
            elector=self._elector,
        )
        metrics.add(EngineCollector(self.engine))

    @classmethod
    async def open(cls, config: Config, env: Mapping[str, str], metrics: Metrics) -> Runtime:
        """Find the API server and the CRDs, then start the engine. Raises :class:`startup.StartError`."""
        tracer = open_tracer(config.trace_endpoint)
        connection = await connect(config.kubeconfig, env, crd_timeout=config.crd_timeout)
        runtime = cls(config, connection, metrics, tracer)
        runtime.engine.start()
        return runtime

    async def close(self) -> None:
        """Stop the engine gracefully, then close the clients."""
        await self.engine.stop()
        await self.close_clients()

    async def close_clients(self) -> None:
        """Close every session, and send the traces that are left."""
        await self._client.close()
        if self._elector_client is not None:
            await self._elector_client.close()
        await self._registry.close()
        if self._tracer is not None:
            await self._tracer.close()

    def _candidate(self) -> Elector:
        periods = Periods(self.config.lease_duration, self.config.renew_deadline, self.config.retry_period)
        patience = periods.renew_deadline / 2
        self._elector_client = KubeClient(
            self.connection, limits=RequestLimits(attempt=patience, budget=patience), observe=self._kube_request
        )
        namespace = self.connection.namespace or self.config.lease_namespace
        return Elector(self._elector_client, SystemClock(), namespace=namespace, periods=periods)

    def _kube_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        self._count_request(verb, resource, code, seconds)
        if self._tracer is not None:
            self._tracer.kube_request(verb, resource, code, seconds)

    def _registry_request(self, operation: str, code: int | str, seconds: float) -> None:
        self._metrics.registry_request(operation, code, seconds)
        if self._tracer is not None:
            self._tracer.registry_request(operation, code, seconds)

    def _reconciler(self, ports: Ports) -> Reconciler:
        registry: Registry = self._registry
        if self._elector is not None:
            registry = FencedRegistry(registry, self._elector.remaining)
        return _ObservedReconciler(
            self._metrics,
            self._tracer,
            cluster=ports.cluster,
            registry=LoggedRegistry(registry),
            recorder=ports.recorder,
            measures=self._metrics,
            claims=ports.claims,
            clock=ports.clock,
            tag_collection_timeout=self.config.tag_collection_timeout,
            limits=Limits(
                hibernate=timedelta(seconds=self.config.hibernate_timeout),
                wake=timedelta(seconds=self.config.wake_timeout),
            ),
        )


def _client_certificate(config: Config) -> ClientCertificate | None:
    if not config.registry_client_cert:
        return None
    return ClientCertificate(config.registry_client_cert, config.registry_client_key)


class _ObservedReconciler(Reconciler):
    """Traces each pass, and drops a set's series together with what is remembered of it."""

    def __init__(self, metrics: Metrics, tracer: Tracer | None, **settings: Any) -> None:
        super().__init__(**settings)
        self._metrics = metrics
        self._tracer = tracer

    @override
    async def reconcile(self, view: View) -> Outcome:
        if self._tracer is None:
            return await super().reconcile(view)
        with self._tracer.reconcile(view) as end:
            outcome = await super().reconcile(view)
            end(outcome)
        return outcome

    @override
    def forget(self, namespace: str, name: str) -> None:
        super().forget(namespace, name)
        self._metrics.forget(namespace, name)
