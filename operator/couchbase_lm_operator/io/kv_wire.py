"""Frames of the memcached binary protocol, as far as logging in and probing need them.

Layout and codes: "Binary protocol" and "Hello, SASL, collections" documents of couchbase/kv_engine.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

_HEADER = struct.Struct(">BBHBBHIIQ")
_REQUEST_MAGIC = 0x80
_RESPONSE_MAGIC = 0x81
_MAX_BODY_BYTES = 4 * 1024 * 1024
_FAREWELL_SECONDS = 1.0


class Opcode(IntEnum):
    """Commands that are sent."""

    NOOP = 0x0A
    HELLO = 0x1F
    SASL_LIST = 0x20
    SASL_AUTH = 0x21
    SASL_STEP = 0x22
    SELECT_BUCKET = 0x89
    GET_CLUSTER_CONFIG = 0xB5
    GET_COLLECTION_ID = 0xBB


class Status(IntEnum):
    """Answers that are told apart."""

    SUCCESS = 0x00
    NOT_FOUND = 0x01
    AUTH_ERROR = 0x20
    AUTH_CONTINUE = 0x21
    NO_ACCESS = 0x24


class Feature(IntEnum):
    """Features that HELLO asks for."""

    XERROR = 0x07
    SELECT_BUCKET = 0x08
    JSON = 0x0B
    COLLECTIONS = 0x12


class ProtocolError(Exception):
    """The peer does not speak this protocol."""


@dataclass(frozen=True)
class Reply:
    """One answer: its status and value."""

    status: int
    value: bytes


class KvConnection:
    """One connection; requests are answered in turn."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._opaque = 0

    async def call(self, opcode: Opcode, key: bytes = b"", value: bytes = b"") -> Reply:
        """Send one request and return its answer; raises ProtocolError, OSError, EOFError."""
        self._opaque += 1
        header = _HEADER.pack(_REQUEST_MAGIC, opcode, len(key), 0, 0, 0, len(key) + len(value), self._opaque, 0)
        self._writer.write(header + key + value)
        await self._writer.drain()
        raw = await self._reader.readexactly(_HEADER.size)
        magic, answered, key_length, extras_length, _, status, body_length, opaque, _ = _HEADER.unpack(raw)
        # Features that would let the server send anything else are never asked for.
        if (magic, answered, opaque) != (_RESPONSE_MAGIC, opcode, self._opaque):
            raise ProtocolError("the peer does not speak Couchbase's data protocol")
        if body_length > _MAX_BODY_BYTES or key_length + extras_length > body_length:
            raise ProtocolError("the peer sends frames no data node would send")
        body = await self._reader.readexactly(body_length)
        return Reply(status, body[extras_length + key_length :])

    async def close(self) -> None:
        """Close the connection, whatever its state and whatever the peer does."""
        self._writer.close()
        try:
            # TLS says farewell and waits for the peer's, which a silent one never sends.
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()
        except OSError:
            # The peer was faster; closed is closed.
            return
