"""Faults that a test arms on a node (contract, section 6): fail, delay, hold until released, or kill the agent.

A point is a dotted name; a fault armed at ``registry`` also meets ``registry.get.manifest``. Calls that a fault meets:

========================  =============================================================================================
``vm.boot``               run and clone of a VM (F-1); ``vm.boot.run``, ``vm.boot.clone``
``vm.remove``             removal of a VM (F-2)
``vm.inspect``            the engine's answer about a VM (F-4)
``vm.net``                dropping a guest's NIC before a hibernation
``snapshot.save``         a local save (F-5)
``snapshot.remove``       removal of a local snapshot
``storage``               measuring the disk for the Node's allocatable storage (R1.9)
``push``                  an upload: ``push.blob``, ``push.config``, ``push.manifest``; ``push.report`` fails after success (F-6)
``pull``                  a download of a snapshot (F-7)
``registry``              every request to the registry: ``registry.<method>.<manifest or blob>`` (F-8)
``patch.annotations``     annotation patches of pods: ``.runtime`` (id, ip), ``.lifecycle``, ``.other`` (F-11)
``patch.status``          status patches of pods (F-11)
``pod.delete``            the agent's own deletes of pods from the API
``postclone``             guest work after a clone of Windows or firecracker (R2.17)
``lease.release``         giving a removed VM's DHCP leases back
``delete``                the agent's delete work, before anything happens (F-21)
``lifecycle.<state>``     before a lifecycle state is written (F-19)
========================  =============================================================================================

Conditions, which hold while a fault is armed at them:

==============================  =======================================================================================
``ip``                          no address (F-18)
``probe``                       no answer to the readiness probe (F-18); ``times`` counts probes
``delete-race``                 a pod vanishes from the API before the agent's delete work instead of after it (F-21)
``lifecycle-lag``               states are published with the generation before theirs (F-19)
``order.hibernated-first``      ``hibernated`` is said before the push (F-20)
``order.id-first``              ``id`` is published before the VM is made (F-20)
``order.running-first``         the status says Running before ``id`` is published (F-20)
==============================  =======================================================================================
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class FaultError(Exception):
    """An armed fault struck; ``status`` is the HTTP status that it plays, 0 for no answer at all."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Fault:
    """One armed fault. ``vm`` "" means any; ``times`` and ``seconds`` (real ones) None mean until it is cleared.

    ``delay`` is in real seconds. ``status`` is what the API server seems to answer where the point is a write to it (F-11: 409
    is a conflict). With ``kill`` the agent is killed when it comes to the point, as by SIGKILL (F-15).
    """

    id: int
    point: str
    vm: str = ""
    fail: bool = True
    message: str = ""
    delay: float = 0.0
    hold: bool = False
    kill: bool = False
    status: int = 0
    times: int | None = None
    seconds: float | None = None
    hits: int = 0
    waiting: int = 0
    armed_at: float = field(default_factory=time.monotonic)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, point: str, vm: str) -> bool:
        """Whether the fault is armed for this point and VM."""
        if self.vm not in ("", vm) or (self.times is not None and self.hits >= self.times):
            return False
        if self.seconds is not None and time.monotonic() - self.armed_at > self.seconds:
            return False
        return point == self.point or point.startswith(self.point + ".")

    def view(self) -> dict[str, Any]:
        settings = ("id", "point", "vm", "fail", "message", "delay", "hold", "kill", "status", "times", "seconds")
        names = (*settings, "hits", "waiting")
        return {name: getattr(self, name) for name in names} | {"released": self.released.is_set()}


class Faults:
    """The faults armed on one node. They survive a restart of the agent: they belong to the test, not to the process.

    ``on_kill`` is called when somebody comes to a point that kills.
    """

    def __init__(self) -> None:
        self.on_kill: Callable[[], None] = lambda: None
        self._armed: dict[int, Fault] = {}
        self._next = 1

    def arm(
        self,
        point: str,
        *,
        vm: str = "",
        fail: bool = True,
        message: str = "",
        delay: float = 0.0,
        hold: bool = False,
        kill: bool = False,
        status: int = 0,
        times: int | None = None,
        seconds: float | None = None,
    ) -> Fault:
        """Arm a fault. With ``hold`` the caller waits until :meth:`release`, then fails only if ``fail`` is set."""
        text = message or f"fault {point}"
        fault = Fault(self._next, point, vm, fail, text, delay, hold, kill, status, times, seconds)
        self._armed[fault.id] = fault
        self._next += 1
        return fault

    def view(self) -> list[dict[str, Any]]:
        return [fault.view() for fault in self._armed.values()]

    def get(self, fault_id: int) -> Fault | None:
        return self._armed.get(fault_id)

    def release(self, fault_id: int) -> bool:
        """Open a barrier, and let nobody wait at it any more. False when there is no such fault."""
        fault = self._armed.get(fault_id)
        if fault is None:
            return False
        fault.released.set()
        return True

    def clear(self, fault_id: int | None = None) -> None:
        """Disarm one fault, or all; whoever waits at a cleared barrier goes on."""
        gone = [fault_id] if fault_id is not None else list(self._armed)
        for each in gone:
            fault = self._armed.pop(each, None)
            if fault is not None:
                fault.released.set()

    def active(self, point: str, vm: str = "") -> bool:
        """Whether a fault stands at a condition; counts as no hit."""
        return bool(self._standing(point, vm))

    def strikes(self, point: str, vm: str = "") -> bool:
        """Whether a fault stands at a condition that is looked at a countable number of times; counts as a hit."""
        standing = self._standing(point, vm)
        for fault in standing:
            fault.hits += 1
        return bool(standing)

    def _standing(self, point: str, vm: str) -> list[Fault]:
        return [fault for fault in self._armed.values() if fault.meets(point, vm) and not fault.released.is_set()]

    async def hit(self, point: str, vm: str = "") -> None:
        """Suffer what is armed at this point. Raises :class:`FaultError`."""
        for fault in [fault for fault in self._armed.values() if fault.meets(point, vm)]:
            fault.hits += 1
            await self._suffer(fault)

    async def _suffer(self, fault: Fault) -> None:
        if fault.kill and not fault.released.is_set():
            self.on_kill()
            # What comes after this never happens: the death of the agent ends the caller.
            await fault.released.wait()
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.hold and not fault.released.is_set():
            fault.waiting += 1
            try:
                await fault.released.wait()
            finally:
                fault.waiting -= 1
        if fault.fail:
            raise FaultError(fault.message, fault.status)
