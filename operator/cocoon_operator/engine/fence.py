"""What stands between the decisions and the registry while several replicas wait for one Lease (I9).

Writes to the Kubernetes API have the same fence in their client. A question is never fenced: it changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cocoon_operator.api.answers import Answer, Unknown, WriteAnswer
from cocoon_operator.reconcile.ports import Registry

Write = Callable[[], Coroutine[Any, Any, WriteAnswer]]


class FencedRegistry:
    """A registry that is written to only while ``remaining()``, in seconds, is positive, and for that long at most.

    Implements :class:`cocoon_operator.reconcile.ports.Registry`. A process that was paused in the middle of a pass finds the
    fence closed, or the time of a write that it had begun over: whatever it knew is of before the pause, and another replica
    may have put the VM to sleep since.
    """

    def __init__(self, registry: Registry, remaining: Callable[[], float]) -> None:
        self._registry = registry
        self._remaining = remaining

    async def probe(self, vm_name: str, reference: str) -> Answer:
        """Ask whether a manifest exists."""
        return await self._registry.probe(vm_name, reference)

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        """As :meth:`probe`, and tell what it was made from."""
        return await self._registry.inspect(vm_name, reference)

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        """Untag, if this process leads."""
        return await self._while_leading(f"drop of {vm_name}:{tag}", lambda: self._registry.drop(vm_name, tag))

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        """Put a manifest under another tag, if this process leads."""
        return await self._while_leading(f"copy to {vm_name}:{tag}", lambda: self._registry.copy(vm_name, source, tag))

    async def _while_leading(self, what: str, write: Write) -> WriteAnswer:
        left = self._remaining()
        if left <= 0:
            return Unknown(f"not the leader: the {what} was not sent")
        try:
            async with asyncio.timeout(left):
                return await write()
        except TimeoutError:
            return Unknown(f"the Lease ended in the middle of the {what}")
