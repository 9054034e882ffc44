"""Frames of the memcached binary protocol as Couchbase's data nodes speak it.

Source of numbers and layouts: kv_engine ``docs/BinaryProtocol.md`` and ``docs/Collections.md``. A frame is
a header of 24 bytes, then extras, key and value. Pure: no socket is touched here.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

HEADER_BYTES = 24
MAX_BODY_BYTES = 30 * 1024 * 1024
"""Data nodes send no larger frame: a length above it means that the stream of bytes is damaged."""

_REQUEST, _RESPONSE = 0x80, 0x81
_HEADER = struct.Struct(">BBHBBHIIQ")
_DATATYPE_JSON = 0x01
"""Only a remark about content; the other data types (compression, extended attributes) change the bytes."""
_RELATIVE_EXPIRY_LIMIT_SECONDS = 30 * 86400


class Opcode(enum.IntEnum):
    """Commands used here."""

    GET = 0x00
    SET = 0x01
    DELETE = 0x04
    TOUCH = 0x1C
    HELLO = 0x1F
    SASL_LIST_MECHS = 0x20
    SASL_AUTH = 0x21
    SASL_STEP = 0x22
    SELECT_BUCKET = 0x89
    GET_META = 0xA0
    GET_CLUSTER_CONFIG = 0xB5
    GET_COLLECTION_ID = 0xBB


class Status(enum.IntEnum):
    """Answers that are told apart; all others are refusals."""

    OK = 0x00
    NOT_FOUND = 0x01
    EXISTS = 0x02
    NOT_MY_VBUCKET = 0x07
    NO_BUCKET = 0x08
    LOCKED = 0x09
    AUTH_STALE = 0x1F
    AUTH_ERROR = 0x20
    AUTH_CONTINUE = 0x21
    ACCESS_DENIED = 0x24
    OUT_OF_MEMORY = 0x82
    BUSY = 0x85
    TEMPORARY_FAILURE = 0x86
    UNKNOWN_COLLECTION = 0x88
    UNKNOWN_SCOPE = 0x8C
    SYNC_WRITE_IN_PROGRESS = 0xA2


class Feature(enum.IntEnum):
    """Features asked for in HELLO. Without JSON and Snappy every value arrives as the plain bytes stored."""

    TCP_NODELAY = 0x03
    EXTENDED_ERRORS = 0x07
    SELECT_BUCKET = 0x08
    COLLECTIONS = 0x12


class ProtocolError(Exception):
    """The peer sent what the protocol does not allow; nothing that follows on the connection can be trusted."""


class Header(NamedTuple):
    """Header of an answer."""

    opcode: int
    key_bytes: int
    extras_bytes: int
    status: int
    body_bytes: int
    opaque: int
    cas: int

    @property
    def value_bytes(self) -> int:
        """Length of what follows extras and key."""
        return self.body_bytes - self.extras_bytes - self.key_bytes


def request_head(
    opcode: int, *, key: bytes, extras: bytes, value_bytes: int, vbucket: int, opaque: int, cas: int
) -> bytes:
    """Encode a request up to its value, which follows on the stream."""
    body = len(extras) + len(key) + value_bytes
    head = _HEADER.pack(_REQUEST, opcode, len(key), len(extras), 0, vbucket, body, opaque, cas)
    return head + extras + key


def response_header(raw: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """Decode the header of an answer that begins at ``offset``.

    Raises:
        ProtocolError: it is not one, its lengths cannot be true, or the value is compressed.
    """
    magic, opcode, key, extras, datatype, status, body, opaque, cas = _HEADER.unpack_from(raw, offset)
    if magic != _RESPONSE:
        raise ProtocolError(f"a frame begins with 0x{magic:02x}")
    if body > MAX_BODY_BYTES or key + extras > body:
        raise ProtocolError(f"a frame claims {body} bytes of which {extras} + {key} come before the value")
    if datatype & ~_DATATYPE_JSON:
        raise ProtocolError(f"a value has data type 0x{datatype:02x}, which was not asked for")
    return Header(opcode, key, extras, status, body, opaque, cas)


def leb128(number: int) -> bytes:
    """Encode a collection id as it stands before every key: unsigned LEB128."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def expiry(ttl_seconds: int, now: float) -> int:
    """Return the expiry field of a lifetime: 30 days and more are told as a moment (seconds since 1970)."""
    return ttl_seconds if ttl_seconds < _RELATIVE_EXPIRY_LIMIT_SECONDS else int(now) + ttl_seconds
