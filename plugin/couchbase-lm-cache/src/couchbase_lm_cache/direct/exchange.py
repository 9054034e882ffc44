"""Requests and their answers, pipelined over one connection per node, straight from and into L1 memory.

A data node answers a connection's requests in their order, so the next answer's destination is known
before it arrives: its header is read on its own, and its value then goes from the socket into the memory
where it belongs. Each piece is moved without waiting and under the lock of that memory
(:class:`~couchbase_lm_cache.buffers.GuardedBuffer`), so that whoever ends the task waits for one system
call at most, and no byte moves afterwards.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_cache.direct.stream import BLOCKED, ConnectionLostError
from couchbase_lm_cache.direct.wire import HEADER_BYTES, Header, ProtocolError, Status, request_head, response_header
from couchbase_lm_cache.errors import BufferRevokedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.direct.stream import Stream
    from couchbase_lm_cache.transport import ShardRead, ShardWrite

_INBOX_BYTES = 16 * 1024
_HEADS_BYTES = 64 * 1024
_FLAGS_BYTES = 4


@dataclass
class Request:
    """One request, and what came of it.

    Attributes:
        key: with its collection id in front.
        value: what to send after the key; or
        source: the L1 memory to send.
        sink: the L1 memory that the value of a good answer goes into.
        status: of the answer; None while there is none.
        body: extras, key and value of the answer, except for a value that went into ``sink``.
        landed_bytes: length of the value the server has, when there is a sink.
        is_revoked: the task that owns the memory has ended.
    """

    opcode: int
    key: bytes = b""
    extras: bytes = b""
    value: bytes = b""
    vbucket: int = 0
    cas: int = 0
    source: ShardWrite | None = None
    sink: ShardRead | None = None
    status: int | None = None
    body: bytes = b""
    header: Header | None = None
    landed_bytes: int = 0
    is_revoked: bool = False

    @property
    def response_extras(self) -> bytes:
        """Return the extras of the answer."""
        return self.body[: self.header.extras_bytes] if self.header else b""

    @property
    def response_value(self) -> bytes:
        """Return the value of the answer."""
        return self.body[self.header.extras_bytes + self.header.key_bytes :] if self.header else b""


class Lane:
    """The requests of one exchange that go over one connection.

    Attributes:
        failure: why the connection can no longer be used, if so; requests without status got no answer.
    """

    def __init__(self, stream: Stream, requests: Sequence[Request]) -> None:
        self.stream = stream
        self.requests = requests
        self.failure: ConnectionLostError | ProtocolError | None = None
        self._unsent = 0
        self._sending: ShardWrite | None = None
        self._head = memoryview(b"")
        self._sent_bytes = 0
        self._answered = 0
        self._header: Header | None = None
        self._inbox = memoryview(bytearray(_INBOX_BYTES))
        self._first, self._last = 0, 0
        self._body = memoryview(b"")
        self._body_bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do on this connection."""
        return self.failure is not None or self._answered == len(self.requests)

    @property
    def is_clean(self) -> bool:
        """Whether the connection is idle and may serve others."""
        return self.failure is None and self._answered == len(self.requests) and self._first == self._last

    def advance(self) -> int:
        """Move what can be moved without waiting; return the poll events to wait for."""
        events = 0
        try:
            if not self._send():
                events |= self.stream.wants
            if not self._receive():
                events |= self.stream.wants
        except (ConnectionLostError, ProtocolError) as error:
            self.failure = error
        return events

    def _send(self) -> bool:
        """Send until blocked (False) or everything is on its way (True)."""
        while True:
            if not self._head and self._sending is None and not self._next_head():
                return True
            count = self._send_piece()
            if count == BLOCKED:
                return False
            of_head = min(count, len(self._head))
            self._head = self._head[of_head:]
            self._sent_bytes += count - of_head
            if self._sending is not None and self._sent_bytes == self._sending.end - self._sending.start:
                self._sending = None

    def _send_piece(self) -> int:
        write = self._sending
        if write is None:
            return self.stream.send([self._head])
        try:
            with write.buffer.open() as view:
                return self.stream.send([self._head, view[write.start + self._sent_bytes : write.end]])
        except BufferRevokedError:
            self.requests[self._unsent - 1].is_revoked = True
            # The frame can neither be finished nor taken back.
            raise ConnectionLostError("the memory that was being sent is no longer ours") from None

    def _next_head(self) -> bool:
        """Encode the next requests, up to and including one whose value follows from L1 memory."""
        heads = bytearray()
        while self._unsent < len(self.requests) and len(heads) < _HEADS_BYTES and self._sending is None:
            request = self.requests[self._unsent]
            write = request.source
            value_bytes = write.end - write.start if write else len(request.value)
            heads += request_head(
                request.opcode,
                key=request.key,
                extras=request.extras,
                value_bytes=value_bytes,
                vbucket=request.vbucket,
                opaque=self._unsent,
                cas=request.cas,
            )
            heads += request.value
            if write is not None and value_bytes:
                self._sending, self._sent_bytes = write, 0
            self._unsent += 1
        self._head = memoryview(bytes(heads))
        return bool(heads)

    def _receive(self) -> bool:
        """Receive until blocked (False) or every request has its answer (True)."""
        while self._answered < len(self.requests):
            request = self.requests[self._answered]
            if self._header is None and not self._receive_header(request):
                return False
            if not self._receive_body(request):
                return False
            self._answered += 1
            self._header = None
        return True

    def _receive_header(self, request: Request) -> bool:
        # What follows a header on its way into L1 must not be read with it: it would have to be copied.
        limit = HEADER_BYTES if request.sink is not None else _INBOX_BYTES
        if not self._collect(HEADER_BYTES, limit):
            return False
        header = response_header(self._inbox[self._first : self._last])
        if header.opaque != self._answered or header.opcode != request.opcode:
            raise ProtocolError("an answer belongs to another request")
        self._first += HEADER_BYTES
        self._header = header
        self._body_bytes = 0
        is_landing = request.sink is not None and header.status == Status.OK
        if is_landing and (header.extras_bytes, header.key_bytes) != (_FLAGS_BYTES, 0):
            raise ProtocolError("an answer to a read has no document flags")
        self._body = memoryview(bytearray(_FLAGS_BYTES if is_landing else header.body_bytes))
        return True

    def _receive_body(self, request: Request) -> bool:
        header, sink = self._header, request.sink
        if header is None:
            return False
        if not self._fill_body():
            return False
        if sink is not None and header.status == Status.OK and not self._land(request, sink, header):
            return False
        request.header, request.body, request.status = header, bytes(self._body), header.status
        return True

    def _fill_body(self) -> bool:
        while self._body_bytes < len(self._body):
            rest = self._body[self._body_bytes :]
            staged = min(len(rest), self._last - self._first)
            if staged:
                rest[:staged] = self._inbox[self._first : self._first + staged]
                self._first += staged
            else:
                staged = self.stream.receive([rest])
                if staged == BLOCKED:
                    return False
            self._body_bytes += staged
        return True

    def _land(self, request: Request, sink: ShardRead, header: Header) -> bool:
        """Receive a value into L1, or past it when it does not fit or the memory is no longer ours."""
        wanted = header.value_bytes
        fits = wanted == sink.end - sink.start
        while request.landed_bytes < wanted:
            if self._first < self._last:
                raise ProtocolError("a value came before it was asked for")
            count = BLOCKED
            if fits and not request.is_revoked:
                try:
                    with sink.buffer.open() as view:
                        count = self.stream.receive([view[sink.start + request.landed_bytes : sink.end]])
                except BufferRevokedError:
                    request.is_revoked = True
                    continue
            else:
                count = self.stream.receive([self._inbox[: min(wanted - request.landed_bytes, _INBOX_BYTES)]])
            if count == BLOCKED:
                return False
            request.landed_bytes += count
        return True

    def _collect(self, needed: int, limit: int) -> bool:
        """Have at least ``needed`` bytes in the inbox, and at most ``limit``."""
        while (held := self._last - self._first) < needed:
            if self._first:
                self._inbox[:held] = bytes(self._inbox[self._first : self._last])
                self._first, self._last = 0, held
            count = self.stream.receive([self._inbox[held:limit]])
            if count == BLOCKED:
                return False
            self._last += count
        return True


def run(lanes: Sequence[Lane], deadline: float) -> None:
    """Carry out the lanes' requests side by side, until all are done or ``deadline`` (monotonic) has come."""
    open_lanes = [lane for lane in lanes if not lane.is_done]
    while open_lanes:
        poller = select.poll()
        for lane in open_lanes:
            events = lane.advance()
            if not lane.is_done:
                poller.register(lane.stream, events)
        open_lanes = [lane for lane in open_lanes if not lane.is_done]
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if open_lanes:
            poller.poll(left * 1000)
