"""One document of a call across its attempts, and what its answer means."""

from __future__ import annotations

import struct

from couchbase_lm_cache.direct.requests import Request
from couchbase_lm_cache.direct.wire import Opcode
from couchbase_lm_cache.document_flags import is_json
from couchbase_lm_cache.transport import Document, Outcome, ShardRead, ShardWrite

_FLAGS = struct.Struct(">I")
_META = struct.Struct(">IIIQ")
"""Extras of GET_META: deleted, flags, expiry, sequence number."""
_NOT_SENT = Request(int(Opcode.GET))


class Call:
    """One document of a call."""

    __slots__ = (
        "_cas",
        "_extras",
        "_opcode",
        "_sink",
        "_source",
        "_value",
        "is_open",
        "key",
        "losses",
        "outcome",
        "request",
    )

    def __init__(
        self,
        opcode: Opcode,
        key: str,
        extras: bytes = b"",
        *,
        value: bytes = b"",
        cas: int = 0,
        source: ShardWrite | None = None,
        sink: ShardRead | None = None,
    ) -> None:
        self.key = key.encode()
        self.outcome = Outcome.TIMEOUT
        self.is_open = True
        self.losses = 0
        self._opcode = int(opcode)
        self._extras, self._value, self._cas = extras, value, cas
        self._source, self._sink = source, sink
        self.request = _NOT_SENT

    def prepare(self, vbucket: int, collection_prefix: bytes) -> Request:
        """Make a fresh request for an attempt."""
        self.request = Request(
            self._opcode,
            collection_prefix + self.key,
            self._extras,
            self._value,
            vbucket,
            self._cas,
            self._source,
            self._sink,
        )
        return self.request

    def settle(self, outcome: Outcome) -> None:
        """Note the outcome for good."""
        self.outcome, self.is_open = outcome, False

    def try_later(self, outcome: Outcome) -> None:
        """Note what the outcome is if no later attempt brings another one."""
        self.outcome = outcome

    def reopen(self, outcome: Outcome) -> None:
        """Try again after all, if that is what became of it."""
        if self.outcome is outcome:
            self.outcome, self.is_open = Outcome.TIMEOUT, True

    @property
    def extras_of_answer(self) -> bytes:
        """Return the extras of the answer."""
        return self.request.response_extras


def document(call: Call) -> Document:
    """Return what a GET has brought."""
    if call.outcome is not Outcome.OK:
        return Document(call.outcome)
    extras, header = call.extras_of_answer, call.request.header
    if len(extras) != _FLAGS.size or header is None:
        return Document(Outcome.REFUSED)
    return Document(Outcome.OK, call.request.response_value, is_json(_FLAGS.unpack(extras)[0]), header.cas)


def presence(call: Call) -> Outcome:
    """Return OK or MISSING from the metadata of a document, or why neither is known."""
    if call.outcome is not Outcome.OK:
        return call.outcome
    if len(call.extras_of_answer) < _META.size:
        return Outcome.REFUSED
    is_deleted = _META.unpack_from(call.extras_of_answer)[0]
    return Outcome.MISSING if is_deleted else Outcome.OK


def landed(call: Call) -> Outcome:
    """Judge a value that has arrived in L1: its length, its flags and its checksum."""
    request = call.request
    read = request.sink
    if call.outcome is not Outcome.OK or read is None:
        return call.outcome
    if request.landed_bytes != read.end - read.start:
        return Outcome.WRONG_LENGTH
    if is_json(_FLAGS.unpack(request.body)[0]):
        return Outcome.CORRUPT
    if read.xxh3 is not None and (request.digest is None or request.digest.hexdigest() != read.xxh3):
        return Outcome.CORRUPT
    return Outcome.OK


def expiry_moment(call: Call) -> int:
    """Return when a document expires, in seconds since 1970; 0 for never. Only where :func:`presence` says OK."""
    moment: int = _META.unpack_from(call.extras_of_answer)[2]
    return moment
