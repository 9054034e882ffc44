"""Loads: from documents back into L1 memory, all of an object or none of it.

A load runs in steps on the worker threads and no step waits for another: one call reads the manifests of
several objects, then every object's shards are fetched in groups that run in parallel. An object counts
as loaded only when every byte of it has arrived and was verified; at the first doubt its memory is
revoked and its bit stays unset.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from couchbase_lm_cache.complaints import Complaints
from couchbase_lm_cache.errors import BufferRevokedError, ManifestError
from couchbase_lm_cache.keys import shard_key
from couchbase_lm_cache.sharding import Manifest, ShardRange, parse_manifest, refusal, shard_count, split
from couchbase_lm_cache.tasks import Countdown
from couchbase_lm_cache.transport import Document, Outcome, ShardRead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from couchbase_lm_cache.buffers import GuardedBuffer
    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
    from couchbase_lm_cache.tallies import Tallies
    from couchbase_lm_cache.tasks import Task
    from couchbase_lm_cache.transport import Transport
    from couchbase_lm_cache.workers import WorkerPool

logger = logging.getLogger(__name__)

GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of one call to Couchbase. Times the number of workers, this bounds what is in flight."""

_MANIFESTS_PER_CALL = 16

_WHY_NOT_LOADED = {
    "corrupt": "its bytes are not those that were stored (checksum); if this goes on, look for a faulty machine",
    "layout": "it was stored with other shapes or dtypes; servers with different settings share a key_prefix",
    "manifest": "the document at its key is no manifest; something else writes into the collection",
    "size": "it has another size than expected; servers with different settings share a key_prefix",
    "unverifiable": "it was stored without checksums and require_checksum is set",
    "wrong_length": "its parts do not have the lengths that its manifest promises",
}


