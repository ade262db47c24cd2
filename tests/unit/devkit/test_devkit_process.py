"""Processes of the devkit end when they should, whatever they do about it."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from cocoon_devkit import process as process_module
from cocoon_devkit.errors import ProcessFailedError
from cocoon_devkit.process import (
    Command,
    Lifetime,
    ManagedProcess,
    ProcessRecord,
    clean_environment,
    read_records,
    stop_recorded,
)

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
BUSY = "import time; print('ready', flush=True)\nfor n in range(60_000): print(n, flush=True); time.sleep(0.001)"
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
print("child", child.pid, flush=True)
{SLEEP}
"""
BOTH = pytest.mark.parametrize("lifetime", list(Lifetime))


def start(folder: Path, script: str, lifetime: Lifetime = Lifetime.BOUND, *, lines: int = 1) -> ManagedProcess:
    command = Command(name="it", argv=(sys.executable, "-c", script), log=folder / "logs" / "it.log")
    process = ManagedProcess(command, folder / "pids", lifetime)
    process.wait_ready(lambda: command.log.read_text().count("ready") == lines, 10)
    return process


@BOTH
def test_stop_ends_it_and_forgets_its_record(tmp_path: Path, lifetime: Lifetime) -> None:
    process = start(tmp_path, SLEEP, lifetime)
    assert process.alive
    assert read_records(tmp_path / "pids") == [process.record]
    process.stop()
    assert process.exit_code == -signal.SIGTERM
    assert not process.record.alive
    assert read_records(tmp_path / "pids") == []
    process.stop()


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    process = start(tmp_path, DEAF)
    process.stop(grace=0.2)
    assert process.exit_code == -signal.SIGKILL


def test_stop_ends_what_is_paused(tmp_path: Path) -> None:
    process = start(tmp_path, SLEEP)
    process.pause()
    process.stop()
    assert process.exit_code == -signal.SIGTERM


def test_a_paused_process_stands_still_when_pause_returns_each_time(tmp_path: Path) -> None:
    process = start(tmp_path, BUSY)
    for _ in range(3):
        process.pause()
        said = process.log_tail()
        time.sleep(0.1)
        assert process.log_tail() == said
        process.resume()
        process.wait_ready(lambda said=said: process.log_tail() != said, 10)  # type: ignore[misc]
    process.stop()


def test_stop_takes_the_whole_group(tmp_path: Path) -> None:
    process = start(tmp_path, PARENT, lines=2)
    child = int(re.findall(r"child (\d+)", process.log_tail())[0])
    record = ProcessRecord(name="child", pid=child, born=process_module._birth(child) or "")
    assert record.alive
    process.stop()
    assert process_module._wait_until(lambda: not record.alive, 5)


def test_kill_is_a_crash(tmp_path: Path) -> None:
    process = start(tmp_path, SLEEP)
    process.kill()
    assert process.exit_code == -signal.SIGKILL
    assert read_records(tmp_path / "pids") == []


def test_others_stop_it_by_its_record(tmp_path: Path) -> None:
    process = start(tmp_path, SLEEP, Lifetime.DETACHED)
    assert stop_recorded(tmp_path / "pids") == [process.record]
    assert process.wait(5) == -signal.SIGTERM
    assert stop_recorded(tmp_path / "pids") == []


def test_a_record_of_another_process_with_that_number_is_dead(tmp_path: Path) -> None:
    process = start(tmp_path, SLEEP)
    stale = ProcessRecord(name="it", pid=process.pid, born="long ago")
    assert not stale.alive
    stale.stop()
    assert process.alive
    process.stop()


def test_a_process_that_ends_early_shows_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailedError, match=r"(?s)it ended with code 3 before it was ready.*no such disk"):
        start(tmp_path, "import sys; print('no such disk'); sys.exit(3)")


def test_a_process_that_is_never_ready_shows_its_last_words(tmp_path: Path) -> None:
    process = start(tmp_path, SLEEP)
    with pytest.raises(ProcessFailedError, match=r"(?s)is not ready after 0 seconds.*ready"):
        process.wait_ready(lambda: False, 0.1)
    with pytest.raises(ProcessFailedError, match="still runs after 0 seconds"):
        process.wait(0.1)
    process.stop()


def test_servers_do_not_see_the_settings_of_the_caller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:1")
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    assert clean_environment(tmp_path, MORE="1").keys() == {"PATH", "HOME", "TMPDIR", "LC_ALL", "MORE"}
