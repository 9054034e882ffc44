"""Stores: from L1 memory to documents, shards first and the manifest last.

Stores overwrite: keys name their content, but computing a chunk twice need not give the same bytes. An
object whose manifest is in the bucket already with the very same checksums is not sent again. Whatever
Couchbase asks to try later is tried again with growing pauses until the task's deadline.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from couchbase_lm_cache.complaints import Complaints
from couchbase_lm_cache.errors import BufferRevokedError, ManifestError
from couchbase_lm_cache.keys import shard_key
from couchbase_lm_cache.loading import GROUP_BYTES, group_shards
from couchbase_lm_cache.sharding import Manifest, ShardRange, checksum, parse_manifest, split
from couchbase_lm_cache.tasks import Countdown
from couchbase_lm_cache.transport import Document, Outcome, ShardWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.buffers import GuardedBuffer
    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.expiry import ExpiryRefresher
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
    from couchbase_lm_cache.tallies import Tallies
    from couchbase_lm_cache.tasks import Task
    from couchbase_lm_cache.transport import Transport
    from couchbase_lm_cache.workers import WorkerPool

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.05, 2.0
_WORTH_REPEATING = (Outcome.BUSY, Outcome.TIMEOUT, Outcome.UNREACHABLE)

_WHY_NOT_STORED = {
    Outcome.REVOKED: "its deadline came first; Couchbase is too slow or out of memory for what is computed",
    Outcome.REFUSED: "the server refused it for good; is shard_size_bytes above the limit of the server?",
}


@dataclass
class ObjectStore:
    """One object on its way into Couchbase.

    Attributes:
        key: document key of the object.
        buffer: the memory it is read from.
        layout: hash of the shapes and dtypes of that buffer.
        is_stored: whether it can be loaded now.
        sent_bytes: what had to be sent for it.
    """

    key: str
    buffer: GuardedBuffer
    layout: str
    is_stored: bool = False
    sent_bytes: int = 0
    pending_groups: int = 0
    failure: Outcome | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Storer:
    """Runs store tasks.

    Args:
        settings: shard size, checksum rules and lifetime.
        connection: gives the transport and learns from outcomes.
        workers: threads that make the calls.
        refresher: told of every object that is in the bucket.
        tallies: counts what became of objects.
    """

    def __init__(
        self,
        settings: CouchbaseLMCacheConfig,
        connection: Connection,
        workers: WorkerPool,
        refresher: ExpiryRefresher,
        tallies: Tallies,
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._workers = workers
        self._refresher = refresher
        self._tallies = tallies
        self._complaints = Complaints(logger)

    def start(self, task: Task[object], objects: Sequence[ObjectStore]) -> None:
        """Store ``objects`` in the background and end ``task`` when all are settled."""
        settle = Countdown(len(objects), task.end)
        for store in objects:
            self._workers.submit(task, partial(self._begin, task, store, settle))

    def _begin(self, task: Task[object], store: ObjectStore, settle: Countdown) -> None:
        transport = self._connection.transport()
        if transport is None:
            self._give_up(Outcome.TIMEOUT, settle)
            return
        shards = split(store.buffer.size_bytes, self._settings.shard_size_bytes)
        try:
            manifest = self._describe(store, shards)
        except BufferRevokedError:
            self._give_up(Outcome.REVOKED, settle)
            return
        if manifest is None:
            self._write_whole(task, store, settle)
            return
        present = self._read_present(task, store.key, transport)
        if manifest.xxh3 is not None and present.is_json and present.content == manifest.to_json():
            self._refresher.hit([store.key])
            store.is_stored = True
            self._tallies.count("objects_already_stored")
            settle.one_done()
            return
        outcome = Outcome.OK if _is_safe_to_overwrite(present) else self._withdraw(task, store.key)
        if outcome is Outcome.OK:
            self._write_shards(task, store, manifest, shards, settle)
        else:
            self._give_up(outcome, settle)

    def _describe(self, store: ObjectStore, shards: Sequence[ShardRange]) -> Manifest | None:
        """Work out the manifest; None when the object is one plain document (``checksum: none``)."""
        if not self._settings.verifies_content:
            return Manifest(len(shards), store.buffer.size_bytes) if len(shards) > 1 else None
        sums = []
        for part in shards:
            with store.buffer.open() as view:
                sums.append(checksum(view[part.start : part.end]))
        return Manifest(len(shards), store.buffer.size_bytes, tuple(sums), store.layout)

    def _read_present(self, task: Task[object], key: str, transport: Transport) -> Document:
        began = time.monotonic()
        document = transport.read([key], self._timeout(task))[0]
        self._connection.note([document.outcome], began)
        return document

    def _withdraw(self, task: Task[object], key: str) -> Outcome:
        """Remove the manifest before its shards are overwritten one by one."""
        outcome = self._insist(task, lambda transport: transport.remove([key], self._timeout(task))[0])
        return Outcome.OK if outcome is Outcome.MISSING else outcome

    def _write_whole(self, task: Task[object], store: ObjectStore, settle: Countdown) -> None:
        write = ShardWrite(store.key, store.buffer, 0, store.buffer.size_bytes)
        outcome = self._insist(task, lambda transport: self._write_group(task, transport, [write]))
        self._settle(store, outcome, settle)

    def _write_shards(
        self,
        task: Task[object],
        store: ObjectStore,
        manifest: Manifest,
        shards: Sequence[ShardRange],
        settle: Countdown,
    ) -> None:
        groups = group_shards(shards, GROUP_BYTES)
        store.pending_groups = len(groups)
        if not groups:
            self._write_manifest(task, store, manifest, settle)
        for group in groups:
            writes = [
                ShardWrite(shard_key(store.key, part.index), store.buffer, part.start, part.end) for part in group
            ]
            self._workers.submit(task, partial(self._store_group, task, store, manifest, writes, settle))

    def _store_group(
        self,
        task: Task[object],
        store: ObjectStore,
        manifest: Manifest,
        writes: Sequence[ShardWrite],
        settle: Countdown,
    ) -> None:
        outcome = Outcome.REVOKED
        if store.failure is None:
            outcome = self._insist(task, lambda transport: self._write_group(task, transport, writes))
        with store.lock:
            if outcome is not Outcome.OK:
                store.failure = store.failure or outcome
            store.pending_groups -= 1
            last = store.pending_groups == 0
        if last and store.failure is None:
            self._write_manifest(task, store, manifest, settle)
        elif last:
            self._settle(store, store.failure or Outcome.REVOKED, settle)

    def _write_manifest(self, task: Task[object], store: ObjectStore, manifest: Manifest, settle: Countdown) -> None:
        content, ttl = manifest.to_json(), self._settings.ttl_seconds
        outcome = self._insist(
            task, lambda transport: transport.write_json(store.key, content, ttl, self._timeout(task))
        )
        self._settle(store, outcome, settle)

    def _write_group(self, task: Task[object], transport: Transport, writes: Sequence[ShardWrite]) -> Outcome:
        outcomes = transport.write(writes, self._settings.ttl_seconds, self._timeout(task))
        return next((outcome for outcome in outcomes if outcome is not Outcome.OK), Outcome.OK)

    def _insist(self, task: Task[object], attempt: Callable[[Transport], Outcome]) -> Outcome:
        """Repeat what Couchbase may accept later, until the deadline; REVOKED when that has come."""
        pause = _FIRST_PAUSE_SECONDS
        while not task.ended.is_set():
            transport = self._connection.transport()
            if transport is None:
                return Outcome.TIMEOUT
            began = time.monotonic()
            outcome = attempt(transport)
            self._connection.note_write(outcome, began)
            if outcome not in _WORTH_REPEATING:
                return outcome
            self._tallies.count("store_retries")
            # Different lengths keep servers that were refused together from coming back together.
            task.ended.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret depends on it
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        return Outcome.REVOKED

    def _settle(self, store: ObjectStore, outcome: Outcome, settle: Countdown) -> None:
        if outcome is not Outcome.OK:
            self._give_up(outcome, settle)
            return
        store.is_stored = True
        store.sent_bytes = store.buffer.size_bytes
        self._refresher.stored([store.key])
        self._tallies.count("objects_stored")
        self._tallies.count("bytes_stored", store.sent_bytes)
        settle.one_done()

    def _give_up(self, outcome: Outcome, settle: Countdown) -> None:
        self._tallies.count(f"stores_failed_{outcome.value}")
        if outcome in _WHY_NOT_STORED:
            self._complaints.warn(outcome.value, f"A chunk was not stored in Couchbase: {_WHY_NOT_STORED[outcome]}")
        settle.one_done()

    def _timeout(self, task: Task[object]) -> float:
        return min(self._connection.call_timeout_seconds, task.remaining_seconds)


def _is_safe_to_overwrite(present: Document) -> bool:
    """Say whether a store that stops halfway can be told from the object that is there.

    Not so when that has a manifest without checksums: it would vouch for old and new shards alike.
    """
    if present.outcome is not Outcome.OK or not present.is_json:
        return present.outcome in (Outcome.OK, Outcome.MISSING)
    try:
        return parse_manifest(present.content).xxh3 is not None
    except ManifestError:
        return True
