"""Waiting for something that another task does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(happened: Callable[[], bool], seconds: float = 5.0) -> None:
    """Return as soon as it happened. Raises :class:`TimeoutError`."""
    async with asyncio.timeout(seconds):
        while not happened():  # noqa: ASYNC110 - what happens is not ours to signal
            await asyncio.sleep(0.005)
