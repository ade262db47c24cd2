"""The lifecycle annotations: state, observed generation and message, always in one patch (R3.2, R3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cocoon_devkit.agent import podview, wire
from cocoon_devkit.agent.faults import FaultError, Faults
from cocoon_devkit.agent.informer import PodInformer
from cocoon_devkit.agent.kube import KubeStatusError
from cocoon_devkit.agent.podapi import PodApi
from cocoon_devkit.agent.settings import Windows
from cocoon_devkit.agent.tracked import Intent, Table, Tracked
from cocoon_devkit.agent.wire import Obj

_MESSAGE_LIMIT = 4096
_ATTEMPTS = 3


class Lifecycle:
    """Decides whether a state may replace the current intent, and gets the intent published."""

    def __init__(self, api: PodApi, table: Table, informer: PodInformer, faults: Faults, windows: Windows) -> None:
        self._api = api
        self._table = table
        self._informer = informer
        self._faults = faults
        self._windows = windows

    def seed(self, tracked: Tracked) -> None:
        """Take the intent from what the pod says, at a start (R3.3)."""
        state = podview.annotation(tracked.pod, wire.LIFECYCLE_STATE)
        if state:
            generation = podview.parse_int(podview.annotation(tracked.pod, wire.LIFECYCLE_GENERATION))
            message = podview.annotation(tracked.pod, wire.LIFECYCLE_MESSAGE)
            tracked.intent = Intent(state, generation, message, written=True)

    async def write(self, tracked: Tracked, pod: Obj, state: str, message: str = "") -> bool:
        """Make a state the intent, if the rules allow it, and publish it. Returns whether it became the intent.

        ``pod`` is the object at hand: its stamp counts if it is newer than the tracked copy's, and a write for another UID
        is dropped. A patch that fails is flushed later (R0.12).
        """
        await self._hold(state, tracked)
        if podview.uid_of(pod) != tracked.uid or not self._table.current(tracked):
            return False
        generation = max(podview.stamp(pod), podview.stamp(tracked.pod))
        if not allowed(tracked.intent, state, generation):
            return False
        tracked.intent = Intent(state, generation, message.encode()[:_MESSAGE_LIMIT].decode(errors="ignore"))
        await self.publish(tracked)
        return True

    async def echo_generation(self, tracked: Tracked, pod: Obj) -> None:
        """Republish the current state under a newer stamp; an unchanged generation writes nothing (R3.2)."""
        intent = tracked.intent
        if intent is None or podview.stamp(pod) <= intent.generation:
            return
        tracked.intent = Intent(intent.state, podview.stamp(pod), intent.message)
        await self.publish(tracked)

    async def publish(self, tracked: Tracked) -> None:
        """Write the intent; three attempts. An intent for a replaced pod is dropped."""
        intent = tracked.intent
        if intent is None:
            return
        lag = self._faults.active("lifecycle-lag", tracked.vm_name)
        changes: dict[str, str | None] = {
            wire.LIFECYCLE_STATE: intent.state,
            wire.LIFECYCLE_GENERATION: str(max(0, intent.generation - lag)),
            wire.LIFECYCLE_MESSAGE: intent.message or None,
        }
        version = await self.patch(tracked, changes)
        intent.written = version is not None
        intent.published_at = version or intent.published_at

    async def patch(self, tracked: Tracked, changes: Mapping[str, str | None]) -> int | None:
        """Patch annotations, three attempts; returns the new resourceVersion, or None when it did not get through.

        Never raises: a lost annotation does not fail the operation (R0.12).
        """
        tracked.remember(dict(changes))
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._windows.of(self._windows.patch_pause))
            try:
                answer = await self._api.annotate(tracked.pod, changes)
            except KubeStatusError as error:
                if error.replaced:
                    tracked.intent = None
                    return None
                continue
            return podview.version_of(answer)
        return None

    async def flush(self, tracked: Tracked) -> None:
        """Write what is unwritten, or what somebody else wrote over (N062); the 15 s loop calls it."""
        intent = tracked.intent
        if intent is None:
            return
        seen = self._informer.store.get(tracked.key)
        if seen is None or podview.uid_of(seen) != tracked.uid:
            return
        overwritten = podview.version_of(seen) >= intent.published_at and _published(seen) != (
            intent.state,
            str(intent.generation),
            intent.message,
        )
        if not intent.written or overwritten:
            await self.publish(tracked)

    async def _hold(self, state: str, tracked: Tracked) -> None:
        try:
            await self._faults.hit(f"lifecycle.{state}", tracked.vm_name)
        except FaultError:
            return


def allowed(intent: Intent | None, state: str, generation: int) -> bool:
    """Whether a state may replace the intent: never with a lower generation, and ``failed`` is sticky within one (R3.3)."""
    if intent is None:
        return True
    if generation < intent.generation:
        return False
    sticky = intent.state == wire.FAILED and generation == intent.generation
    return not sticky or state in {wire.CREATING, wire.HIBERNATING, wire.FAILED}


def _published(pod: Obj) -> tuple[str, str, str]:
    notes = podview.notes(pod)
    return (
        notes.get(wire.LIFECYCLE_STATE, ""),
        notes.get(wire.LIFECYCLE_GENERATION, ""),
        notes.get(wire.LIFECYCLE_MESSAGE, ""),
    )
