"""Temporary folders, their locks and ports leave nothing behind."""

from __future__ import annotations

import multiprocessing
import socket
import sys
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from cocoon_devkit.errors import ToolsError
from cocoon_devkit.filelock import exclusive
from cocoon_devkit.ports import LOOPBACK, free_ports, is_listening
from cocoon_devkit.process import Command, Lifetime, ManagedProcess
from cocoon_devkit.scratch import RECORDS, Scratch, stop_everything


def sleeper(records: Path) -> ManagedProcess:
    command = Command("sleeper", (sys.executable, "-c", "import time; time.sleep(60)"), records.parent / "log")
    return ManagedProcess(command, records, Lifetime.DETACHED)


def test_close_stops_processes_and_removes_the_folder(tmp_path: Path) -> None:
    with Scratch("it", tmp_path) as scratch:
        outer, inner = sleeper(scratch.path / RECORDS), sleeper(scratch.path / "registry" / RECORDS)
    assert (outer.alive, inner.alive) == (False, False)
    assert not scratch.path.exists()
    scratch.close()


def test_folders_of_the_living_are_spared_those_of_the_dead_swept(tmp_path: Path) -> None:
    dead = tmp_path / "it-dead"
    (dead / "etcd").mkdir(parents=True)
    (dead / "owner.lock").touch()
    orphan = sleeper(dead / RECORDS)
    with Scratch("it", tmp_path) as living, Scratch("it", tmp_path):
        assert living.path.exists()
        assert not dead.exists()
        assert not orphan.alive


def test_stop_everything_tells_whom_it_stopped(tmp_path: Path) -> None:
    process = sleeper(tmp_path / RECORDS)
    assert stop_everything(tmp_path) == [process.record]
    assert not process.alive


def test_free_ports_are_different_free_and_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(10_000 <= port < 32_768 for port in ports)
    with socket.socket() as listener:
        listener.bind((LOOPBACK, ports[0]))
        listener.listen()
        assert is_listening(ports[0])
    assert not is_listening(ports[0])


def _hold(path: Path, held: Event, release: Event) -> None:
    with exclusive(path, 5, print):
        held.set()
        release.wait(20)


def test_a_lock_is_waited_for_with_a_limit_and_a_word(tmp_path: Path) -> None:
    context, path, said = multiprocessing.get_context("spawn"), tmp_path / "lock", list[str]()
    held, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(path, held, release))
    holder.start()
    try:
        assert held.wait(20)
        with pytest.raises(ToolsError, match="Another process has held"), exclusive(path, 0.1, said.append):
            pass
        assert len(said) == 1
        release.set()
        with exclusive(path, 20, said.append):
            pass
    finally:
        release.set()
        holder.join(20)
    assert holder.exitcode == 0


def test_a_lock_goes_with_its_killed_holder(tmp_path: Path) -> None:
    context, path = multiprocessing.get_context("spawn"), tmp_path / "lock"
    held, never = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(path, held, never))
    holder.start()
    assert held.wait(20)
    holder.kill()
    holder.join(20)
    with exclusive(path, 1, print):
        pass
