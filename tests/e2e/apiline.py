"""A line between an operator and the API server that reads the requests as they go by; what it does to them, others say."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import yaml

from cocoon_devkit.kubeconfig import write_kubeconfig

CHUNK: Final = 65536
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class ApiLine:
    """Speaks plain HTTP on the side of the operator, so that it sees the requests; passes bytes, invents none."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name)

    def via(self, kubeconfig: Path) -> Path:
        """Lead the way of a kubeconfig through the line; returns the kubeconfig for that."""
        content = yaml.safe_load(kubeconfig.read_text())
        entry: dict[str, Any] = content["clusters"][0]["cluster"]
        parts = urlsplit(entry["server"])
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port or 443)
        authority = base64.b64decode(entry["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        port = asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)
        cluster, user = {"server": f"http://127.0.0.1:{port}"}, content["users"][0]["user"]
        return write_kubeconfig(self._folder / f"{self._name}.kubeconfig", cluster=cluster, user=user)

    async def admit(self) -> None:
        """Wait until a new connection may be made."""

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        """Pass requests ``back`` to the API server and what comes from ``there`` to the operator, until one side ends."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

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
            await self.admit()
            there, back = await asyncio.open_connection(*self._target, ssl=self._context)
        except OSError:
            writer.transport.abort()
            return
        try:
            await self.serve(reader, writer, there, back)
        finally:
            writer.transport.abort()
            back.transport.abort()


async def next_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a request's head and body. Raises :class:`asyncio.IncompleteReadError` at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head, await reader.readexactly(int(length[1])) if length else b""
