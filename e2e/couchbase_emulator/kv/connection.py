"""A data connection: bytes in, bytes out.

Large values are received straight into the buffer they are stored in, and sent from it: nothing is copied on the way.
"""

import asyncio
import socket
from collections import deque
from typing import cast

from e2e.couchbase_emulator.kv.connect_commands import ANONYMOUS_COMMANDS, CONNECT_COMMANDS, Command
from e2e.couchbase_emulator.kv.document_commands import DOCUMENT_COMMANDS
from e2e.couchbase_emulator.kv.frames import (
    HEADER_BYTES,
    Buffer,
    FrameError,
    Header,
    Request,
    cut_body,
    parse_header,
)
from e2e.couchbase_emulator.kv.lookup_commands import LOOKUP_COMMANDS
from e2e.couchbase_emulator.kv.opcodes import QUIET_OF, Opcode, Status
from e2e.couchbase_emulator.kv.scan_commands import SCAN_COMMANDS
from e2e.couchbase_emulator.kv.session import Session
from e2e.couchbase_emulator.model.bucket import Bucket
from e2e.couchbase_emulator.model.cluster import Cluster, Node

_RECEIVE_BYTES = 64 * 1024
# Bodies above this size get a buffer of their own as soon as their header is known.
_LARGE_BODY_BYTES = 16 * 1024
_WRITE_HIGH_WATER_BYTES = 32 * 1024 * 1024
_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
_DATA_COMMANDS: dict[int, Command] = DOCUMENT_COMMANDS | LOOKUP_COMMANDS | SCAN_COMMANDS
_COMMANDS: dict[int, Command] = CONNECT_COMMANDS | _DATA_COMMANDS


