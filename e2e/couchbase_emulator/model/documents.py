"""Documents of one bucket: vBuckets, expiry, memory accounting per node and eviction.

Values are kept as the buffer they arrived in and are never copied.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from e2e.couchbase_emulator.model.clock import Clock

# Metadata of one document in memory: stored value, key, hash table slot.
DOCUMENT_OVERHEAD_BYTES = 96
# kv_engine `mutation_mem_ratio`: above this share of the quota writes are refused for the time being.
WRITE_LIMIT_SHARE = 0.93
# kv_engine gives a new document this access frequency and counts reads up to 255.
_INITIAL_FREQUENCY = 4
_MAX_FREQUENCY = 255

Buffer = bytes | bytearray | memoryview


class Room(Enum):
    """Answer to the question whether a write fits."""

    FREE = "free"
    TEMPORARILY_FULL = "temporarily full"
    OUT_OF_MEMORY = "out of memory"


class Document(NamedTuple):
    """A document as tests inspect it; `expiry` is a Unix time, 0 = never."""

    value: bytes
    flags: int
    expiry: int


@dataclass(slots=True)
class StoredDocument:
    """A document in memory."""

    value: Buffer
    flags: int
    expiry: int
    datatype: int
    cas: int
    seqno: int
    size_bytes: int
    frequency: int = _INITIAL_FREQUENCY


class DocumentStore:
    """All documents of a bucket. Keys are wire keys: LEB128 collection id, then the key."""

    def __init__(
        self,
        *,
        clock: Clock,
        owners: list[int],
        node_count: int,
        quota_bytes: int,
        evicts_documents: bool,
        limited_by_memory: bool,
    ) -> None:
        self.clock = clock
        self.owners = owners
        self.quota_bytes = quota_bytes
        self.evicts_documents = evicts_documents
        self.limited_by_memory = limited_by_memory
        self.low_watermark_share = 0.75
        self.high_watermark_share = 0.85
        self.used_bytes = [0] * node_count
        self.evicted_documents = 0
        self.refused_writes = 0
        self.expired_documents = 0
        self.on_pressure: Callable[[int], None] | None = None
        self._vbuckets: list[dict[bytes, StoredDocument]] = [{} for _ in owners]
        self._seqnos = [0] * len(owners)
        self._cas = itertools.count(int(clock.now_seconds() * 1e9) & ~0xFFFF, 1 << 16)

    def get(self, vbucket: int, key: bytes) -> StoredDocument | None:
        """The live document, or None when missing or expired."""
        document = self._vbuckets[vbucket].get(key)
        if document is None:
            return None
        if document.expiry and document.expiry <= self.clock.now_seconds():
            self.remove(vbucket, key)
            self.expired_documents += 1
            return None
        if document.frequency < _MAX_FREQUENCY:
            document.frequency += 1
        return document

    def room_for(self, vbucket: int, key: bytes, value_bytes: int) -> Room:
        """Whether a write of this size fits now, by kv_engine's rule."""
        if not self.limited_by_memory:
            return Room.FREE
        node = self.owners[vbucket]
        used = self.used_bytes[node]
        if used + value_bytes + len(key) + DOCUMENT_OVERHEAD_BYTES <= self.quota_bytes * WRITE_LIMIT_SHARE:
            return Room.FREE
        self.refused_writes += 1
        self._signal_pressure(node)
        return Room.OUT_OF_MEMORY if used > self.quota_bytes else Room.TEMPORARILY_FULL

    def put(
        self, vbucket: int, key: bytes, value: Buffer, *, flags: int, expiry: int, datatype: int = 0
    ) -> StoredDocument:
        """Store a document; `expiry` is a Unix time. The caller asked `room_for` before."""
        self._seqnos[vbucket] += 1
        size_bytes = len(value) + len(key) + DOCUMENT_OVERHEAD_BYTES
        document = StoredDocument(value, flags, expiry, datatype, next(self._cas), self._seqnos[vbucket], size_bytes)
        documents = self._vbuckets[vbucket]
        previous = documents.get(key)
        node = self.owners[vbucket]
        self.used_bytes[node] += size_bytes - (previous.size_bytes if previous else 0)
        documents[key] = document
        if self.used_bytes[node] > self.quota_bytes * self.high_watermark_share:
            self._signal_pressure(node)
        return document

    def touch(self, document: StoredDocument, expiry: int) -> None:
        """Give a document a new expiry (Unix time) and with it a new CAS."""
        document.expiry = expiry
        document.cas = next(self._cas)

    def remove(self, vbucket: int, key: bytes) -> StoredDocument | None:
        """Remove and return a document."""
        document = self._vbuckets[vbucket].pop(key, None)
        if document is not None:
            self.used_bytes[self.owners[vbucket]] -= document.size_bytes
        return document

    def drop_prefix(self, prefix: bytes) -> None:
        """Remove every document whose wire key starts with `prefix`: a dropped collection."""
        for vbucket, documents in enumerate(self._vbuckets):
            for key in [key for key in documents if key.startswith(prefix)]:
                self.remove(vbucket, key)

    def lose_node(self, node: int) -> None:
        """Forget what the memory of a node held."""
        for vbucket, owner in enumerate(self.owners):
            if owner == node:
                self._vbuckets[vbucket].clear()
        self.used_bytes[node] = 0

    def clear(self) -> None:
        """Remove every document: a flush."""
        for documents in self._vbuckets:
            documents.clear()
        self.used_bytes = [0] * len(self.used_bytes)

    def move(self, owners: list[int]) -> None:
        """Give vBuckets new owners, new nodes among them; documents move along: the end of a rebalance."""
        self.owners[:] = owners
        self.used_bytes = [0] * max(len(self.used_bytes), max(owners) + 1)
        for vbucket, documents in enumerate(self._vbuckets):
            self.used_bytes[owners[vbucket]] += sum(document.size_bytes for document in documents.values())

    def in_vbucket(self, vbucket: int) -> Iterator[tuple[bytes, StoredDocument]]:
        """Every live document of a vBucket with its wire key."""
        now = self.clock.now_seconds()
        for key, document in self._vbuckets[vbucket].items():
            if not document.expiry or document.expiry > now:
                yield key, document

    def items(self) -> Iterator[tuple[bytes, StoredDocument]]:
        """Every live document with its wire key."""
        now = self.clock.now_seconds()
        for documents in self._vbuckets:
            for key, document in documents.items():
                if not document.expiry or document.expiry > now:
                    yield key, document

    def count(self) -> int:
        """Number of documents, expired ones that nobody touched included, as `itemCount` does."""
        return sum(map(len, self._vbuckets))

    def seqno(self, vbucket: int) -> int:
        """Sequence number of the last mutation of a vBucket."""
        return self._seqnos[vbucket]

    def relieve(self, node: int) -> int:
        """The item pager: expire, then evict the least used documents down to the low watermark; returns how many."""
        if self.used_bytes[node] <= self.quota_bytes * self.high_watermark_share:
            return 0
        self._expire(node)
        if not self.evicts_documents:
            return 0
        target = self.quota_bytes * self.low_watermark_share
        candidates = [
            (document.frequency, document.seqno, vbucket, key)
            for vbucket, documents in enumerate(self._vbuckets)
            if self.owners[vbucket] == node
            for key, document in documents.items()
        ]
        candidates.sort()
        evicted = 0
        for _, _, vbucket, key in candidates:
            if self.used_bytes[node] <= target:
                break
            self.remove(vbucket, key)
            evicted += 1
        self._age(node)
        self.evicted_documents += evicted
        return evicted

    def _expire(self, node: int) -> None:
        now = self.clock.now_seconds()
        for vbucket, documents in enumerate(self._vbuckets):
            if self.owners[vbucket] != node:
                continue
            for key in [key for key, document in documents.items() if 0 < document.expiry <= now]:
                self.remove(vbucket, key)
                self.expired_documents += 1

    def _age(self, node: int) -> None:
        for vbucket, documents in enumerate(self._vbuckets):
            if self.owners[vbucket] == node:
                for document in documents.values():
                    document.frequency = max(document.frequency - 1, 0)

    def _signal_pressure(self, node: int) -> None:
        if self.on_pressure is not None:
            self.on_pressure(node)
