"""The agent's own retry of a failed hibernation or wake: after 15 s, doubling to 5 min (R3.7)."""

from __future__ import annotations

import asyncio

from cocoon_devkit.agent import podview
from cocoon_devkit.agent.context import Context
from cocoon_devkit.agent.tracked import Tracked


def later(context: Context, tracked: Tracked) -> None:
    """Try again after the next pause; an update with other inputs before that restarts the attempt at once."""
    windows = context.windows
    tracked.retry_pause = (
        min(tracked.retry_pause * 2, windows.retry_max) if tracked.retry_pause else windows.retry_first
    )
    tracked.retry_inputs = podview.inputs(tracked.pod)
    context.background(tracked, "retry", _again(context, tracked, windows.of(tracked.retry_pause)))


def waits_for(tracked: Tracked) -> bool:
    """Whether a retry waits, and the pod asks for nothing else than it did at the failed attempt."""
    return tracked.retry_inputs is not None and tracked.retry_inputs == podview.inputs(tracked.pod)


def settle(tracked: Tracked) -> None:
    """The attempt succeeded, or nobody wants it any more."""
    tracked.retry_pause = 0.0
    tracked.retry_inputs = None
    tracked.stop("retry")


async def _again(context: Context, tracked: Tracked, pause: float) -> None:
    from cocoon_devkit.agent.update import dispatch  # noqa: PLC0415  (dispatch arms retries: the circle is the mechanism)

    await asyncio.sleep(pause)
    async with tracked.work:
        if context.table.current(tracked) and not tracked.deleting:
            tracked.retry_inputs = None
            await dispatch(context, tracked)
