"""Fixtures of the registry client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from cocoon_operator.clients.registry import Patience, RegistryClient
from cocoon_operator.clients.registry.credentials import DockerKeychain
from cocoon_operator.clients.registry.tls import default_tls
from tests.unit.registry.fake_registry import FakeRegistry

TLS = default_tls()
QUICK = Patience(total=10, attempt=5, tries=3, first_wait=0.01, longest_wait=0.02)


@pytest_asyncio.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as fake:
        yield fake


@pytest_asyncio.fixture
async def connect(registry: FakeRegistry, tmp_path: Path) -> AsyncIterator[Callable[..., RegistryClient]]:
    """Make clients of the fake registry that are closed at the end; without credentials unless told."""
    async with AsyncExitStack() as stack:

        def make(**settings: Any) -> RegistryClient:
            env = {"HOME": str(tmp_path)}
            client = RegistryClient(
                **{
                    "address": registry.address,
                    "patience": QUICK,
                    "env": env,
                    "keychain": DockerKeychain(env),
                    "tls": TLS,
                    **settings,
                }
            )
            stack.push_async_callback(client.close)
            return client

        yield make
