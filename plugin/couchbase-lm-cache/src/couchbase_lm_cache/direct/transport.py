"""The transport that speaks to the data nodes itself: no copies, several connections per node.

It keeps the promises of :class:`couchbase_lm_cache.transport.Transport`: every call ends by its timeout,
and what becomes of each document is a value. Within the timeout it follows moved documents to their new
node, waits for what Couchbase asks to try later unless its caller does, and repeats what was lost with a
connection: every request here may be carried out twice without harm.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.complaints import Complaints
from couchbase_lm_cache.direct.calls import Call, document, expiry_moment, landed, presence
from couchbase_lm_cache.direct.exchange import Lane, run
from couchbase_lm_cache.direct.session import (
    BucketRefusedError,
    CollectionRefusedError,
    LoginRefusedError,
    Session,
)
from couchbase_lm_cache.direct.stream import ConnectionLostError
from couchbase_lm_cache.direct.topology import SESSION_ERRORS
from couchbase_lm_cache.direct.wire import (
    Opcode,
    ProtocolError,
    Status,
    expiry,
)
from couchbase_lm_cache.document_flags import BINARY_FLAGS, JSON_FLAGS
from couchbase_lm_cache.pauses import Pauses
from couchbase_lm_cache.transport import Age, Document, Outcome, ShardRead, ShardWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.direct.addresses import Node
    from couchbase_lm_cache.direct.node_pool import NodePool
    from couchbase_lm_cache.direct.topology import Topology

logger = logging.getLogger(__name__)

_FLAGS = struct.Struct(">I")
_FLAGS_AND_EXPIRY = struct.Struct(">II")
_REPEATS_OF_LOST = 2
_BORROWING_SHARE = 0.5
"""Part of the time left in which a connection must be had: the rest is for making use of it, and for other nodes."""

_FINAL: dict[int | None, Outcome] = {
    Status.OK: Outcome.OK,
    Status.NOT_FOUND: Outcome.MISSING,
    # A version that is gone was replaced by another writer: for the caller the old one is missing.
    Status.EXISTS: Outcome.MISSING,
    Status.ACCESS_DENIED: Outcome.DENIED,
    Status.AUTH_ERROR: Outcome.DENIED,
    Status.NO_BUCKET: Outcome.DENIED,
}
_TRY_LATER = frozenset({
    Status.OUT_OF_MEMORY,
    Status.BUSY,
    Status.TEMPORARY_FAILURE,
    Status.LOCKED,
    Status.SYNC_WRITE_IN_PROGRESS,
    Status.AUTH_STALE,
})  # fmt: skip


class DirectTransport:
    """See :class:`couchbase_lm_cache.transport.Transport`; made by :func:`couchbase_lm_cache.direct.connect`."""

    name = "direct"
    notice = ""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._closed = threading.Event()
        self._complaints = Complaints(logger)

    def read(self, keys: Sequence[str], timeout_seconds: float, *, is_patient: bool = True) -> list[Document]:
        """Read whole documents."""
        calls = [Call(Opcode.GET, key) for key in keys]
        return [document(call) for call in self._perform(calls, "small", timeout_seconds, is_patient=is_patient)]

    def read_into(self, reads: Sequence[ShardRead], timeout_seconds: float) -> list[Outcome]:
        """Read documents straight into L1 memory, verified while they arrive."""
        calls = self._perform([Call(Opcode.GET, read.key, sink=read) for read in reads], "load", timeout_seconds)
        return [landed(call) for call in calls]

    def write(
        self, writes: Sequence[ShardWrite], ttl_seconds: int, timeout_seconds: float, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Write binary documents straight from L1 memory."""
        extras = _FLAGS_AND_EXPIRY.pack(BINARY_FLAGS, expiry(ttl_seconds, time.time()))
        calls = [Call(Opcode.SET, write.key, extras, source=write) for write in writes]
        return [call.outcome for call in self._perform(calls, "store", timeout_seconds, is_patient=is_patient)]

    def write_json(
        self,
        documents: Sequence[tuple[str, bytes]],
        ttl_seconds: int,
        timeout_seconds: float,
        *,
        is_patient: bool = True,
    ) -> list[Outcome]:
        """Write JSON documents."""
        extras = _FLAGS_AND_EXPIRY.pack(JSON_FLAGS, expiry(ttl_seconds, time.time()))
        calls = [Call(Opcode.SET, key, extras, value=content) for key, content in documents]
        return [call.outcome for call in self._perform(calls, "small", timeout_seconds, is_patient=is_patient)]

    def exists(self, keys: Sequence[str], timeout_seconds: float) -> list[Outcome]:
        """Say OK or MISSING for each key, from its metadata alone."""
        calls = self._perform([Call(Opcode.GET_META, key) for key in keys], "small", timeout_seconds)
        return [presence(call) for call in calls]

    def probe(self, timeout_seconds: float) -> list[Outcome]:
        """Ask every data node of the map, over a connection that nothing else uses."""
        calls = [Call(Opcode.GET_META, key) for key in self._topology.probe_keys()]
        return [presence(call) for call in self._perform(calls, "probe", timeout_seconds)]

    def age(self, key: str, timeout_seconds: float) -> Age:
        """Read a document together with the time it has left."""
        calls = [Call(Opcode.GET, key), Call(Opcode.GET_META, key)]
        first, meta = self._perform(calls, "small", timeout_seconds)
        found = presence(meta)
        if first.outcome is not Outcome.OK or found is not Outcome.OK:
            return Age(Document(found if first.outcome is Outcome.OK else first.outcome))
        moment = expiry_moment(meta)
        return Age(document(first), moment - time.time() if moment else None)

    def touch(self, keys: Sequence[str], ttl_seconds: int, timeout_seconds: float) -> list[Outcome]:
        """Give documents a new lifetime."""
        extras = _FLAGS.pack(expiry(ttl_seconds, time.time()))
        calls = self._perform([Call(Opcode.TOUCH, key, extras) for key in keys], "small", timeout_seconds)
        return [call.outcome for call in calls]

    def remove(
        self, keys: Sequence[str], timeout_seconds: float, cas: int = 0, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Remove documents; with ``cas``, only the version that was read."""
        calls = [Call(Opcode.DELETE, key, cas=cas) for key in keys]
        return [call.outcome for call in self._perform(calls, "small", timeout_seconds, is_patient=is_patient)]

    def close(self) -> None:
        """Disconnect; calls under way end as failures."""
        self._closed.set()
        self._topology.close()

    def _perform(self, calls: list[Call], kind: str, timeout_seconds: float, *, is_patient: bool = True) -> list[Call]:
        """Carry out ``calls`` until each has an outcome that waiting does not change, or time is up."""
        deadline = time.monotonic() + timeout_seconds
        pauses = Pauses(deadline, self._closed)
        pending = calls
        while pending and not self._closed.is_set():
            self._attempt(pending, kind, deadline)
            pending = [call for call in pending if call.is_open and (is_patient or call.outcome is not Outcome.BUSY)]
            if pending and not pauses.wait():
                break
        if self._closed.is_set():
            for call in pending:
                call.settle(Outcome.BUSY)
        return calls

    def _attempt(self, calls: list[Call], kind: str, deadline: float) -> None:
        """Send every call to the node that owns its document now, all nodes side by side."""
        by_node: dict[Node, list[Call]] = {}
        unowned = []
        present, prefix = self._topology.map, self._topology.collection_prefix
        for call in calls:
            vbucket = present.vbucket_of(call.key)
            node = present.owners[vbucket]
            if node is None:
                unowned.append(call)
            else:
                call.prepare(vbucket, prefix)
                by_node.setdefault(node, []).append(call)
        lanes: list[tuple[Node, Lane, list[Call]]] = []
        lent: list[tuple[NodePool, Session, Lane]] = []
        try:
            # In one order everywhere: two callers that each held what the other waits for would both time out.
            for node in sorted(by_node):
                pool = self._topology.pool(node, kind)
                session = self._borrow(pool, by_node[node], deadline, is_alone=len(by_node) == 1)
                if session is not None:
                    lane = Lane(session.stream, [call.request for call in by_node[node]])
                    lent.append((pool, session, lane))
                    lanes.append((node, lane, by_node[node]))
            run([lane for _, lane, _ in lanes], deadline)
        finally:
            # To the pool it came from: a new map may have replaced the node's pool meanwhile.
            for pool, session, lane in lent:
                pool.give_back(session, is_clean=lane.is_clean)
        for call in unowned:
            call.settle(Outcome.UNREACHABLE)
        for node, lane, sent in lanes:
            self._conclude(node, lane, sent, deadline)
        if any(call.outcome is Outcome.UNREACHABLE for call in calls):
            # Another caller may have learned of a new map meanwhile, and closed the sessions that the old one needed.
            is_news = self._topology.map is not present or self._topology.refresh(deadline)
            for call in calls if is_news or self._topology.map is not present else ():
                call.reopen(Outcome.UNREACHABLE)

    def _borrow(self, pool: NodePool, calls: list[Call], deadline: float, *, is_alone: bool) -> Session | None:
        now = time.monotonic()
        share = now + _BORROWING_SHARE * (deadline - now)
        # A node that accepts connections and then says nothing must not use up the time of others.
        limit = deadline if is_alone else share
        try:
            session = pool.borrow(limit, share)
        except SESSION_ERRORS as error:
            cause = error.__cause__ or error
            if isinstance(cause, (LoginRefusedError, BucketRefusedError)):
                outcome = Outcome.DENIED
            else:
                outcome = Outcome.UNREACHABLE if time.monotonic() < limit else Outcome.TIMEOUT
            for call in calls:
                call.settle(outcome)
            return None
        if session is None:
            for call in calls:
                call.settle(Outcome.CONGESTED)
        return session

    def _conclude(self, node: Node, lane: Lane, calls: list[Call], deadline: float) -> None:
        self._complain(node, lane)
        moved, unknown = None, False
        for call in calls:
            request = call.request
            if request.is_revoked:
                call.settle(Outcome.REVOKED)
            elif (outcome := _FINAL.get(request.status)) is not None:
                call.settle(outcome)
            elif request.status is None:
                self._conclude_unanswered(call, lane)
            elif request.status == Status.NOT_MY_VBUCKET:
                moved = request.response_value
            elif request.status == Status.UNKNOWN_COLLECTION:
                unknown = True
            elif request.status in _TRY_LATER:
                call.try_later(Outcome.BUSY)
            else:
                call.settle(Outcome.REFUSED)
        if moved is not None:
            self._follow(node, moved, deadline)
        if unknown:
            self._renew_collection(node, calls, deadline)

    def _complain(self, node: Node, lane: Lane) -> None:
        if isinstance(lane.failure, ProtocolError):
            self._complaints.warn("protocol", f"A connection to {node.host}:{node.port} was dropped: {lane.failure}")

    def _conclude_unanswered(self, call: Call, lane: Lane) -> None:
        if lane.failure is None:
            # The deadline came: it stays a timeout, unless the node was answering.
            if lane.has_heard:
                call.try_later(Outcome.LATE)
            return
        source = call.request.source
        if source is not None and source.buffer.is_revoked:
            call.settle(Outcome.REVOKED)  # its task has ended: a repetition would only cost another connection
            return
        call.losses += 1
        if call.losses > _REPEATS_OF_LOST:
            call.settle(Outcome.UNREACHABLE if isinstance(lane.failure, ConnectionLostError) else Outcome.BUSY)

    def _follow(self, node: Node, config: bytes, deadline: float) -> None:
        if not config:
            self._topology.refresh(deadline)
            return
        try:
            self._topology.learn_map(config, node)
        except ProtocolError as error:
            self._complaints.warn("map", f"The new map from {node.host}:{node.port} cannot be used: {error}")

    def _renew_collection(self, node: Node, calls: list[Call], deadline: float) -> None:
        try:
            self._topology.renew_collection(node, deadline)
        except CollectionRefusedError:
            for call in calls:
                if call.request.status == Status.UNKNOWN_COLLECTION:
                    call.settle(Outcome.DENIED)
