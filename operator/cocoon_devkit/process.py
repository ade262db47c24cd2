"""One child process with a name, a log file, a record on disk and a bounded end."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cocoon_devkit.errors import ProcessFailedError

STOP_GRACE = 10.0
KILL_GRACE = 5.0
POLL_INTERVAL = 0.05
LOG_TAIL_LINES = 25
_BOUND = Path(__file__).with_name("bound.py")


class Lifetime(enum.Enum):
    """How long a process lives."""

    BOUND = "bound"
    """Until its starter ends, however that happens (the starter's *thread*, to be exact: start from the main one)."""

    DETACHED = "detached"
    """Until somebody stops it by its record."""


class ProcessRecord(msgspec.Struct, frozen=True):
    """What is needed to find a process again and be sure that it is the same one."""

    name: str
    pid: int
    born: str

    @property
    def alive(self) -> bool:
        return _birth(self.pid) == self.born

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its group; nothing happens when it is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def stop(self, grace: float = STOP_GRACE) -> None:
        """SIGTERM, up to ``grace`` seconds of patience, then SIGKILL for the whole group.

        Raises ProcessFailedError when the process survives even that.
        """
        if not self.alive:
            return
        # A stopped (SIGSTOP) process could not act on SIGTERM.
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if not _wait_until(lambda: not self.alive, grace):
            self.signal(signal.SIGKILL)
            if not _wait_until(lambda: not self.alive, KILL_GRACE):
                raise ProcessFailedError(f"{self.name} (pid {self.pid}) survives SIGKILL")
        # Its own children, if it left any: the group keeps the number from being used again while they live.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Command:
    """What to run, and where its output goes."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] | None = None
    cwd: Path | None = None


class ManagedProcess:
    """A running ``Command``. Its record lies in ``records`` until it is stopped, so that others can stop it too."""

    def __init__(self, command: Command, records: Path, lifetime: Lifetime = Lifetime.BOUND) -> None:
        self.command = command
        self._record_file = records / f"{command.name}.json"
        self._popen = _spawn(command, lifetime)
        born = _birth(self._popen.pid) or "ended"
        self.record = ProcessRecord(name=command.name, pid=self._popen.pid, born=born)
        records.mkdir(parents=True, exist_ok=True)
        self._record_file.write_bytes(msgspec.json.encode(self.record))

    @property
    def name(self) -> str:
        return self.command.name

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative numbers are signals, as in ``subprocess``."""
        return self._popen.poll()

    def wait_ready(self, probe: Callable[[], bool], seconds: float) -> None:
        """Ask ``probe`` until it says True. Raises ProcessFailedError when the process ends or time is up."""
        deadline = time.monotonic() + seconds
        while not probe():
            if not self.alive:
                raise self._failure(f"ended with code {self.exit_code} before it was ready")
            if time.monotonic() > deadline:
                raise self._failure(f"is not ready after {seconds:.0f} seconds")
            time.sleep(POLL_INTERVAL)

    def wait(self, seconds: float) -> int:
        """The exit code, once it ends by itself. Raises ProcessFailedError when time is up."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._failure(f"still runs after {seconds:.0f} seconds") from None

    def pause(self) -> None:
        """SIGSTOP: it holds its ports and connections but answers nothing, as on a hung machine.

        Returns once all its threads stand still. Raises ProcessFailedError when they do not.
        """
        self.record.signal(signal.SIGSTOP)
        if not _wait_until(self._stands_still, KILL_GRACE):
            raise self._failure("does not stand still")

    def resume(self) -> None:
        """SIGCONT after ``pause``."""
        self.record.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as a crash: no time to say goodbye."""
        self.record.signal(signal.SIGKILL)
        self._popen.wait(KILL_GRACE)
        self._forget()

    def stop(self, grace: float = STOP_GRACE) -> None:
        """End it, politely first; nothing happens when it has ended already."""
        self.record.stop(grace)
        self._popen.wait(KILL_GRACE)
        self._forget()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        return tail(self.command.log, lines)

    def _stands_still(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

    def _forget(self) -> None:
        self._record_file.unlink(missing_ok=True)

    def _failure(self, what: str) -> ProcessFailedError:
        return ProcessFailedError(f"{self.name} {what}. The end of {self.command.log}:\n{self.log_tail()}")


def read_records(folder: Path) -> list[ProcessRecord]:
    """The processes that were started with this folder and not stopped, youngest first."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    return [msgspec.json.decode(file.read_bytes(), type=ProcessRecord) for file in files]


def stop_recorded(folder: Path, grace: float = STOP_GRACE) -> list[ProcessRecord]:
    """Stop what ``read_records`` finds, youngest first, and forget it. Returns those that were alive."""
    stopped = []
    for record in read_records(folder):
        if record.alive:
            record.stop(grace)
            stopped.append(record)
        (folder / f"{record.name}.json").unlink(missing_ok=True)
    return stopped


def tail(log: Path, lines: int) -> str:
    """The last lines of a text file, or a word about why there are none."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) or "(empty)"
    except OSError as error:
        return f"({error.strerror})"


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """An environment without the caller's proxies, kubeconfig or settings, so that servers act the same everywhere.

    Temporary files go to ``home`` as well: a server that is killed cannot remove them itself.
    """
    own = {"HOME": str(home), "TMPDIR": str(home)}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **own, **extra}


def _spawn(command: Command, lifetime: Lifetime) -> subprocess.Popen[bytes]:
    argv = list(command.argv)
    if lifetime is Lifetime.BOUND:
        argv = [sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *argv]
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with command.log.open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=None if command.env is None else dict(command.env),
            cwd=command.cwd,
            start_new_session=True,
        )


def _wait_until(done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL)
    return True


def _birth(pid: int) -> str | None:
    """When the process was born, as the system writes it; None when it is gone or a zombie."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, born = answer.stdout.strip().partition(" ")
    return born.strip() if born and not state.startswith("Z") else None
