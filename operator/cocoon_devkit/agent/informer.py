"""The pods of one node: one list, one watch, replace semantics after a relist (R1.15)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from cocoon_devkit.agent import podview
from cocoon_devkit.agent.kube import Kube, KubeStatusError
from cocoon_devkit.agent.wire import Obj

_PATH: Final = "/api/v1/pods"
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_REMEMBERED: Final = 32

Handler = Callable[[Obj | None, Obj | None], None]


class PodInformer:
    """Keeps ``store`` (``namespace/name`` -> pod) and calls ``handler(old, new)`` for every change; a deletion has no new."""

    def __init__(self, kube: Kube, node: str, handler: Handler) -> None:
        self._kube = kube
        self._selector = {"fieldSelector": f"spec.nodeName={node}"}
        self._handler = handler
        self._version = ""
        self._task: asyncio.Task[None] | None = None
        self._running = asyncio.Event()
        self._running.set()
        self.store: dict[str, Obj] = {}
        self._history: dict[str, deque[Obj]] = {}

    async def list(self) -> None:
        """List and replace the store. Raises :class:`KubeStatusError`."""
        answer = await self._kube.request("GET", _PATH, params=self._selector, timeout=60)
        self._version = str(answer["metadata"]["resourceVersion"])
        seen = {podview.key_of(pod): pod for pod in answer["items"]}
        for key in [key for key in self.store if key not in seen]:
            self._apply("DELETED", self.store[key])
        for pod in seen.values():
            self._apply("MODIFIED", pod)

    def follow(self) -> None:
        """Watch from the last list on, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def pause(self, paused: bool) -> None:
        """Stop taking events in, or go on (F-14). What happened meanwhile arrives afterwards."""
        if paused:
            self._running.clear()
        else:
            self._running.set()

    def seen(self, key: str, version: str) -> Obj | None:
        """Return one of the last versions of a pod that is still there, None when it was not seen or too long ago."""
        return next((pod for pod in self._history.get(key, ()) if pod["metadata"]["resourceVersion"] == version), None)

    def replay(self, pod: Obj) -> None:
        """Take an old version of a pod for news, until the next real event about it (F-14)."""
        self._apply("MODIFIED", pod)

    async def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                if not self._version:
                    await self.list()
                await self._watch()
                pause = _FIRST_PAUSE
            except KubeStatusError as error:
                if error.status == 410:
                    self._version = ""
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)

    async def _watch(self) -> None:
        params = {**self._selector, "resourceVersion": self._version, "timeoutSeconds": "300"}
        async for kind, pod in self._kube.watch(_PATH, params):
            await self._running.wait()
            if kind != "BOOKMARK":
                self._apply(kind, pod)
            self._version = str(pod["metadata"]["resourceVersion"])

    def _apply(self, kind: str, pod: Obj) -> None:
        key = podview.key_of(pod)
        old = self.store.get(key)
        if kind == "DELETED":
            self.store.pop(key, None)
            self._history.pop(key, None)
            self._handler(old or pod, None)
            return
        if old is not None and podview.uid_of(old) != podview.uid_of(pod):
            self._history.pop(key, None)
            self._handler(old, None)
            old = None
        self._history.setdefault(key, deque(maxlen=_REMEMBERED)).append(pod)
        self.store[key] = pod
        self._handler(old, pod)
