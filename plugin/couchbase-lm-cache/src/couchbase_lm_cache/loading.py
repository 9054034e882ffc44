"""Loads: from documents back into L1 memory, all of an object or none of it.

A load runs in steps on the worker threads and no step waits for another: one call reads the manifests of
several objects, then their shards are fetched in groups that run in parallel. A group holds so many bytes,
be they a part of one large object or many small ones: what a call costs is shared by all that is in it. An
object counts as loaded only when every byte of it has arrived and was verified; at the first doubt its
memory is revoked and its bit stays unset.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from couchbase_lm_cache.batching import batches, grouped
from couchbase_lm_cache.complaints import Complaints
from couchbase_lm_cache.errors import BufferRevokedError, ManifestError
from couchbase_lm_cache.keys import shard_key
from couchbase_lm_cache.sharding import Manifest, parse_manifest, refusal, shard_count, split
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
    pending_parts: int = 0
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
        for batch in batches(objects, lambda load: load.buffer.size_bytes, self._settings):
            self._workers.submit(task, partial(self._read_manifests, task, batch, settle))

    def _read_manifests(self, task: Task[object], batch: Sequence[ObjectLoad], settle: Countdown) -> None:
        transport = self._connection.transport()
        if transport is None:
            documents = [Document(Outcome.TIMEOUT)] * len(batch)
        else:
            began = time.monotonic()
            documents = transport.read([load.key for load in batch], self._timeout(task))
            self._connection.note([document.outcome for document in documents], began)
        whole, parts, waiting = [], [], []
        for load, document in zip(batch, documents, strict=True):
            if task.gets_another_turn(document.outcome):
                waiting.append(load)
                continue
            load.cas = document.cas
            reason = self._admit(load, document)
            if reason is not None:
                self._give_up(load, reason, settle)
            elif load.manifest is None or load.manifest.shards == 0:
                whole.append(load)
            elif shard_count(load.manifest.size_bytes, self._settings.shard_size_bytes) != load.manifest.shards:
                self._workers.submit(task, partial(self._start_foreign, task, load, settle))
            else:
                parts += _parts(load, self._settings.shard_size_bytes)
        if waiting:
            self._workers.submit(task, partial(self._read_manifests, task, waiting, settle))
        self._finish(whole, settle)
        self._start_groups(task, parts, settle)

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

    def _start_groups(self, task: Task[object], parts: Sequence[_Part], settle: Countdown) -> None:
        """Fetch parts, a call for each group; the first on this thread, which has nothing else to do."""
        groups = grouped(parts, lambda part: part.end - part.start)
        for group in groups[1:]:
            self._workers.submit(task, partial(self._read_group, task, group, settle))
        if groups:
            self._read_group(task, groups[0], settle)

    def _start_foreign(self, task: Task[object], load: ObjectLoad, settle: Countdown) -> None:
        """Fetch an object that was written with another shard size."""
        learned = self._learn_shard_size(task, load)
        if isinstance(learned, int):
            self._start_groups(task, _parts(load, learned), settle)
        elif task.gets_another_turn(learned):
            self._workers.submit(task, partial(self._start_foreign, task, load, settle))
        else:
            self._give_up(load, str(learned.value), settle)

    def _learn_shard_size(self, task: Task[object], load: ObjectLoad) -> int | Outcome:
        """Find the shard size of another writer, which no manifest tells: the length of its first shard."""
        transport, manifest = self._connection.transport(), load.manifest
        if transport is None or manifest is None:
            return Outcome.TIMEOUT
        began = time.monotonic()
        first = transport.read([shard_key(load.key, 0)], self._timeout(task))[0]
        self._connection.note([first.outcome], began)
        if first.outcome is not Outcome.OK:
            return first.outcome
        size = len(first.content)
        if size == 0 or shard_count(manifest.size_bytes, size) != manifest.shards:
            return Outcome.WRONG_LENGTH
        return size

    def _read_group(self, task: Task[object], group: Sequence[_Part], settle: Countdown) -> None:
        wanted = [part for part in group if part.load.failure is None and not part.load.buffer.is_revoked]
        outcomes: dict[_Part, Outcome] = {}
        transport = self._connection.transport() if wanted else None
        if transport is not None:
            began = time.monotonic()
            answers = transport.read_into([_shard_read(part) for part in wanted], self._timeout(task))
            self._connection.note(answers, began)
            outcomes = dict(zip(wanted, answers, strict=True))
        ended, waiting = [], []
        for part in group:
            outcome, load = outcomes.get(part, Outcome.REVOKED), part.load
            if task.gets_another_turn(outcome):
                waiting.append(part)
                continue
            with load.lock:
                if outcome is not Outcome.OK:
                    load.failure = load.failure or outcome
                load.pending_parts -= 1
                if load.pending_parts == 0:
                    ended.append(load)
        if waiting:
            # It was not asked for, as no connection was free: another turn costs nothing but time.
            self._workers.submit(task, partial(self._read_group, task, waiting, settle))
        self._conclude(task, ended, transport, settle)

    def _conclude(
        self, task: Task[object], ended: Sequence[ObjectLoad], transport: Transport | None, settle: Countdown
    ) -> None:
        """Settle objects whose parts have all been asked for."""
        self._finish([load for load in ended if load.failure is None], settle)
        for load in ended:
            if load.failure is None:
                continue
            if load.failure is Outcome.WRONG_LENGTH and not load.replanned:
                # Written with another shard size that happens to give the same number of shards.
                load.failure, load.replanned = None, True
                self._workers.submit(task, partial(self._start_foreign, task, load, settle))
            elif len(ended) == 1:
                self._abandon(task, load, load.failure, transport, settle)
            else:
                # Side by side: hundreds of small objects whose shards were evicted would add up to a wait.
                self._workers.submit(task, partial(self._abandon, task, load, load.failure, transport, settle))

    def _abandon(
        self, task: Task[object], load: ObjectLoad, failure: Outcome, transport: Transport | None, settle: Countdown
    ) -> None:
        self._discard_broken(task, load, transport)
        self._give_up(load, failure.value, settle)

    def _discard_broken(self, task: Task[object], load: ObjectLoad, transport: Transport | None) -> None:
        """Remove the manifest of an object that has lost or damaged shards, so that it is stored again.

        Conditional on the version that was read: a writer may have replaced the object meanwhile. Done
        before the task ends, because LMCache stores the recomputed object right afterwards.
        """
        broken = load.failure in (Outcome.MISSING, Outcome.CORRUPT, Outcome.WRONG_LENGTH)
        if broken and transport is not None and not task.ended.is_set():
            transport.remove([load.key], self._timeout(task), load.cas)

    def _finish(self, loads: Sequence[ObjectLoad], settle: Countdown) -> None:
        if not loads:
            return
        for load in loads:
            load.is_loaded = True
        self._tallies.count("objects_loaded", len(loads))
        self._tallies.count("bytes_loaded", sum(load.buffer.size_bytes for load in loads))
        settle.some_done(len(loads))

    def _give_up(self, load: ObjectLoad, reason: str, settle: Countdown) -> None:
        load.buffer.revoke()
        self._tallies.count(f"loads_failed_{reason}")
        if reason in _WHY_NOT_LOADED:
            self._complaints.warn(reason, f"A stored chunk is recomputed: {_WHY_NOT_LOADED[reason]}")
        settle.one_done()

    def _timeout(self, task: Task[object]) -> float:
        return min(self._connection.call_timeout_seconds, task.remaining_seconds)


class _Part:
    """One shard of one object on its way."""

    __slots__ = ("end", "index", "load", "start")

    def __init__(self, load: ObjectLoad, index: int, start: int, end: int) -> None:
        self.load, self.index, self.start, self.end = load, index, start, end


def _parts(load: ObjectLoad, shard_size_bytes: int) -> list[_Part]:
    """Cut an object into its shards, all of which are to be fetched."""
    size = load.manifest.size_bytes if load.manifest else 0
    parts = [_Part(load, shard.index, shard.start, shard.end) for shard in split(size, shard_size_bytes)]
    load.pending_parts = len(parts)
    return parts


def _shard_read(part: _Part) -> ShardRead:
    load = part.load
    sums = load.manifest.xxh3 if load.manifest else None
    key = shard_key(load.key, part.index)
    return ShardRead(key, load.buffer, part.start, part.end, sums[part.index] if sums else None)
