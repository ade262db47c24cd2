"""Many small requests at once, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

LIMIT: Final = 8
"""Requests of one pass in flight (contract 4.10)."""

_T = TypeVar("_T")
_R = TypeVar("_R")


async def each(items: Iterable[_T], work: Callable[[_T], Awaitable[_R]]) -> list[_R]:
    """Do the work for every item, at most :data:`LIMIT` at once; the results are in the items' order."""
    gate = asyncio.Semaphore(LIMIT)

    async def bounded(item: _T) -> _R:
        async with gate:
            return await work(item)

    return list(await asyncio.gather(*map(bounded, items)))
