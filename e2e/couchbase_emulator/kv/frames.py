"""Framing of the memcached binary protocol: cutting requests into fields, writing response headers, LEB128."""

import struct
from typing import NamedTuple

HEADER_BYTES = 24
_RESPONSE_HEADER = struct.Struct(">BBHBBHIIQ")
_REQUEST_HEADER = struct.Struct(">BBHBBHIIQ")
# kv_engine refuses longer frames by closing the connection.
MAX_FRAME_BODY_BYTES = 30 * 1024 * 1024
# Kinds of framing extras.
DURABILITY_FRAME_ID = 1
PRESERVE_EXPIRY_FRAME_ID = 5

Buffer = bytes | bytearray | memoryview


class Header(NamedTuple):
    """The 24 bytes every request starts with, after the alternative encoding was resolved."""

    magic: int
    opcode: int
    framing_bytes: int
    key_bytes: int
    extras_bytes: int
    datatype: int
    vbucket: int
    body_bytes: int
    opaque: int
    cas: int


class Request(NamedTuple):
    """One request; `value` is a view into the receive buffer of that request, never copied."""

    opcode: int
    vbucket: int
    opaque: int
    cas: int
    datatype: int
    framing: bytes
    extras: bytes
    key: bytes
    value: Buffer


class FrameError(ValueError):
    """Bytes that are no request; the connection has to be closed."""


def parse_header(data: Buffer, offset: int = 0) -> Header:
    """Read a request header; raises FrameError for an unknown magic or lengths that do not fit."""
    magic, opcode, key_word, extras, datatype, vbucket, body, opaque, cas = _REQUEST_HEADER.unpack_from(data, offset)
    if magic == 0x80:
        framing, key = 0, key_word
    elif magic == 0x08:
        framing, key = key_word >> 8, key_word & 0xFF
    else:
        raise FrameError(f"unknown magic 0x{magic:02x}")
    if body > MAX_FRAME_BODY_BYTES:
        raise FrameError(f"body of {body} bytes exceeds the frame limit")
    if framing + key + extras > body:
        raise FrameError("framing, key and extras exceed the body")
    return Header(magic, opcode, framing, key, extras, datatype, vbucket, body, opaque, cas)


def cut_body(header: Header, body: memoryview) -> Request:
    """Split a complete body; only the small fields are copied."""
    extras_at = header.framing_bytes
    key_at = extras_at + header.extras_bytes
    value_at = key_at + header.key_bytes
    return Request(
        header.opcode,
        header.vbucket,
        header.opaque,
        header.cas,
        header.datatype,
        bytes(body[:extras_at]),
        bytes(body[extras_at:key_at]),
        bytes(body[key_at:value_at]),
        body[value_at:],
    )


def response_head(
    request: Request,
    status: int = 0,
    *,
    extras: bytes = b"",
    key: bytes = b"",
    value_bytes: int = 0,
    datatype: int = 0,
    cas: int = 0,
) -> bytes:
    """Header, extras and key of a response; the value follows as a buffer of its own."""
    body = len(extras) + len(key) + value_bytes
    head = _RESPONSE_HEADER.pack(
        0x81, request.opcode, len(key), len(extras), datatype, status, body, request.opaque, cas
    )
    return head + extras + key


def decode_leb128(data: bytes) -> tuple[int, int]:
    """Unsigned LEB128 at the start of `data`: (number, bytes used); raises FrameError when it does not end."""
    number = shift = 0
    for index, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, index + 1
        shift += 7
    raise FrameError("LEB128 number does not end")


def encode_leb128(number: int) -> bytes:
    """Shortest unsigned LEB128 of `number`."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def framing_ids(framing: bytes) -> set[int]:
    """Kinds of framing extras of a request; raises FrameError for escaped kinds and when cut short."""
    found = set()
    at = 0
    while at < len(framing):
        frame_id, length = framing[at] >> 4, framing[at] & 0x0F
        if frame_id == 15 or length == 15:
            raise FrameError("escaped framing extras are not known")
        if at + 1 + length > len(framing):
            raise FrameError("framing extras are cut short")
        found.add(frame_id)
        at += 1 + length
    return found
