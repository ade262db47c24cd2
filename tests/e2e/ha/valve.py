"""A valve in the line from one replica to the API server: it can fall silent, hold some requests, or say when one comes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from cocoon_devkit.kubeconfig import write_kubeconfig

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNK: Final = 65536


class Valve:
    """Speaks plain HTTP on the side of the replica, so that it sees requests; passes bytes, invents none.

    Both ends stay open while it is silent, as on a line that loses packets: nobody is told that nobody listens.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="valve")
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._held = re.compile(b"(?!)")
        self._released = asyncio.Event()
        self._awaited: tuple[re.Pattern[bytes], Callable[[], None]] | None = None
        self._seen = threading.Event()

    def via(self, kubeconfig: Path) -> Path:
        """Lead the way of a kubeconfig through the valve; returns the kubeconfig for that."""
        content = yaml.safe_load(kubeconfig.read_text())
        entry: dict[str, Any] = content["clusters"][0]["cluster"]
        parts = urlsplit(entry["server"])
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port or 443)
        self._context = ssl.create_default_context(
            cadata=base64.b64decode(entry["certificate-authority-data"]).decode()
        )
        port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        cluster, user = {"server": f"http://127.0.0.1:{port}"}, content["users"][0]["user"]
        return write_kubeconfig(self._folder / "valve.kubeconfig", cluster=cluster, user=user)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let nothing through in either direction until the end of the block."""
        self._loop.call_soon_threadsafe(self._open.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._open.set)

    @contextmanager
    def holding(self, pattern: bytes) -> Iterator[None]:
        """Hold requests whose first line matches, and what comes behind them, until the end of the block."""
        self._held = re.compile(pattern)
        self._released.clear()
        try:
            yield
        finally:
            self._held = re.compile(b"(?!)")
            self._loop.call_soon_threadsafe(self._released.set)

    def when(self, pattern: bytes, then: Callable[[], None]) -> threading.Event:
        """Call ``then``, in another thread, when the next request whose first line matches comes, and let it through after that.

        The event is set when it has happened.
        """
        self._seen.clear()
        self._awaited = (re.compile(pattern), then)
        return self._seen

    def __enter__(self) -> Valve:
        self._thread.start()
        self._loop.call_soon_threadsafe(self._open.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

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
            await self._open.wait()
            there, back = await asyncio.open_connection(*self._target, ssl=self._context)
        except OSError:
            writer.transport.abort()
            return
        answers = asyncio.create_task(self._pass_answers(there, writer))
        try:
            await self._pass_requests(reader, back)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            writer.transport.abort()
            back.transport.abort()

    async def _pass_requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                line = head.partition(b"\r\n")[0]
                if self._held.search(line):
                    await self._released.wait()
                self._look(line)
                await self._open.wait()
                back.write(head + body)
                await back.drain()

    def _look(self, line: bytes) -> None:
        if self._awaited is not None and self._awaited[0].search(line):
            (_, then), self._awaited = self._awaited, None
            then()
            self._seen.set()

    async def _pass_answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await there.read(_CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
