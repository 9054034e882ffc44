"""The seam between the adapter and a way of talking to Couchbase.

A transport moves documents in batches and blocks the calling thread, never longer than the given
timeout. What becomes of each document is a value, not an exception: one failed document must not hide
the others. Bytes of L1 memory are only touched through the :class:`GuardedBuffer` in the request, so that
a transport can receive straight into it or copy into it, as it is able to.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.buffers import GuardedBuffer


def probe_key(number: int) -> str:
    """Return one of the keys under which nothing is ever stored."""
    return f"couchbase-lm-cache::probe::{number}"


PROBE_KEYS = tuple(map(probe_key, range(16)))
"""Enough keys to meet most data nodes of a usual cluster."""


class Outcome(enum.Enum):
    """What became of one document."""

    OK = "ok"
    MISSING = "missing"
    """It does not exist: never written, expired or evicted."""
    CORRUPT = "corrupt"
    """Its checksum is not the expected one."""
    WRONG_LENGTH = "wrong_length"
    """It is longer or shorter than expected."""
    REVOKED = "revoked"
    """The task ended meanwhile; nothing was touched."""
    BUSY = "busy"
    """Couchbase asked to try later (out of memory, or the connection was replaced)."""
    CONGESTED = "congested"
    """All connections to its data node were in use for too long: Couchbase was not asked."""
    LATE = "late"
    """The time ended while answers arrived: its data node lives, but is too slow or too far for so much."""
    TIMEOUT = "timeout"
    """No answer in time."""
    UNREACHABLE = "unreachable"
    """Its data node cannot be connected to, or nobody owns it."""
    DENIED = "denied"
    """The user may not do this, or the collection does not exist: the server tells both alike."""
    REFUSED = "refused"
    """Any other refusal; trying again is useless."""


class Document(NamedTuple):
    """One document read as a whole.

    Attributes:
        content: its bytes; empty unless ``outcome`` is OK.
        is_json: whether its flags say JSON (a manifest) rather than binary.
        cas: its version, for conditional removal.
    """

    outcome: Outcome
    content: bytes = b""
    is_json: bool = False
    cas: int = 0


@dataclass(frozen=True)
class Age:
    """How long a document has left.

    Attributes:
        document: the document itself.
        remaining_seconds: time until it expires; None when it never does.
    """

    document: Document
    remaining_seconds: float | None = None


class ShardRead(NamedTuple):
    """Read the document ``key`` into ``buffer[start:end]``.

    Nothing is written unless the document has exactly that length and, where ``xxh3`` is given, that
    checksum; a transport that must write first leaves the buffer unfilled instead.
    """

    key: str
    buffer: GuardedBuffer
    start: int
    end: int
    xxh3: str | None


class ShardWrite(NamedTuple):
    """Write ``buffer[start:end]`` as the binary document ``key``."""

    key: str
    buffer: GuardedBuffer
    start: int
    end: int


class Transport(Protocol):
    """A connection to one collection, safe to use from many threads.

    Calls ask again, within their timeout, for what Couchbase asks to try later. Where ``is_patient`` is
    false they say BUSY instead as soon as they know: the caller comes back by itself, and holds no thread,
    and no answers of other documents, meanwhile.
    """

    @property
    def name(self) -> str:
        """Which transport this is: ``direct`` or ``sdk``."""

    @property
    def notice(self) -> str:
        """Why it is not the one that was wished for; empty when it is."""

    def read(self, keys: Sequence[str], timeout_seconds: float, *, is_patient: bool = True) -> list[Document]:
        """Read whole documents."""

    def read_into(self, reads: Sequence[ShardRead], timeout_seconds: float) -> list[Outcome]:
        """Read documents into L1 memory."""

    def write(
        self, writes: Sequence[ShardWrite], ttl_seconds: int, timeout_seconds: float, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Write binary documents from L1 memory."""

    def write_json(
        self,
        documents: Sequence[tuple[str, bytes]],
        ttl_seconds: int,
        timeout_seconds: float,
        *,
        is_patient: bool = True,
    ) -> list[Outcome]:
        """Write JSON documents, each given as its key and its content."""

    def exists(self, keys: Sequence[str], timeout_seconds: float) -> list[Outcome]:
        """Say OK or MISSING for each key."""

    def probe(self, timeout_seconds: float) -> list[Outcome]:
        """Ask every data node for documents that do not exist: OK or MISSING from those that answer.

        It waits for no connection that other calls hold. One caller at a time.
        """

    def age(self, key: str, timeout_seconds: float) -> Age:
        """Read a document together with the time it has left."""

    def touch(self, keys: Sequence[str], ttl_seconds: int, timeout_seconds: float) -> list[Outcome]:
        """Give documents a new lifetime."""

    def remove(
        self, keys: Sequence[str], timeout_seconds: float, cas: int = 0, *, is_patient: bool = True
    ) -> list[Outcome]:
        """Remove documents; with ``cas``, only the version that was read."""

    def close(self) -> None:
        """Disconnect; calls under way end as failures."""
