"""The failure of one part does not stop the others (design 3, W-50)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cocoon_operator.api.errors import ConflictError, KubeError
from cocoon_operator.reconcile.run import Run


@contextmanager
def apart(run: Run) -> Iterator[None]:
    """Remember an error of the API server instead of raising it: the key is retried with back-off.

    A view that was behind is tried again and not worth a word in the status; anything else is said there.
    """
    try:
        yield
    except ConflictError as error:
        run.errors.append(error)
    except KubeError as error:
        run.fail(error)
