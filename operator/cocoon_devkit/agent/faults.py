"""Faults that a test arms on a node (contract, section 6): fail, delay, or hold until released.

A point is a dotted name; a fault armed at ``registry`` also meets ``registry.get.manifest``. The points:

========================  =============================================================================================
``vm.boot``               run and clone of a VM (F-1); ``vm.boot.run``, ``vm.boot.clone``
``vm.remove``             removal of a VM (F-2)
``vm.inspect``            the engine's answer about a VM (F-4)
``vm.net``                dropping a guest's NIC before a hibernation
``snapshot.save``         a local save (F-5)
``snapshot.remove``       removal of a local snapshot
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
``ip``, ``probe``         no address, no answer to the readiness probe, while armed (F-18)
========================  =============================================================================================
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any


class FaultError(Exception):
    """An armed fault struck."""


@dataclass(slots=True)
class Fault:
    """One armed fault. ``delay`` is in real seconds; ``times`` None means until cleared; ``vm`` "" means any."""

    id: int
    point: str
    vm: str = ""
    fail: bool = True
    message: str = ""
    delay: float = 0.0
    hold: bool = False
    times: int | None = None
    hits: int = 0
    waiting: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, point: str, vm: str) -> bool:
        """Whether the fault is armed for this point and VM."""
        if self.vm not in ("", vm) or (self.times is not None and self.hits >= self.times):
            return False
        return point == self.point or point.startswith(self.point + ".")

    def view(self) -> dict[str, Any]:
        names = ("id", "point", "vm", "fail", "message", "delay", "hold", "times", "hits", "waiting")
        return {name: getattr(self, name) for name in names} | {"released": self.released.is_set()}


class Faults:
    """The faults armed on one node. They survive a restart of the agent: they belong to the test, not to the process."""

    def __init__(self) -> None:
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
        times: int | None = None,
    ) -> Fault:
        """Arm a fault. With ``hold`` the caller waits until :meth:`release`, then fails only if ``fail`` is set."""
        fault = Fault(self._next, point, vm, fail, message or f"fault {point}", delay, hold, times)
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
        """Whether a fault stands at a point that is a condition, not a call (``ip``, ``probe``); counts as no hit."""
        return any(fault.meets(point, vm) and not fault.released.is_set() for fault in self._armed.values())

    async def hit(self, point: str, vm: str = "") -> None:
        """Suffer what is armed at this point. Raises :class:`FaultError`."""
        for fault in [fault for fault in self._armed.values() if fault.meets(point, vm)]:
            fault.hits += 1
            await self._suffer(fault)

    async def _suffer(self, fault: Fault) -> None:
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.hold and not fault.released.is_set():
            fault.waiting += 1
            try:
                await fault.released.wait()
            finally:
                fault.waiting -= 1
        if fault.fail:
            raise FaultError(fault.message)
