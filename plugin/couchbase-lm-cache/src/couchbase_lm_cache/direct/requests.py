"""One request to a data node, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from couchbase_lm_cache.direct.wire import request_head

if TYPE_CHECKING:
    from couchbase_lm_cache.direct.wire import Header
    from couchbase_lm_cache.transport import ShardRead, ShardWrite


@dataclass(slots=True)
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
        digest: of what has landed, worked out while it is still in the processor's cache.
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
    digest: xxhash.xxh3_64 | None = None
    is_revoked: bool = False

    def head(self, opaque: int, value_bytes: int) -> bytes:
        """Encode everything up to a value in L1 memory."""
        return request_head(
            self.opcode,
            key=self.key,
            extras=self.extras,
            value_bytes=value_bytes,
            vbucket=self.vbucket,
            opaque=opaque,
            cas=self.cas,
        )

    @property
    def response_extras(self) -> bytes:
        """Return the extras of the answer."""
        return self.body[: self.header.extras_bytes] if self.header else b""

    @property
    def response_value(self) -> bytes:
        """Return the value of the answer."""
        return self.body[self.header.extras_bytes + self.header.key_bytes :] if self.header else b""
