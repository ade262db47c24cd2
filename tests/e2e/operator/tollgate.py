"""A gate between the operator and the API server: writes are carried out, their answers never arrive, the operator dies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from cocoon_devkit.kubeconfig import write_kubeconfig

_HEAD: Final = re.compile(rb"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/1\.1\r\n")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_WRITES: Final = (b"POST", b"PUT", b"PATCH", b"DELETE")
_CHUNK: Final = 65536


class Tollgate:
    """Speaks plain HTTP on the side of the operator, so that it sees the requests; passes bytes, invents none."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        entry: dict[str, Any] = content["clusters"][0]["cluster"]
        parts = urlsplit(entry["server"])
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port or 443)
        authority = base64.b64decode(entry["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._user = content["users"][0]["user"]
        self.kubeconfig = folder / "tollgate.kubeconfig"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tollgate")
        self._tasks: set[asyncio.Task[None]] = set()
        self._namespace = b""
        self.left: dict[str, int] = {}
        self._unpaid = 0
        self._toll: Callable[[], None] = _nothing
        self.paid = threading.Event()

    def __enter__(self) -> Tollgate:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self._server = server
        port = server.sockets[0].getsockname()[1]
        write_kubeconfig(self.kubeconfig, cluster={"server": f"http://127.0.0.1:{port}"}, user=self._user)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def demand(self, writes: Mapping[str, int], namespace: str, toll: Callable[[], None]) -> None:
        """Of each set that is named let the n-th write from now on, to it or its pod, be carried out and not be answered.

        When the last of them is carried out ``toll`` is called, in another thread, and then ``paid`` is set.
        """
        self.paid.clear()
        self._namespace, self._toll = f"/namespaces/{namespace}/".encode(), toll
        self.left, self._unpaid = dict(writes), len(writes)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            there, back = await asyncio.open_connection(*self._target, ssl=self._context)
        except OSError:
            writer.transport.abort()
            return
        try:
            await self._pass(reader, writer, there, back)
        finally:
            writer.transport.abort()
            back.transport.abort()

    async def _pass(
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
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
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
            while data := await there.read(_CHUNK):
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
