"""The generation stamp of pods that no other patch of the pass carried (R4)."""

from __future__ import annotations

from cocoon_operator.reconcile.apart import apart
from cocoon_operator.reconcile.run import Run


async def stamp(run: Run) -> None:
    """Stamp what is left, each pod on its own: one that vanished does not stop the others (W-52)."""
    for pod in run.live:
        with apart(run):
            await run.annotate(pod, {})
