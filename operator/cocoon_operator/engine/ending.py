"""Ending tasks for sure: one request to cancel can get lost in a task whose own time was over in the same moment.

aiohttp, for one, then tells of a timeout instead (seen with 3.14: its timer is left twice by one request). The moment is no
coincidence here: requests end with the Lease, and so does everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import structlog

log = structlog.get_logger(__name__)

_ASK_AGAIN: Final = 0.1
_TIMES: Final = 50


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end, with whatever result; ask again while they go on, for five seconds."""
    pending = set(tasks)
    for _ in range(_TIMES):
        if not pending:
            return
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_ASK_AGAIN)
        # Looked at, so that asyncio does not complain about results that nobody wants.
        await asyncio.gather(*done, return_exceptions=True)
    log.error("tasks do not end", names=sorted(task.get_name() for task in pending))
