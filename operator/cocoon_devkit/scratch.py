"""Temporary folders that go with their owner, also when the owner is killed.

A folder is locked while its owner lives; the kernel drops the lock with the process. Whoever makes the next folder
sweeps the unlocked ones: it stops the processes recorded there and removes the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from cocoon_devkit.process import ProcessRecord, stop_recorded

RECORDS = "pids"
_OWNER = "owner.lock"


class Scratch:
    """A fresh folder, removed by ``close()`` (after its processes were stopped)."""

    def __init__(self, label: str, base: Path | None = None) -> None:
        base = base or Path(tempfile.gettempdir()) / f"cocoon-devkit-{os.getuid()}"
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(base / "sweep.lock"):
            _sweep(base)
            self.path = Path(tempfile.mkdtemp(prefix=f"{label}-", dir=base))
            self._lock = (self.path / _OWNER).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Stop what is recorded, remove the folder; a second call does nothing."""
        if self._lock.closed:
            return
        stop_everything(self.path)
        # Not beside a sweep: the lock file goes early, and the sweep would take the rest for abandoned.
        with _locked(self.path.parent / "sweep.lock"):
            shutil.rmtree(self.path)
        self._lock.close()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def record_folders(folder: Path) -> list[Path]:
    """Where processes of a folder are recorded: in itself and in the folders right under it."""
    return [folder / RECORDS, *(inner / RECORDS for inner in folder.iterdir() if inner.is_dir())]


def stop_everything(folder: Path) -> list[ProcessRecord]:
    """Stop every process recorded in a folder. Returns those that were alive."""
    return [record for records in record_folders(folder) for record in stop_recorded(records)]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(base: Path) -> None:
    for folder in base.iterdir():
        owner = folder / _OWNER
        if folder.is_dir() and not _is_owned(owner):
            stop_everything(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _is_owned(owner: Path) -> bool:
    try:
        with owner.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