@dataclass
class ObjectLoad:
    """One object on its way into L1.

    Attributes:
        key: document key of the object.
        buffer: where it goes.
        layout: hash of the shapes and dtypes of that buffer.
        is_loaded: whether every byte has arrived and was verified.
    """

    key: str
    buffer: GuardedBuffer
    layout: str
    is_loaded: bool = False
    manifest: Manifest | None = None
    cas: int = 0
    pending_groups: int = 0
    failure: Outcome | None = None
    replanned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Loader:
    """Runs load tasks.

    Args:
        settings: shard size and checksum rules.
        connection: gives the transport and learns from outcomes.
        workers: threads that make the calls.
        tallies: counts what became of objects.
    """

    def __init__(
        self, settings: CouchbaseLMCacheConfig, connection: Connection, workers: WorkerPool, tallies: Tallies
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._workers = workers
        self._tallies = tallies
        self._complaints = Complaints(logger)

    def start(self, task: Task[object], objects: Sequence[ObjectLoad]) -> None:
        """Load ``objects`` in the background and end ``task`` when all are settled."""
        settle = Countdown(len(objects), task.end)
        per_call = _MANIFESTS_PER_CALL
        if not self._settings.verifies_content:
            # What is at the keys may be whole objects of up to a shard's size.
            per_call = max(1, min(per_call, GROUP_BYTES // self._settings.shard_size_bytes))
        for start in range(0, len(objects), per_call):
            batch = objects[start : start + per_call]
            self._workers.submit(task, partial(self._read_manifests, task, batch, settle))

    def _read_manifests(self, task: Task[object], batch: Sequence[ObjectLoad], settle: Countdown) -> None:
        transport = self._connection.transport()
        if transport is None:
            documents = [Document(Outcome.TIMEOUT)] * len(batch)
        else:
            began = time.monotonic()
            documents = transport.read([load.key for load in batch], self._timeout(task))
            self._connection.note([document.outcome for document in documents], began)
        for load, document in zip(batch, documents, strict=True):
            load.cas = document.cas
            reason = self._admit(load, document)
            if reason is not None:
                self._give_up(load, reason, settle)
            elif load.manifest is None:
                self._finish(load, settle)
            else:
                self._start_shards(task, load, load.manifest, settle)

    def _admit(self, load: ObjectLoad, document: Document) -> str | None:
        """Look at the document at the object's key; return why the object cannot be loaded, if so."""
        if document.outcome is not Outcome.OK:
            return str(document.outcome.value)
        if not document.is_json:
            return self._fill_whole(load, document.content)
        try:
            load.manifest = parse_manifest(document.content)
        except ManifestError:
            return "manifest"
        return refusal(
            load.manifest,
            size_bytes=load.buffer.size_bytes,
            layout=load.layout,
            require_checksum=self._settings.require_checksum,
        )

    def _fill_whole(self, load: ObjectLoad, content: bytes) -> str | None:
        """Take an object that was stored as a single document, without manifest and checksum."""
        if self._settings.require_checksum:
            return "unverifiable"
        if len(content) != load.buffer.size_bytes:
            return "size"
        try:
            load.buffer.fill(0, content)
        except BufferRevokedError:
            return str(Outcome.REVOKED.value)
        return None

    def _start_shards(self, task: Task[object], load: ObjectLoad, manifest: Manifest, settle: Countdown) -> None:
        shard_size = self._settings.shard_size_bytes
        if load.replanned or shard_count(manifest.size_bytes, shard_size) != manifest.shards:
            learned = self._learn_shard_size(task, load.key, manifest)
            if isinstance(learned, str):
                self._give_up(load, learned, settle)
                return
            shard_size = learned
        groups = group_shards(split(manifest.size_bytes, shard_size), GROUP_BYTES)
        load.pending_groups = len(groups)
        if not groups:
            self._finish(load, settle)
        for group in groups:
            self._workers.submit(task, partial(self._read_group, task, load, manifest, group, settle))

    def _learn_shard_size(self, task: Task[object], key: str, manifest: Manifest) -> int | str:
        """Find the shard size of another writer, which no manifest tells: the length of its first shard."""
        transport = self._connection.transport()
        if transport is None:
            return str(Outcome.TIMEOUT.value)
        began = time.monotonic()
        first = transport.read([shard_key(key, 0)], self._timeout(task))[0]
        self._connection.note([first.outcome], began)
        if first.outcome is not Outcome.OK:
            return str(first.outcome.value)
        size = len(first.content)
        if size == 0 or shard_count(manifest.size_bytes, size) != manifest.shards:
            return str(Outcome.WRONG_LENGTH.value)
        return size

    def _read_group(
        self,
        task: Task[object],
        load: ObjectLoad,
        manifest: Manifest,
        group: Sequence[ShardRange],
        settle: Countdown,
    ) -> None:
        outcomes = [Outcome.REVOKED]
        transport = None if load.failure or load.buffer.is_revoked else self._connection.transport()
        if transport is not None:
            began = time.monotonic()
            outcomes = transport.read_into([_shard_read(load, manifest, part) for part in group], self._timeout(task))
            self._connection.note(outcomes, began)
        failed = next((outcome for outcome in outcomes if outcome is not Outcome.OK), None)
        with load.lock:
            load.failure = load.failure or failed
            load.pending_groups -= 1
            last = load.pending_groups == 0
        if last:
            self._after_last_group(task, load, manifest, transport, settle)

    def _after_last_group(
        self,
        task: Task[object],
        load: ObjectLoad,
        manifest: Manifest,
        transport: Transport | None,
        settle: Countdown,
    ) -> None:
        if load.failure is None:
            self._finish(load, settle)
        elif load.failure is Outcome.WRONG_LENGTH and not load.replanned:
            # Written with another shard size that happens to give the same number of shards.
            load.failure, load.replanned = None, True
            self._start_shards(task, load, manifest, settle)
        else:
            self._discard_broken(task, load, transport)
            self._give_up(load, load.failure.value, settle)

    def _discard_broken(self, task: Task[object], load: ObjectLoad, transport: Transport | None) -> None:
        """Remove the manifest of an object that has lost or damaged shards, so that it is stored again.

        Conditional on the version that was read: a writer may have replaced the object meanwhile. Done
        before the task ends, because LMCache stores the recomputed object right afterwards.
        """
        broken = load.failure in (Outcome.MISSING, Outcome.CORRUPT, Outcome.WRONG_LENGTH)
        if broken and transport is not None and not task.ended.is_set():
            transport.remove([load.key], self._timeout(task), load.cas)

    def _finish(self, load: ObjectLoad, settle: Countdown) -> None:
        load.is_loaded = True
        self._tallies.count("objects_loaded")
        self._tallies.count("bytes_loaded", load.buffer.size_bytes)
        settle.one_done()

    def _give_up(self, load: ObjectLoad, reason: str, settle: Countdown) -> None:
        load.buffer.revoke()
        self._tallies.count(f"loads_failed_{reason}")
        if reason in _WHY_NOT_LOADED:
            self._complaints.warn(reason, f"A stored chunk is recomputed: {_WHY_NOT_LOADED[reason]}")
        settle.one_done()

    def _timeout(self, task: Task[object]) -> float:
        return min(self._connection.call_timeout_seconds, task.remaining_seconds)


def group_shards(shards: Sequence[ShardRange], group_bytes: int) -> list[list[ShardRange]]:
    """Put consecutive shards together until a group holds ``group_bytes``; a bigger shard is alone."""
    groups: list[list[ShardRange]] = []
    held = 0
    for part in shards:
        if not groups or held + part.size_bytes > group_bytes:
            groups.append([])
            held = 0
        groups[-1].append(part)
        held += part.size_bytes
    return groups


def _shard_read(load: ObjectLoad, manifest: Manifest, part: ShardRange) -> ShardRead:
    sums = manifest.xxh3
    return ShardRead(
        shard_key(load.key, part.index), load.buffer, part.start, part.end, sums[part.index] if sums else None
    )
