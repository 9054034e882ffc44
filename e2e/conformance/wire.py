"""A bare client of the data service: one socket, one request or several in flight, nothing hidden.

It exists to see statuses and bodies that an SDK swallows.
"""

import json
import socket
import ssl
import struct
import zlib
from types import TracebackType
from typing import Any, NamedTuple, Self

from e2e.conformance.scram_client import ScramClient

_HEADER = struct.Struct(">BBHBBHIIQ")
# HELLO: TCP_NODELAY, MUTATION_SEQNO, XERROR, SELECT_BUCKET, JSON, ALT_REQUEST, COLLECTIONS.
FEATURES = (0x03, 0x04, 0x07, 0x08, 0x0B, 0x10, 0x12)
SNAPPY = 0x0A


class Reply(NamedTuple):
    """A response."""

    opcode: int
    status: int
    opaque: int
    cas: int
    extras: bytes
    key: bytes
    value: bytes

    def json(self) -> Any:
        """The value as JSON."""
        return json.loads(self.value)


def leb128(number: int) -> bytes:
    """Unsigned LEB128."""
    out = b""
    while True:
        byte, number = number & 0x7F, number >> 7
        out += bytes([byte | (0x80 if number else 0)])
        if not number:
            return out


def vbucket_of(key: bytes, vbuckets: int) -> int:
    """vBucket of a key, without collection prefix."""
    return ((zlib.crc32(key) >> 16) & 0x7FFF) % vbuckets


class WireClient:
    """One connection to one node."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None = None, timeout_seconds: float = 10) -> None:
        connection = socket.create_connection((host, port), timeout=timeout_seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = tls.wrap_socket(connection, server_hostname=host) if tls else connection
        self._opaque = 0
        self.collection_id = 0
        self.vbuckets = 1024

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    # -- frames --------------------------------------------------------------------------------------------------

    def send(
        self,
        opcode: int,
        *,
        key: bytes = b"",
        extras: bytes = b"",
        value: bytes = b"",
        vbucket: int = 0,
        cas: int = 0,
        datatype: int = 0,
        framing: bytes | None = None,
    ) -> int:
        """Send a request, return its opaque; with `framing` in the alternative encoding."""
        self._opaque += 1
        body = len(framing or b"") + len(extras) + len(key) + len(value)
        magic, key_word = (0x80, len(key)) if framing is None else (0x08, len(framing) << 8 | len(key))
        head = _HEADER.pack(magic, opcode, key_word, len(extras), datatype, vbucket, body, self._opaque, cas)
        self._socket.sendall(head + (framing or b"") + extras + key + value)
        return self._opaque

    def receive(self) -> Reply:
        """Next response; raises ConnectionError when the server closes and TimeoutError when nothing comes."""
        head = self.receive_bytes(_HEADER.size)
        magic, opcode, key_bytes, extras_bytes, _, status, body_bytes, opaque, cas = _HEADER.unpack(head)
        if magic != 0x81:
            raise ConnectionError(f"unexpected magic 0x{magic:02x}")
        body = self.receive_bytes(body_bytes)
        key_at, value_at = extras_bytes, extras_bytes + key_bytes
        return Reply(opcode, status, opaque, cas, body[:key_at], body[key_at:value_at], body[value_at:])

    def call(self, opcode: int, **fields: Any) -> Reply:
        """Send a request and wait for its response."""
        opaque = self.send(opcode, **fields)
        reply = self.receive()
        if reply.opaque != opaque:
            raise ConnectionError("response to another request")
        return reply

    # -- commands ------------------------------------------------------------------------------------------------

    def hello(self, features: tuple[int, ...] = FEATURES) -> tuple[int, ...]:
        """Ask for features, return those granted."""
        value = struct.pack(f">{len(features)}H", *features)
        granted = self.call(0x1F, key=b'{"a":"conformance"}', value=value).value
        return struct.unpack(f">{len(granted) // 2}H", granted)

    def login(self, username: str, password: str, mechanism: str = "SCRAM-SHA512") -> int:
        """Log in, return the final status."""
        if mechanism == "PLAIN":
            return self.call(0x21, key=b"PLAIN", value=f"\0{username}\0{password}".encode()).status
        client = ScramClient(mechanism, username, password)
        reply = self.call(0x21, key=mechanism.encode(), value=client.first())
        if reply.status != 0x21:
            return reply.status
        reply = self.call(0x22, key=mechanism.encode(), value=client.final(reply.value))
        if reply.status == 0:
            client.verify(reply.value)
        return reply.status

    def select_bucket(self, bucket: str) -> int:
        """Open a bucket, return the status."""
        return self.call(0x89, key=bucket.encode()).status

    def cluster_config(self) -> Any:
        """Configuration of the open bucket, or of the cluster."""
        return self.call(0xB5).json()

    def open_collection(self, bucket: str, scope: str, collection: str) -> int:
        """Open a bucket and resolve a collection for the document commands below; returns the last status."""
        status = self.select_bucket(bucket)
        if status:
            return status
        self.vbuckets = len(self.cluster_config()["vBucketServerMap"]["vBucketMap"])
        reply = self.call(0xBB, value=f"{scope}.{collection}".encode())
        if reply.status == 0:
            self.collection_id = struct.unpack(">QI", reply.extras)[1]
        return reply.status

    def set(self, key: bytes, value: bytes, *, flags: int = 0, expiry: int = 0, **fields: Any) -> Reply:
        """Write a document."""
        return self.call(0x01, **self._place(key), extras=struct.pack(">II", flags, expiry), value=value, **fields)

    def get(self, key: bytes) -> Reply:
        """Read a document."""
        return self.call(0x00, **self._place(key))

    def delete(self, key: bytes) -> Reply:
        """Remove a document."""
        return self.call(0x04, **self._place(key))

    def get_meta(self, key: bytes) -> Reply:
        """Ask for the metadata of a document."""
        return self.call(0xA0, **self._place(key))

    def touch(self, key: bytes, expiry: int) -> Reply:
        """Give a document a new lifetime."""
        return self.call(0x1C, **self._place(key), extras=struct.pack(">I", expiry))

    def send_get(self, key: bytes) -> int:
        """Ask for a document without waiting."""
        return self.send(0x00, **self._place(key))

    def _place(self, key: bytes) -> dict[str, Any]:
        return {"key": leb128(self.collection_id) + key, "vbucket": vbucket_of(key, self.vbuckets)}

    def receive_bytes(self, count: int) -> bytes:
        """The next bytes as they come; raises ConnectionError when the server closes, TimeoutError when they do not."""
        data = bytearray(count)
        view = memoryview(data)
        while view:
            received = self._socket.recv_into(view)
            if not received:
                raise ConnectionError("the server closed the connection")
            view = view[received:]
        return bytes(data)
