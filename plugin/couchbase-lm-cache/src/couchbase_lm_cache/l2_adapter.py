"""The adapter LMCache loads: ``CouchbaseL2Adapter`` and its configuration class.

It translates between LMCache's contract (keys, memory objects, bitmaps, event descriptors) and the parts
of this package, and does no work itself: every ``submit_*`` returns at once, never raises, and is
followed by a result, at the latest when the task's deadline has come.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from lmcache.lmcache_native import Bitmap
from lmcache.logging import init_logger
from lmcache.v1.distributed.api import EncodedObjectKey, KeyEntry, KeyListPage
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase
from lmcache.v1.platform import create_event_notifier

from couchbase_lm_cache.connection import Connection
from couchbase_lm_cache.credentials import CredentialSource, withhold_password
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.expiry import ExpiryRefresher
from couchbase_lm_cache.keys import object_key
from couchbase_lm_cache.leases import Leases
from couchbase_lm_cache.listing import Lister
from couchbase_lm_cache.loading import Loader, ObjectLoad
from couchbase_lm_cache.lookups import Lookups
from couchbase_lm_cache.memory import guard
from couchbase_lm_cache.metered_transport import MeteredTransport
from couchbase_lm_cache.metrics import AdapterMetrics
from couchbase_lm_cache.metrics_port import MetricsPort
from couchbase_lm_cache.observation import ObjectKind, Observation
from couchbase_lm_cache.removal import remove_objects
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig, describe_settings
from couchbase_lm_cache.stored_sizes import StoredSizes
from couchbase_lm_cache.storing import ObjectStore, Storer
from couchbase_lm_cache.tallies import Tallies
from couchbase_lm_cache.tasks import DeadlineWatch, TaskTable
from couchbase_lm_cache.transports import open_transport
from couchbase_lm_cache.unfinished_stores import drop_unfinished_stores
from couchbase_lm_cache.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.memory_management import MemoryObj

    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.memory import GuardedMemory
    from couchbase_lm_cache.transport import Transport

# The logger of the whole package: LMCache gives it its own format and level.
logger = init_logger("couchbase_lm_cache")

_LOOKUP_THREADS = 4
_CLOSE_WAIT_SECONDS = 30.0
_THREADS_WAIT_SECONDS = 2.0


class CouchbaseL2AdapterConfig(L2AdapterConfigBase):  # type: ignore[misc]
    """Found by LMCache by its name; holds the validated settings."""

    def __init__(self, settings: CouchbaseLMCacheConfig) -> None:
        super().__init__()
        self.settings = settings

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> CouchbaseL2AdapterConfig:
        """Validate ``adapter_params``.

        Raises:
            SettingsError: a setting is unknown, missing or refused; the message names it.
        """
        if d.get("password"):
            logger.warning(
                "password in adapter_params can be read at LMCache's /config endpoint: use password_file instead"
            )
        return cls(CouchbaseLMCacheConfig.from_dict(d, withhold_password()))

    @classmethod
    def help(cls) -> str:
        """Describe every setting with its default."""
        return "Couchbase L2 adapter, adapter_params:\n" + describe_settings()


class CouchbaseL2Adapter(L2AdapterInterface):  # type: ignore[misc]
    """LMCache's second tier in Couchbase.

    Args:
        config: the configuration, or a plain dict of ``adapter_params``.
        l1_memory_desc: LMCache's description of its L1 memory; not needed here.

    Raises:
        SettingsError: a setting is refused.
        ConnectError: ``startup`` is strict and Couchbase could not be used within
            ``connect_timeout_seconds``.
    """

    def __init__(self, config: CouchbaseL2AdapterConfig | Mapping[str, Any], l1_memory_desc: object = None) -> None:
        # No capacity of its own: the bucket's quota and the documents' lifetime bound the cache.
        super().__init__(max_capacity_bytes=0)
        del l1_memory_desc
        if not isinstance(config, CouchbaseL2AdapterConfig):
            config = CouchbaseL2AdapterConfig.from_dict(dict(config))
        settings = self._settings = config.settings
        self._closed = False
        self._closing = threading.Lock()
        self._leases: Leases[ObjectKey] = Leases()
        self._stored_sizes: StoredSizes[ObjectKey] = StoredSizes()
        self._connection = Connection(settings, CredentialSource(settings), self._open_transport)
        # Before anything else is started or registered: a port in use must leave nothing behind.
        self._metrics_port = MetricsPort(settings) if settings.metrics_port else None
        self._observation = Observation()
        self._metrics = AdapterMetrics(settings, self._connection.status, self._observation.objects)
        self._tallies = Tallies(self._metrics.count_event)
        self._refresher = ExpiryRefresher(settings, self._connection, self._tallies)
        self._watch = DeadlineWatch()
        self._notifiers = [create_event_notifier() for _ in range(3)]
        self._stores: TaskTable[Any] = TaskTable(self._notifiers[0], self._watch)
        self._lookups: TaskTable[Any] = TaskTable(self._notifiers[1], self._watch)
        self._loads: TaskTable[Any] = TaskTable(self._notifiers[2], self._watch)
        self._pools = [
            WorkerPool("store", max(1, settings.max_workers // 2)),
            WorkerPool("lookup", _LOOKUP_THREADS),
            WorkerPool("load", settings.max_workers),
        ]
        self._storer = Storer(settings, self._connection, self._pools[0], self._refresher, self._tallies)
        self._lookup_runner = Lookups(self._connection, self._pools[1], self._refresher)
        self._loader = Loader(settings, self._connection, self._pools[2], self._tallies)
        self._lister = Lister(settings, CredentialSource(settings), self._connection)
        self._drops_unfinished_stores = drop_unfinished_stores()
        self._connection.start()
        if settings.startup == "strict":
            self._await_connection()
        logger.info("Couchbase L2 adapter ready: %s", settings.redacted())

    def get_store_event_fd(self) -> int:
        """Return the descriptor that is readable after a store has ended."""
        return int(self._notifiers[0].fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        """Return the descriptor that is readable after a lookup has ended."""
        return int(self._notifiers[1].fileno())

    def get_load_event_fd(self) -> int:
        """Return the descriptor that is readable after a load has ended."""
        return int(self._notifiers[2].fileno())

    def submit_store_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Store ``objects`` in the background; returns the task's id."""
        memories = list(map(guard, objects))
        stores: list[ObjectStore | None] = [
            None if memory is None else ObjectStore(self._key(key), memory.buffer, memory.layout.fingerprint)
            for key, memory in zip(keys, memories, strict=True)
        ]
        possible = [store for store in stores if store is not None]

        def verdict() -> L2StoreResult:
            self._observe(keys, memories, [store is not None and store.is_stored for store in stores])
            return self._conclude_store(keys, stores)

        buffers = [store.buffer for store in possible]
        task = self._stores.open(self._settings.store_deadline_seconds, buffers, verdict)
        self._storer.start(task, possible)
        return task.id

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """Return the stores that have ended since the last call."""
        return self._stores.take_all()

    def submit_lookup_and_lock_task(
        self, keys: list[ObjectKey], group_layout_descs: Mapping[int, object] | None = None
    ) -> int:
        """Ask which of ``keys`` exist; returns the task's id.

        Couchbase has no locks: an object that expires between lookup and load becomes a load miss.
        ``group_layout_descs`` is a hint that is not needed.
        """
        del group_layout_descs
        found = [False] * len(keys)

        def verdict() -> Bitmap:
            hits = [key for key, hit in zip(keys, found, strict=True) if hit]
            self._leases.found(hits)
            return _bitmap(found)

        task = self._lookups.open(self._settings.task_deadline_seconds, [], verdict)
        self._lookup_runner.start(task, [self._key(key) for key in keys], found)
        return task.id

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """Return the bitmap of an ended lookup, once."""
        return self._lookups.take(task_id)

    def submit_unlock(self, keys: list[ObjectKey]) -> None:
        """Release ``keys``; loads of them that LMCache gave up never touch its memory again."""
        self._leases.unlock(keys)

    def submit_load_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Fill ``objects`` in the background; returns the task's id."""
        began, memories = time.monotonic(), list(map(guard, objects))
        loads: list[ObjectLoad | None] = [
            None if memory is None else ObjectLoad(self._key(key), memory.buffer, memory.layout.fingerprint)
            for key, memory in zip(keys, memories, strict=True)
        ]
        possible = [load for load in loads if load is not None]
        leases = [
            self._leases.loading(key, load.buffer) for key, load in zip(keys, loads, strict=True) if load is not None
        ]

        def verdict() -> Bitmap:
            self._leases.ended(leases)
            loaded = [load is not None and load.is_loaded for load in loads]
            self._observe(keys, memories, loaded)
            if keys and all(loaded):
                self._note_whole_load(sum(load.buffer.size_bytes for load in possible), time.monotonic() - began)
            return self._conclude_load(keys, loaded)

        task = self._loads.open(self._settings.task_deadline_seconds, [load.buffer for load in possible], verdict)
        self._loader.start(task, possible)
        return task.id

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """Return the bitmap of an ended load, once."""
        return self._loads.take(task_id)

    def delete(self, keys: list[ObjectKey]) -> None:
        """Remove objects; those that were there are reported to LMCache's listeners.

        Stops early when Couchbase does not answer; what is left is still listed as stored.
        """
        sizes = remove_objects(self._connection, [self._key(key) for key in keys])
        self._tell_deleted([key for key, size in zip(keys, sizes, strict=True) if size is not None])

    def list_l2_keys(
        self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None
    ) -> KeyListPage:
        """List what is stored under ``key_prefix``, by this and other servers, in the order of document keys.

        Raises:
            ValueError: ``page_size`` is not positive, or ``cursor`` is not one of an earlier page.
            NotImplementedError: the bucket cannot be scanned.
            ConnectError: Couchbase cannot be used now.
        """
        page = self._lister.page(model_name, page_size, cursor)
        entries = [
            KeyEntry(EncodedObjectKey(one.parts.chunk_hash.hex(), *one.parts[1:]), one.size_bytes)
            for one in page.objects
        ]
        return KeyListPage(tuple(entries), page.cursor)

    def report_status(self) -> dict[str, Any]:
        """Return the last known state without talking to Couchbase; holds no secret."""
        return {
            "type": type(self).__name__,
            **self._connection.status(),
            "bucket": self._settings.bucket_name,
            "scope": self._settings.scope_name,
            "collection": self._settings.collection_name,
            "key_prefix": self._settings.key_prefix,
            "stores_in_flight": len(self._stores.running()),
            "lookups_in_flight": len(self._lookups.running()),
            "loads_in_flight": len(self._loads.running()),
            "drops_unfinished_stores": self._drops_unfinished_stores,
            "counts": self._tallies.snapshot(),
            **self._observation.status(),
        }

    def close(self) -> None:
        """End all loads and lookups, finish the stores within a bounded time, and disconnect. Idempotent.

        When this returns, to any caller, L1 memory is not touched any more.
        """
        with self._closing:
            if not self._closed:
                self._shut_down()
                self._closed = True

    def _shut_down(self) -> None:
        self._lookups.close()
        self._loads.close()
        self._stores.refuse_new()
        deadline = time.monotonic() + _CLOSE_WAIT_SECONDS
        for task in self._stores.running():
            task.ended.wait(max(0.0, deadline - time.monotonic()))
        self._stores.close()
        self._refresher.close()
        for pool in self._pools:
            pool.close(_THREADS_WAIT_SECONDS)
        self._connection.close()
        self._metrics.close()
        if self._metrics_port is not None:
            self._metrics_port.close()
        self._watch.close()
        for notifier in self._notifiers:
            notifier.close()

    def _open_transport(
        self, settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float
    ) -> Transport:
        return MeteredTransport(open_transport(settings, credentials, timeout_seconds), self._metrics)

    def _await_connection(self) -> None:
        try:
            self._connection.wait_ready(self._settings.connect_timeout_seconds)
        except ConnectError:
            self.close()
            raise

    def _key(self, key: ObjectKey) -> str:
        return object_key(
            self._settings.key_prefix,
            model_name=key.model_name,
            kv_rank=key.kv_rank,
            object_group_id=key.object_group_id,
            chunk_hash=key.chunk_hash,
            cache_salt=key.cache_salt,
        )

    def _conclude_store(self, keys: Sequence[ObjectKey], stores: Sequence[ObjectStore | None]) -> L2StoreResult:
        # The task may have failed as a whole; what is in the bucket is in the bucket.
        stored = [(key, store) for key, store in zip(keys, stores, strict=True) if store and store.is_stored]
        self._tell_stored([key for key, _ in stored], [store.buffer.size_bytes for _, store in stored])
        if len(stored) < len(keys):
            return L2StoreResult(success=False, bytes_transferred=0)
        return L2StoreResult(success=True, bytes_transferred=sum(store.sent_bytes for _, store in stored))

    def _conclude_load(self, keys: Sequence[ObjectKey], loaded: Sequence[bool]) -> Bitmap:
        self._tell(self._notify_keys_accessed, [key for key, is_loaded in zip(keys, loaded, strict=True) if is_loaded])
        return _bitmap(loaded)

    def _observe(
        self, keys: Sequence[ObjectKey], memories: Sequence[GuardedMemory | None], in_bucket: Sequence[bool]
    ) -> None:
        """Note what objects really are; those of one rank and group are alike, so one of them tells for all."""
        kinds = {
            ObjectKind(key.model_name, key.object_group_id, f"0x{key.kv_rank:08x}"): memory.layout
            for key, memory, is_in in zip(keys, memories, in_bucket, strict=True)
            if is_in and memory is not None
        }
        for kind, layout in kinds.items():
            self._observation.saw(kind, layout)

    def _note_whole_load(self, size_bytes: int, took_seconds: float) -> None:
        self._observation.loaded(size_bytes, took_seconds)
        self._metrics.loaded(size_bytes, took_seconds)

    def _tell_stored(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        """Report new objects as stored and known ones as accessed, so that none is counted twice."""
        news = self._stored_sizes.add(keys, sizes)
        new = [index for index, is_new in enumerate(news) if is_new]
        self._tell(self._notify_keys_stored, [keys[index] for index in new], [sizes[index] for index in new])
        self._tell(self._notify_keys_accessed, [key for key, is_new in zip(keys, news, strict=True) if not is_new])

    def _tell_deleted(self, keys: list[ObjectKey]) -> None:
        """Report removed objects; what others had stored was never counted here and counts as nothing."""
        self._tell(self._notify_keys_deleted, keys, self._stored_sizes.take(keys))

    def _tell(self, notify: Callable[..., None], keys: list[ObjectKey], *sizes: list[int]) -> None:
        if not keys:
            return
        try:
            notify(keys, *sizes)
        except Exception:  # a listener is not ours, and its defect must not keep a task from ending
            logger.exception("A listener of LMCache failed on %d keys", len(keys))


def _bitmap(bits: Sequence[bool]) -> Bitmap:
    bitmap = Bitmap(len(bits))
    for index, bit in enumerate(bits):
        if bit:
            bitmap.set(index)
    return bitmap
