"""How long the machines run: the same short histories in every test run, many new ones in ``make soak``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def effort(examples: int, steps: int) -> settings:
    """Settings for a machine; ``COCOON_SOAK`` multiplies the examples, which are then drawn anew each time."""
    times = int(os.environ.get("COCOON_SOAK", "1"))
    return settings(
        max_examples=examples * times,
        stateful_step_count=steps,
        deadline=None,
        derandomize=times == 1,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
