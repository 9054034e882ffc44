"""Stores: from L1 memory to documents, shards first and the manifest last.

Stores overwrite: keys name their content, but computing a chunk twice need not give the same bytes. An
object whose manifest is in the bucket already with the very same checksums is not sent again. Whatever
Couchbase asks to try later is tried again (:mod:`couchbase_lm_cache.insisting`). As with loads, one call is
for several megabytes: a part of one large object, or many small ones.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from couchbase_lm_cache.batching import batches, grouped
from couchbase_lm_cache.complaints import Complaints
from couchbase_lm_cache.errors import BufferRevokedError, ManifestError
from couchbase_lm_cache.insisting import Insistence, Patience
from couchbase_lm_cache.keys import shard_key
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

_Item = TypeVar("_Item")

logger = logging.getLogger(__name__)

_NOTHING = Document(Outcome.MISSING)
_UNKNOWN = (Outcome.TIMEOUT, Outcome.UNREACHABLE, Outcome.REVOKED)
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
        shards: the documents it is cut into.
        sums: their checksums, empty where not known yet.
        is_whole: it is one document of its own, without manifest.
        present: what was found at its key.
        patience: for nodes that cannot be reached.
    """

    key: str
    buffer: GuardedBuffer
    layout: str
    is_stored: bool = False
    sent_bytes: int = 0
    shards: Sequence[ShardRange] = ()
    sums: list[str] = field(default_factory=list)
    is_whole: bool = False
    present: Document = _NOTHING
    patience: Patience = field(default_factory=Patience)
    pending_parts: int = 0
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
        for batch in batches(objects, _size_bytes, self._settings):
            self._workers.submit(task, partial(self._begin, task, batch, settle))

    def _begin(self, task: Task[object], batch: Sequence[ObjectStore], settle: Countdown) -> None:
        """Cut the objects, and look at what is at the keys of those that must not just be overwritten."""
        for store in batch:
            store.shards = split(store.buffer.size_bytes, self._settings.shard_size_bytes)
            store.sums = [""] * len(store.shards)
            store.is_whole = not self._settings.verifies_content and len(store.shards) <= 1
        replacing = [store for store in batch if not store.is_whole]
        whole = [store for store in batch if store.is_whole]
        if replacing and whole:
            self._workers.submit(task, partial(self._look, task, replacing, settle))
        else:
            self._look(task, replacing, settle)
        self._send(task, whole, settle)

    def _look(self, task: Task[object], stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Read what is at the keys of objects, and go on with each as that demands."""

        def conclude(found: Sequence[tuple[ObjectStore, Outcome]]) -> None:
            for store, outcome in found:
                if outcome in _UNKNOWN:
                    # The node of its manifest cannot be asked: its shards need not be sent at all.
                    self._give_up([store], outcome, settle)
            known = [store for store, outcome in found if outcome not in _UNKNOWN]
            alike = [store for store in known if self._may_be_the_same(store.present)]
            for group in grouped(alike, _size_bytes):
                self._workers.submit(task, partial(self._compare, task, group, settle))
            self._replace(task, [store for store in known if not self._may_be_the_same(store.present)], settle)

        self._insist(
            task,
            stores,
            lambda transport, rest: self._read_present(task, transport, rest),
            conclude,
            patience_of=_of_object,
            note=self._connection.note,
        )

    def _read_present(self, task: Task[object], transport: Transport, stores: Sequence[ObjectStore]) -> list[Outcome]:
        documents = transport.read([store.key for store in stores], self._timeout(task), is_patient=False)
        for store, document in zip(stores, documents, strict=True):
            # Of what is no manifest its bytes are of no use, and may be megabytes.
            store.present = document if document.is_json else document._replace(content=b"")
        return [document.outcome for document in documents]

    def _may_be_the_same(self, present: Document) -> bool:
        return self._settings.verifies_content and present.outcome is Outcome.OK and present.is_json

    def _compare(self, task: Task[object], stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Work out the checksums of objects that may be in the bucket already, and send those that are not."""
        changed, same = [], []
        for store in stores:
            if not _add_sums(store, store.shards):
                self._give_up([store], Outcome.REVOKED, settle)
            elif self._manifest(store).to_json() == store.present.content:
                same.append(store)
            else:
                changed.append(store)
        if same:
            self._refresher.hit([store.key for store in same])
            for store in same:
                store.is_stored = True
            self._tallies.count("objects_already_stored", len(same))
            settle.some_done(len(same))
        self._replace(task, changed, settle)

    def _replace(self, task: Task[object], stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Send objects, after the manifests of those have gone whose shards must not be overwritten one by one."""
        ready = [store for store in stores if _is_safe_to_overwrite(store.present)]
        unsafe = [store for store in stores if not _is_safe_to_overwrite(store.present)]
        if unsafe:
            self._workers.submit(task, partial(self._withdraw, task, unsafe, settle))
        self._send(task, ready, settle)

    def _withdraw(self, task: Task[object], stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Remove manifests, and send the objects of those that are gone."""

        def conclude(removals: Sequence[tuple[ObjectStore, Outcome]]) -> None:
            gone = [store for store, outcome in removals if outcome in (Outcome.OK, Outcome.MISSING)]
            for store, outcome in removals:
                if outcome not in (Outcome.OK, Outcome.MISSING):
                    self._give_up([store], outcome, settle)
            self._send(task, gone, settle)

        self._insist(
            task,
            stores,
            lambda transport, rest: transport.remove(
                [store.key for store in rest], self._timeout(task), is_patient=False
            ),
            conclude,
            patience_of=_of_object,
            note=self._connection.note_write,
        )

    def _send(self, task: Task[object], stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Write the shards of objects, a call for each group; the first on this thread."""
        parts = []
        for store in stores:
            shards = store.shards or ([ShardRange(0, 0, 0)] if store.is_whole else ())
            store.pending_parts = len(shards)
            parts += [(store, shard) for shard in shards]
        groups = grouped(parts, lambda part: part[1].size_bytes)
        # Before any other thread counts down: afterwards none pending also means failed, or written already.
        empty = [store for store in stores if not store.pending_parts]
        for group in groups[1:]:
            self._workers.submit(task, partial(self._write_group, task, group, settle))
        self._write_manifests(task, empty, settle)
        if groups:
            self._write_group(task, groups[0], settle)

    def _write_group(
        self, task: Task[object], group: Sequence[tuple[ObjectStore, ShardRange]], settle: Countdown
    ) -> None:
        wanted: list[tuple[ObjectStore, ShardRange]] = []
        lost: list[tuple[ObjectStore, ShardRange]] = []
        for part in group:
            ready = part[0].failure is None and self._is_ready(*part)
            (wanted if ready else lost).append(part)
        self._conclude_parts(task, [(part, Outcome.REVOKED) for part in lost], settle)
        self._insist(
            task,
            wanted,
            lambda transport, rest: self._write_parts(task, transport, rest),
            lambda done: self._conclude_parts(task, done, settle),
            patience_of=_of_part,
            note=self._connection.note_write,
        )

    def _conclude_parts(
        self, task: Task[object], done: Sequence[tuple[tuple[ObjectStore, ShardRange], Outcome]], settle: Countdown
    ) -> None:
        """Count parts off, and write the manifests of objects that have no others left."""
        complete: list[ObjectStore] = []
        failed: list[ObjectStore] = []
        for (store, _), outcome in done:
            with store.lock:
                if outcome is not Outcome.OK:
                    store.failure = store.failure or outcome
                store.pending_parts -= 1
                if store.pending_parts == 0:
                    (complete if store.failure is None else failed).append(store)
        self._settle([store for store in complete if store.is_whole], settle)
        self._write_manifests(task, [store for store in complete if not store.is_whole], settle)
        for store in failed:
            self._give_up([store], store.failure or Outcome.REVOKED, settle)

    def _is_ready(self, store: ObjectStore, shard: ShardRange) -> bool:
        """Have the checksum of what is about to be sent, while it is brought into the processor's cache anyway."""
        return not self._settings.verifies_content or _add_sums(store, [shard])

    def _write_parts(
        self, task: Task[object], transport: Transport, parts: Sequence[tuple[ObjectStore, ShardRange]]
    ) -> list[Outcome]:
        # Of an object that has failed meanwhile nothing more is of use.
        is_useful = [store.failure is None for store, _ in parts]
        writes = [_shard_write(*part) for part, is_sent in zip(parts, is_useful, strict=True) if is_sent]
        if not writes:
            return [Outcome.REVOKED] * len(parts)
        answers = iter(transport.write(writes, self._settings.ttl_seconds, self._timeout(task), is_patient=False))
        return [next(answers) if is_sent else Outcome.REVOKED for is_sent in is_useful]

    def _write_manifests(self, task: Task[object], stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Make objects whose shards are all there findable."""
        ttl = self._settings.ttl_seconds

        def conclude(outcomes: Sequence[tuple[ObjectStore, Outcome]]) -> None:
            self._settle([store for store, outcome in outcomes if outcome is Outcome.OK], settle)
            for store, outcome in outcomes:
                if outcome is not Outcome.OK:
                    self._give_up([store], outcome, settle)

        self._insist(
            task,
            stores,
            lambda transport, rest: transport.write_json(
                [(store.key, self._manifest(store).to_json()) for store in rest],
                ttl,
                self._timeout(task),
                is_patient=False,
            ),
            conclude,
            patience_of=_of_object,
            note=self._connection.note_write,
        )

    def _manifest(self, store: ObjectStore) -> Manifest:
        size = store.buffer.size_bytes
        if not self._settings.verifies_content:
            return Manifest(len(store.shards), size)
        return Manifest(len(store.shards), size, tuple(store.sums), store.layout)

    def _insist(
        self,
        task: Task[object],
        items: Sequence[_Item],
        attempt: Callable[[Transport, Sequence[_Item]], list[Outcome]],
        conclude: Callable[[Sequence[tuple[_Item, Outcome]]], None],
        *,
        patience_of: Callable[[_Item], Patience],
        note: Callable[[Sequence[Outcome], float], None],
    ) -> None:
        """Repeat what Couchbase may accept later; each item is concluded as soon as its outcome is final."""
        Insistence(
            task,
            attempt,
            conclude,
            patience_of=patience_of,
            note=note,
            connection=self._connection,
            workers=self._workers,
            tallies=self._tallies,
        ).run(items)

    def _settle(self, stores: Sequence[ObjectStore], settle: Countdown) -> None:
        """Note that objects can be loaded now."""
        if not stores:
            return
        for store in stores:
            store.is_stored = True
            store.sent_bytes = store.buffer.size_bytes
        self._refresher.stored([store.key for store in stores])
        self._tallies.count("objects_stored", len(stores))
        self._tallies.count("bytes_stored", sum(map(_size_bytes, stores)))
        settle.some_done(len(stores))

    def _give_up(self, stores: Sequence[ObjectStore], outcome: Outcome, settle: Countdown) -> None:
        if not stores:
            return
        self._tallies.count(f"stores_failed_{outcome.value}", len(stores))
        if outcome in _WHY_NOT_STORED:
            self._complaints.warn(outcome.value, f"A chunk was not stored in Couchbase: {_WHY_NOT_STORED[outcome]}")
        settle.some_done(len(stores))

    def _timeout(self, task: Task[object]) -> float:
        return min(self._connection.call_timeout_seconds, task.remaining_seconds)


def _size_bytes(store: ObjectStore) -> int:
    return store.buffer.size_bytes


def _add_sums(store: ObjectStore, shards: Sequence[ShardRange]) -> bool:
    """Work out the checksums of shards that have none yet; False when the task has ended."""
    try:
        for shard in shards:
            if not store.sums[shard.index]:
                with store.buffer.open() as view:
                    store.sums[shard.index] = checksum(view[shard.start : shard.end])
    except BufferRevokedError:
        return False
    return True


def _shard_write(store: ObjectStore, shard: ShardRange) -> ShardWrite:
    key = store.key if store.is_whole else shard_key(store.key, shard.index)
    return ShardWrite(key, store.buffer, shard.start, shard.end)


def _of_object(store: ObjectStore) -> Patience:
    return store.patience


def _of_part(part: tuple[ObjectStore, ShardRange]) -> Patience:
    return part[0].patience


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
