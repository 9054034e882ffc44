"""A way to a Couchbase that people and networks close, narrow and open again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK_BYTES = 65536


class Way(Enum):
    """What becomes of what a client sends."""

    OPEN = "carried on"
    SILENT = "taken and never answered"
    ANSWERLESS = "carried on, and what comes back to a POST kept"
    DRIBBLING = "answered with one byte after the other, without end"


class Gate:
    """A TCP server in front of a management endpoint; connections keep the way that was set when they came."""

    def __init__(self, way: Way, delay_seconds: float) -> None:
        self.way = way
        self.delay_seconds = delay_seconds
        self.url = ""
        self.connections = 0
        self.came = asyncio.Event()

    async def serve(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.came.set()
        with suppress(ConnectionError):
            if self.way in {Way.OPEN, Way.ANSWERLESS}:
                await self._carry(target, reader, writer)
            elif self.way is Way.DRIBBLING:
                await self._dribble(writer)
            else:
                while await reader.read(_CHUNK_BYTES):
                    pass
        writer.close()

    async def _carry(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(target)
        from_server, to_server = await asyncio.open_connection(parts.hostname, parts.port)
        is_answered = True

        async def answers() -> None:
            while data := await from_server.read(_CHUNK_BYTES):
                if is_answered:
                    writer.write(data)
            writer.close()

        backwards = asyncio.create_task(answers())
        try:
            while data := await reader.read(_CHUNK_BYTES):
                is_answered = is_answered and not (self.way is Way.ANSWERLESS and data.startswith(b"POST"))
                await asyncio.sleep(self.delay_seconds)
                to_server.write(data)
        finally:
            backwards.cancel()
            to_server.close()

    async def _dribble(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def gate(target: str = "", way: Way = Way.OPEN, *, delay_seconds: float = 0.0) -> AsyncIterator[Gate]:
    """Run a gate in front of the URL ``target``, where each request waits for ``delay_seconds``."""
    it = Gate(way, delay_seconds)
    server = await asyncio.start_server(lambda reader, writer: it.serve(target, reader, writer), "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        server.close()
