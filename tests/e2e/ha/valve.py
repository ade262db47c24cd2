"""A valve in the line from one replica to the API server: it can fall silent, hold some requests, or say when one comes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.e2e.apiline import CHUNK, ApiLine, next_request


class Valve(ApiLine):
    """Both ends stay open while it is silent, as on a line that loses packets: nobody is told that nobody listens."""

    def __init__(self, folder: Path) -> None:
        super().__init__("valve", folder)
        self._open = asyncio.Event()
        self._held = re.compile(b"(?!)")
        self._released = asyncio.Event()
        self._awaited: tuple[re.Pattern[bytes], Callable[[], None]] | None = None
        self._seen = threading.Event()

    def __enter__(self) -> Self:
        super().__enter__()
        self.loop.call_soon_threadsafe(self._open.set)
        return self

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let nothing through in either direction until the end of the block."""
        self.loop.call_soon_threadsafe(self._open.clear)
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(self._open.set)

    @contextmanager
    def holding(self, pattern: bytes) -> Iterator[None]:
        """Hold requests whose first line matches, and what comes behind them, until the end of the block."""
        self._held = re.compile(pattern)
        self._released.clear()
        try:
            yield
        finally:
            self._held = re.compile(b"(?!)")
            self.loop.call_soon_threadsafe(self._released.set)

    def when(self, pattern: bytes, then: Callable[[], None]) -> threading.Event:
        """Call ``then``, in another thread, when the next request whose first line matches comes, and let it through after that.

        The event is set when it has happened.
        """
        self._seen.clear()
        self._awaited = (re.compile(pattern), then)
        return self._seen

    async def admit(self) -> None:
        await self._open.wait()

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        answers = asyncio.create_task(self._pass_answers(there, writer))
        try:
            await self._pass_requests(reader, back)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    async def _pass_requests(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head, body = await next_request(reader)
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
            while data := await there.read(CHUNK):
                await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
