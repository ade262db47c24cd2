"""What must be there before the operator starts: an API server that serves both kinds (Kopf would wait in silence)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import structlog

from cocoon_operator.api import keys
from cocoon_operator.api.errors import KubeError, NotFoundError
from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection, ConnectionSetupError, find_connection
from cocoon_operator.clients.kubernetes.resources import SETS

log = structlog.get_logger(__name__)

_KINDS: Final = frozenset({keys.PLURAL_SETS, keys.PLURAL_HIBERNATIONS})
_PATIENCE: Final = Limits(attempt=5.0, budget=10.0)


class StartError(Exception):
    """The operator cannot start; the message is one sentence that says what to do."""


async def connect(kubeconfig: str, env: Mapping[str, str], *, crd_timeout: float) -> Connection:
    """Find the API server and wait until it serves both kinds, ``crd_timeout`` seconds at most.

    Raises :class:`StartError`.
    """
    try:
        connection = await find_connection(kubeconfig, env=env)
        connection.ssl_context()
    except ConnectionSetupError as error:
        raise StartError(f"no way to the API server: {error}") from error
    client = KubeClient(connection, limits=_PATIENCE)
    try:
        await _greet(client)
        await _wait_for_kinds(client, crd_timeout)
    finally:
        await client.close()
    return connection


async def _greet(client: KubeClient) -> None:
    connection = client.connection
    try:
        version = await client.get_path("/version")
    except KubeError as error:
        raise StartError(
            f"the API server {connection.server} ({connection.source}) does not answer: {error};"
            " check that it runs and that KUBECONFIG or --kubeconfig names the right cluster"
        ) from error
    log.info("connected", server=connection.server, source=connection.source, version=version.get("gitVersion"))


async def _wait_for_kinds(client: KubeClient, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while missing := _KINDS - await _served(client):
        if time.monotonic() >= deadline:
            names = " and ".join(f"{name}.{keys.GROUP}" for name in sorted(missing))
            raise StartError(f"the API server does not serve {names}: install the CRDs first (kubectl apply -f crds/)")
        log.info("waiting for the CRDs", missing=sorted(missing))
        await asyncio.sleep(1.0)


async def _served(client: KubeClient) -> frozenset[str]:
    try:
        document = await client.get_path(SETS.root)
    except NotFoundError:
        return frozenset()
    except KubeError as error:
        raise StartError(f"the API server does not tell what it serves: {error}") from error
    return frozenset(str(resource.get("name")) for resource in document.get("resources") or ())
