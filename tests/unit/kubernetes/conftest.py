"""A client against an API server of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from cocoon_operator.clients.kubernetes.client import KubeClient, Limits
from cocoon_operator.clients.kubernetes.connection import Connection
from tests.unit.kubernetes.kube_api_server import KubeApiServer


@pytest_asyncio.fixture
async def api() -> AsyncIterator[KubeApiServer]:
    async with KubeApiServer().serve() as server:
        yield server


@pytest_asyncio.fixture
async def client(api: KubeApiServer) -> AsyncIterator[KubeClient]:
    kube = KubeClient(Connection(api.url, "a test"), limits=Limits(attempt=0.5, budget=2.0, silence=0.5, page=2))
    yield kube
    await kube.close()
