"""A lock between processes that ends with its holder, waited for with a limit and a word."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cocoon_devkit.errors import ToolsError

_POLL_SECONDS = 0.5
_WORD_SECONDS = 15.0


@contextlib.contextmanager
def exclusive(path: Path, seconds: float, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock file ``path``. Raises ToolsError when somebody else still holds it after ``seconds``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as lock:
        started = time.monotonic()
        next_word = started
        while not _try(lock.fileno()):
            now = time.monotonic()
            if now - started > seconds:
                raise ToolsError(f"Another process has held {path} for {seconds / 60:.0f} minutes.")
            if now >= next_word:
                say(f"waiting for another process that holds {path} ({now - started:.0f} s)")
                next_word = now + _WORD_SECONDS
            time.sleep(_POLL_SECONDS)
        yield


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
