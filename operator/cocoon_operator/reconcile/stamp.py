"""The generation stamp of pods that no other patch of the pass carried (R4)."""

from __future__ import annotations

from cocoon_operator.api.errors import ConflictError, KubeError
from cocoon_operator.reconcile.run import Run


async def stamp(run: Run) -> None:
    """Stamp what is left, each pod on its own: one that vanished does not stop the others (W-52)."""
    for pod in run.live:
        try:
            await run.annotate(pod, {})
        except ConflictError as error:
            run.errors.append(error)
        except KubeError as error:
            run.fail(error)