class KvConnection(asyncio.BufferedProtocol):
    """Server side of one connection to the data service of a node."""

    def __init__(self, cluster: Cluster, node: Node, open_connections: "set[KvConnection]", *, encrypted: bool) -> None:
        self._cluster = cluster
        self._open_connections = open_connections
        self._session = Session(cluster, node, self._send, encrypted=encrypted)
        self._received = bytearray(_RECEIVE_BYTES)
        self._received_view = memoryview(self._received)
        self._start = self._end = 0
        self._large: memoryview | None = None
        self._large_header: Header | None = None
        self._large_filled = 0
        self._writing_paused = False
        self._closed = False
        self._delayed_answers: deque[tuple[bytes, Buffer]] = deque()
        self._last_due_seconds = 0.0
        self._transport: asyncio.Transport

    # -- asyncio.BufferedProtocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        plain_socket = self._transport.get_extra_info("socket")
        if plain_socket is not None:
            plain_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                plain_socket.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        self._open_connections.add(self)
        self._cluster.counters.kv_connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - signature of asyncio
        """Forget the connection."""
        self._closed = True
        self._open_connections.discard(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - signature of asyncio
        """Where the next bytes go."""
        if self._large is not None:
            return self._large[self._large_filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start and _RECEIVE_BYTES - self._end < _LARGE_BODY_BYTES + HEADER_BYTES:
            pending = bytes(self._received_view[self._start : self._end])
            self._received_view[: len(pending)] = pending
            self._start, self._end = 0, len(pending)
        return self._received_view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came in."""
        if self._large is None:
            self._end += nbytes
            self._consume()
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            body, header = self._large, self._large_header
            self._large = self._large_header = None
            if header is not None:
                self._handle(cut_body(header, body))

    def pause_writing(self) -> None:
        """The client reads too slowly: take no further requests."""
        self._writing_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._writing_paused = False
        if not self._closed:
            self._transport.resume_reading()
            self._consume()

    # -- control -------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Close at once."""
        self._closed = True
        self._transport.abort()

    def uses(self, bucket: Bucket) -> bool:
        """Whether this connection has the bucket open."""
        return self._session.bucket is bucket

    # -- requests ------------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        while not self._writing_paused and not self._closed and self._end - self._start >= HEADER_BYTES:
            try:
                header = parse_header(self._received, self._start)
            except FrameError:
                self.abort()
                return
            body_at = self._start + HEADER_BYTES
            available = self._end - body_at
            if available < header.body_bytes:
                if header.body_bytes > _LARGE_BODY_BYTES:
                    self._begin_large(header, body_at, available)
                return
            body = bytes(self._received_view[body_at : body_at + header.body_bytes])
            self._start = body_at + header.body_bytes
            self._handle(cut_body(header, memoryview(body)))

    def _begin_large(self, header: Header, body_at: int, available: int) -> None:
        self._large = memoryview(bytearray(header.body_bytes))
        self._large[:available] = self._received_view[body_at : body_at + available]
        self._large_header = header
        self._large_filled = available
        self._start = self._end = 0

    def _handle(self, request: Request) -> None:
        opcode = QUIET_OF.get(request.opcode, request.opcode)
        command = _COMMANDS.get(opcode)
        session = self._session
        if self._cluster.faults.take("hang"):
            return
        if command is None:
            session.refuse(request, Status.UNKNOWN_COMMAND)
            return
        self._cluster.counters.kv_requests[Opcode(opcode).name] += 1
        if session.username is None and opcode not in ANONYMOUS_COMMANDS:
            session.refuse(request, Status.EACCESS, "not authenticated")
            return
        if opcode in _DATA_COMMANDS:
            if self._cluster.faults.take("drop"):
                return
            if self._cluster.faults.take("disconnect"):
                self.abort()
                return
            if self._cluster.faults.take("wrong_opaques"):
                request = request._replace(opaque=request.opaque ^ 0x80000001)
            if self._cluster.faults.take("refusals"):
                session.refuse(request, self._cluster.faults.refusal_status)
                return
        command(session, request)

    # -- answers -------------------------------------------------------------------------------------------------

    def _send(self, head: bytes, value: Buffer) -> None:
        faults = self._cluster.faults
        if faults.trickle_seconds > 0 and len(value) >= _LARGE_BODY_BYTES:
            half = len(value) // 2
            self._send_after(faults.slow_seconds, head, value[:half])
            self._send_after(faults.slow_seconds + faults.trickle_seconds, b"", value[half:])
        else:
            self._send_after(faults.slow_seconds, head, value)

    def _send_after(self, delay_seconds: float, head: bytes, value: Buffer) -> None:
        if delay_seconds > 0 or self._delayed_answers:
            self._send_later(head, value, delay_seconds)
        else:
            self._write(head, value)

    def _send_later(self, head: bytes, value: Buffer, delay_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        # Answers keep their order although the delay may shrink meanwhile.
        self._last_due_seconds = max(loop.time() + delay_seconds, self._last_due_seconds + 1e-6)
        self._delayed_answers.append((head, value))
        loop.call_at(self._last_due_seconds, self._send_next_delayed)

    def _send_next_delayed(self) -> None:
        self._write(*self._delayed_answers.popleft())

    def _write(self, head: bytes, value: Buffer) -> None:
        if not head:  # the second half of a value
            self._cluster.counters.kv_trickled_values += 1
        if self._closed:
            return
        faults = self._cluster.faults
        is_spared = faults.corrupt_documents_only and head and not _is_document(head)
        if faults.corrupt_stream > 0 and not is_spared:
            frame = bytearray(head) + value
            self._cluster.counters.kv_damaged_answers += faults.damage(frame)
            self._transport.write(frame)
        elif not len(value):
            self._transport.write(head)
        elif len(value) < _LARGE_BODY_BYTES:
            self._transport.write(b"".join((head, value)))
        elif faults.take("cut_values"):
            self._transport.write(head + bytes(value[: len(value) // 2]))
            self._transport.close()
        else:
            self._transport.write(head)
            self._transport.write(value)


def _is_document(head: bytes) -> bool:
    """Whether an answer says that a document request was carried out."""
    return head[1] in _DATA_COMMANDS and head[6:8] == bytes(2)
