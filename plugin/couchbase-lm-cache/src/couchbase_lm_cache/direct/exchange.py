"""Requests and their answers, pipelined over one connection per node, straight from and into L1 memory.

A data node answers a connection's requests in their order, so the next answer's destination is known
before it arrives: its header is read on its own, and its value then goes from the socket into the memory
where it belongs, together with the header of the answer behind it. Each piece is moved without waiting
and under the lock of that memory (:class:`~couchbase_lm_cache.buffers.GuardedBuffer`), so that whoever
ends the task waits for one system call at most, and no byte moves afterwards.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

import xxhash

from couchbase_lm_cache.direct.requests import Request
from couchbase_lm_cache.direct.stream import BLOCKED, ConnectionLostError
from couchbase_lm_cache.direct.wire import HEADER_BYTES, Header, ProtocolError, Status, response_header
from couchbase_lm_cache.errors import BufferRevokedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.direct.stream import Stream
    from couchbase_lm_cache.transport import ShardRead, ShardWrite

_INBOX_BYTES = 16 * 1024
_HEADS_BYTES = 64 * 1024
_FLAGS_BYTES = 4
_LANDING_HEAD_BYTES = HEADER_BYTES + _FLAGS_BYTES
"""What comes before a value on its way into L1. More must not be read with it: it would have to be copied."""
_OK = int(Status.OK)


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
    def has_heard(self) -> bool:
        """Whether an answer has come, or has begun to."""
        return self._answered > 0 or self._header is not None

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
            heads += request.head(self._unsent, value_bytes)
            heads += request.value
            if write is not None and value_bytes:
                self._sending, self._sent_bytes = write, 0
            self._unsent += 1
        self._head = memoryview(bytes(heads))
        return bool(heads)

    def _receive(self) -> bool:
        """Receive until blocked (False) or every request has its answer (True)."""
        requests = self.requests
        while self._answered < len(requests):
            request = requests[self._answered]
            header = self._header or self._receive_header(request)
            if header is None:
                return False
            sink = request.sink
            if sink is not None and header.status == _OK:
                if not self._land(request, sink, header):
                    return False
            elif not self._fill_body(request, header):
                return False
            request.header, request.status = header, header.status
            self._answered += 1
            self._header = None
        return True

    def _receive_header(self, request: Request) -> Header | None:
        if not self._collect(HEADER_BYTES, _INBOX_BYTES if request.sink is None else _LANDING_HEAD_BYTES):
            return None
        header = response_header(self._inbox, self._first)
        if header.opaque != self._answered or header.opcode != request.opcode:
            raise ProtocolError("an answer belongs to another request")
        self._first += HEADER_BYTES
        self._header = header
        if request.sink is None or header.status != _OK:
            self._body_bytes = 0
            self._body = memoryview(b"")
        elif (header.extras_bytes, header.key_bytes) != (_FLAGS_BYTES, 0):
            raise ProtocolError("an answer to a read has no document flags")
        return header

    def _fill_body(self, request: Request, header: Header) -> bool:
        """Receive the rest of an answer that does not go into L1."""
        wanted, held = header.body_bytes, self._last - self._first
        if held >= wanted and not self._body_bytes:
            request.body = bytes(self._inbox[self._first : self._first + wanted])
            self._first += wanted
            return True
        if not self._body:
            self._body = memoryview(bytearray(wanted))
        while self._body_bytes < wanted:
            rest = self._body[self._body_bytes :]
            count = min(len(rest), self._last - self._first)
            if count:
                rest[:count] = self._inbox[self._first : self._first + count]
                self._first += count
            else:
                count = self.stream.receive([rest])
                if count == BLOCKED:
                    return False
            self._body_bytes += count
        request.body = bytes(self._body)
        return True

    def _land(self, request: Request, sink: ShardRead, header: Header) -> bool:
        """Receive a value into L1, or past it when it does not fit or the memory is no longer ours."""
        if not request.body:
            if not self._collect(_FLAGS_BYTES, _FLAGS_BYTES):
                return False
            request.body = bytes(self._inbox[self._first : self._first + _FLAGS_BYTES])
            self._first += _FLAGS_BYTES
            if sink.xxh3 is not None:
                request.digest = xxhash.xxh3_64()
        wanted = header.body_bytes - _FLAGS_BYTES
        fits = wanted == sink.end - sink.start
        while request.landed_bytes < wanted:
            if self._first < self._last:
                raise ProtocolError("a value came before it was asked for")
            if fits and not request.is_revoked:
                count = self._receive_piece(request, sink)
            else:
                count = self.stream.receive([self._inbox[: min(wanted - request.landed_bytes, _INBOX_BYTES)]])
            if count == BLOCKED:
                return False
            request.landed_bytes += count
        return True

    def _receive_piece(self, request: Request, sink: ShardRead) -> int:
        """Receive what has come of a value, and behind its end the next answer's header."""
        start = sink.start + request.landed_bytes
        try:
            with sink.buffer.open() as view:
                rest = view[start : sink.end]
                count = self.stream.receive([rest, self._inbox[:_LANDING_HEAD_BYTES]])
                if count == BLOCKED:
                    return BLOCKED
                of_value = min(count, len(rest))
                if request.digest is not None:
                    request.digest.update(rest[:of_value])
        except BufferRevokedError:
            request.is_revoked = True
            return 0
        self._first, self._last = 0, count - of_value
        return of_value

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
    poller = select.poll()
    open_lanes = [lane for lane in lanes if not lane.is_done]
    waiting: dict[int, Lane] = {}
    while open_lanes:
        for lane in open_lanes:
            descriptor = lane.stream.fileno()
            events = lane.advance()
            if lane.is_done:
                if waiting.pop(descriptor, None) is not None:
                    poller.unregister(descriptor)
            else:
                poller.register(descriptor, events)
                waiting[descriptor] = lane
        left = deadline - time.monotonic()
        if left <= 0:
            return
        open_lanes = [waiting[ready] for ready, _ in poller.poll(left * 1000)] if waiting else []
        if waiting and not open_lanes:
            return
