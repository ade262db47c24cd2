"""A gate between the operator and the API server: writes are carried out, their answers never arrive, the operator dies."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from tests.e2e.apiline import CHUNK, ApiLine, next_request

_HEAD: Final = re.compile(rb"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/1\.1\r\n")
_WRITES: Final = (b"POST", b"PUT", b"PATCH", b"DELETE")


class Tollgate(ApiLine):
    """Of some writes it keeps the answers back."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        super().__init__("tollgate", folder)
        self._through = kubeconfig
        self._namespace = b""
        self.left: dict[str, int] = {}
        self._unpaid = 0
        self._toll: Callable[[], None] = _nothing
        self.paid = threading.Event()

    def __enter__(self) -> Self:
        super().__enter__()
        self.kubeconfig = self.via(self._through)
        return self

    def demand(self, writes: Mapping[str, int], namespace: str, toll: Callable[[], None]) -> None:
        """Of each set that is named let the n-th write from now on, to it or its pod, be carried out and not be answered.

        When the last of them is carried out ``toll`` is called, in another thread, and then ``paid`` is set.
        """
        self.paid.clear()
        self._namespace, self._toll = f"/namespaces/{namespace}/".encode(), toll
        self.left, self._unpaid = dict(writes), len(writes)

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        swallow = asyncio.Event()
        answers = asyncio.create_task(self._pass_answers(there, writer, swallow))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head, body = await next_request(reader)
                if self._is_due(head, body):
                    swallow.set()
                back.write(head + body)
        if not swallow.is_set():
            answers.cancel()
        await asyncio.gather(answers, return_exceptions=True)

    def _is_due(self, head: bytes, body: bytes) -> bool:
        request = _HEAD.match(head)
        assert request is not None, head
        if request["method"] not in _WRITES or self._namespace not in request["path"]:
            return False
        for name in self.left:
            if _is_about(name, request["path"], body):
                self.left[name] -= 1
                return self.left[name] == 0
        return False

    async def _pass_answers(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, swallow: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await there.read(CHUNK):
                if swallow.is_set():
                    self._pay()
                    return
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def _pay(self) -> None:
        self._unpaid -= 1
        if not self._unpaid:
            self.left = {}
            self._toll()
            self.paid.set()


def _nothing() -> None:
    """There is no toll."""


def _is_about(name: str, path: bytes, body: bytes) -> bool:
    """Whether a write is to a set or to the pod of its main agent; events about them do not count."""
    path = path.partition(b"?")[0]
    if path.endswith(b"/pods"):
        return f'"{name}-0"'.encode() in body
    return re.search(f"/(cocoonsets/{name}(/status)?|pods/{name}-0)$".encode(), path) is not None
