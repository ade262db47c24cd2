"""The readiness probe: the VM is known, it has an address, it answers (R1.26). Here it answers unless a fault says no."""

from __future__ import annotations

import asyncio
import time

from cocoon_devkit.agent.engine import Engine
from cocoon_devkit.agent.faults import Faults
from cocoon_devkit.agent.podstatus import PodStatuses
from cocoon_devkit.agent.settings import NodeSettings
from cocoon_devkit.agent.tracked import Table, Tracked

_FAILURES_TO_FLIP = 3


class Probes:
    """One probe per tracked VM: quickly until it is ready, then every 5 s; three failures in a row flip it back."""

    def __init__(
        self, engine: Engine, faults: Faults, table: Table, statuses: PodStatuses, settings: NodeSettings
    ) -> None:
        self._engine = engine
        self._faults = faults
        self._table = table
        self._statuses = statuses
        self._speeds = settings.speeds
        self._windows = settings.windows

    def address(self, tracked: Tracked) -> str:
        """Return the VM's address: a static pod's own, else its lease; "" while there is none (fault ``ip``)."""
        if not tracked.request.managed:
            return tracked.ip
        vm = self._engine.by_name(tracked.vm_name)
        if vm is None or not vm.nic or self._faults.active("ip", tracked.vm_name):
            return ""
        return vm.ip

    def once(self, tracked: Tracked) -> bool:
        """Probe now. A VM that is paused for a save does not answer (N136)."""
        if self._faults.strikes("probe", tracked.vm_name) or not self.address(tracked):
            return False
        if self._engine.paused(tracked.vm_name):
            return False
        vm = self._engine.by_name(tracked.vm_name)
        return vm is None or time.time() - vm.resumed_at >= self._speeds.probe

    async def follow(self, tracked: Tracked) -> None:
        """Probe for as long as the VM is tracked; a change is reported at once."""
        failures = 0
        pause = self._windows.probe_first
        vm_id = tracked.vm_id
        while tracked.vm_id == vm_id and self._table.current(tracked):
            await asyncio.sleep(self._windows.of(self._windows.probe_steady if tracked.probe_ok else pause))
            if tracked.vm_id != vm_id or not self._table.current(tracked):
                return
            pause = min(pause * 1.5, self._windows.probe_max)
            good = self.once(tracked)
            failures = 0 if good else failures + 1
            if good == tracked.probe_ok or (not good and failures < _FAILURES_TO_FLIP):
                continue
            tracked.probe_ok = good
            pause = self._windows.probe_first
            await self._statuses.push(tracked)
