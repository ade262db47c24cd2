"""What is done to tags, line by line. Operators alert on the error lines: a tag that could not be dropped (contract 7.3)."""

from __future__ import annotations

import structlog

from cocoon_operator.api.answers import Answer, Done, Unknown, WriteAnswer
from cocoon_operator.reconcile.ports import Registry

log = structlog.get_logger(__name__)


class LoggedRegistry:
    """A registry whose writes are logged, and the questions that it did not answer.

    Implements :class:`cocoon_operator.reconcile.ports.Registry`.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def probe(self, vm_name: str, reference: str) -> Answer:
        """Ask whether a manifest exists."""
        return _told(vm_name, reference, await self._registry.probe(vm_name, reference))

    async def inspect(self, vm_name: str, reference: str) -> Answer:
        """As :meth:`probe`, and tell what it was made from."""
        return _told(vm_name, reference, await self._registry.inspect(vm_name, reference))

    async def drop(self, vm_name: str, tag: str) -> WriteAnswer:
        """Untag."""
        answer = await self._registry.drop(vm_name, tag)
        if isinstance(answer, Done):
            log.info("tag dropped", vm=vm_name, tag=tag)
        else:
            log.error("tag not dropped", vm=vm_name, tag=tag, reason=answer.reason)
        return answer

    async def copy(self, vm_name: str, source: str, tag: str) -> WriteAnswer:
        """Put a manifest under another tag."""
        answer = await self._registry.copy(vm_name, source, tag)
        if isinstance(answer, Done):
            log.info("tag put", vm=vm_name, tag=tag, source=source)
        else:
            log.warning("tag not put", vm=vm_name, tag=tag, source=source, reason=answer.reason)
        return answer


def _told(vm_name: str, reference: str, answer: Answer) -> Answer:
    if isinstance(answer, Unknown):
        log.info("the registry did not answer", vm=vm_name, tag=reference, reason=answer.reason)
    return answer
