"""Kopf's part: it watches the two kinds and tells the engine. Nothing here decides, writes, or can fail.

``kopf run -m cocoon_operator.handlers -A`` starts the operator for development: this module registers itself with Kopf's
default registry. ``cocoon-operator run`` registers the same handlers with a registry of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, Final

import kopf
import structlog

from cocoon_operator import kopf_settings, logs
from cocoon_operator.api import keys
from cocoon_operator.config import Config, ConfigError, effective, load
from cocoon_operator.metrics import Metrics
from cocoon_operator.runtime import Runtime
from cocoon_operator.startup import StartError
from cocoon_operator.version import version

log = structlog.get_logger(__name__)

_KINDS: Final = (keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS)


def register(registry: kopf.OperatorRegistry, runtime: Callable[[], Runtime]) -> None:
    """Register the login and the event handlers; ``runtime`` gives the parts once they are there."""

    @kopf.on.login(registry=registry, id="login")
    async def login(**_: Any) -> kopf.AiohttpSession:
        """Give Kopf a session that renews our token and that it may close; after a 401 it asks for another."""
        connection = runtime().connection
        return kopf.AiohttpSession(server=connection.server, aiohttp_session=connection.open_session(limit=0))

    async def changed(event: dict[str, Any], resource: kopf.Resource, **_: Any) -> None:
        """Hand an object to the engine, which knows whether anything of it matters."""
        try:
            runtime().engine.see(resource.plural, event["type"], dict(event["object"]))
        except Exception:
            # Kopf would drop the error and the event alike; the resync finds the object again.
            log.exception("an event could not be read", resource=resource.plural)

    for plural in _KINDS:
        kopf.on.event(keys.GROUP, keys.VERSION, plural, registry=registry)(changed)  # type: ignore[arg-type]


class _UnderKopf:
    """The life of a runtime under ``kopf run``: begun by its startup activity, ended by its cleanup."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None

    def get(self) -> Runtime:
        assert self._runtime is not None, "kopf calls no handler before startup"
        return self._runtime

    async def startup(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        logs.configure_beside_kopf()
        kopf_settings.configure(settings)
        try:
            config = load({}, os.environ)
            log.info("starting", version=version(), **effective(config))
            _check_scope(config, clusterwide=settings.peering.clusterwide)
            self._runtime = await Runtime.open(config, os.environ, Metrics(version()))
        except (ConfigError, StartError) as error:
            raise kopf.PermanentError(str(error)) from None
        self._runtime.engine.ended.add_done_callback(_end_process)

    async def cleanup(self, **_: Any) -> None:
        if self._runtime is not None:
            await self._runtime.close()


def _check_scope(config: Config, *, clusterwide: bool) -> None:
    if not clusterwide and config.watch_namespace is None:
        raise ConfigError("run kopf with -A, or with -n <namespace> and WATCH_NAMESPACE=<namespace>")


def _end_process(ended: Any) -> None:
    if ended.cancelled() or ended.exception() is None:
        return
    log.error("stopping", reason=str(ended.exception()))
    signal.raise_signal(signal.SIGTERM)


def _register_with_kopf_run() -> None:
    under_kopf = _UnderKopf()
    registry = kopf.get_default_registry()
    kopf.on.startup(registry=registry, id="startup")(under_kopf.startup)
    kopf.on.cleanup(registry=registry, id="cleanup")(under_kopf.cleanup)
    register(registry, under_kopf.get)


_register_with_kopf_run()
