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
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.distributed.l2_adapters.config import L2AdapterConfigBase
from lmcache.v1.platform import create_event_notifier

from couchbase_lm_cache.connection import Connection
from couchbase_lm_cache.credentials import CredentialSource
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.expiry import ExpiryRefresher
from couchbase_lm_cache.keys import object_key
from couchbase_lm_cache.leases import Leases
from couchbase_lm_cache.loading import Loader, ObjectLoad
from couchbase_lm_cache.lookups import Lookups
from couchbase_lm_cache.memory import guard
from couchbase_lm_cache.removal import remove_objects
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig, describe_settings
from couchbase_lm_cache.storing import ObjectStore, Storer
from couchbase_lm_cache.tallies import Tallies
from couchbase_lm_cache.tasks import DeadlineWatch, TaskTable
from couchbase_lm_cache.transports import open_transport
from couchbase_lm_cache.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.memory_management import MemoryObj

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
        return cls(CouchbaseLMCacheConfig.from_dict(d))

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
        self._tallies = Tallies()
        self._connection = Connection(settings, CredentialSource(settings), open_transport)
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
        stores = [
            ObjectStore(self._key(key), memory.buffer, memory.layout)
            for key, memory in zip(keys, map(guard, objects), strict=True)
            if memory is not None
        ]

        def verdict() -> L2StoreResult:
            return self._conclude_store(keys, stores)

        buffers = [store.buffer for store in stores]
        task = self._stores.open(self._settings.store_deadline_seconds, buffers, verdict)
        self._storer.start(task, stores)
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
        loads: list[ObjectLoad | None] = [
            None if memory is None else ObjectLoad(self._key(key), memory.buffer, memory.layout)
            for key, memory in zip(keys, map(guard, objects), strict=True)
        ]
        possible = [load for load in loads if load is not None]
        leases = [
            self._leases.loading(key, load.buffer) for key, load in zip(keys, loads, strict=True) if load is not None
        ]

        def verdict() -> Bitmap:
            self._leases.ended(leases)
            return _bitmap([load is not None and load.is_loaded for load in loads])

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
        gone = [(key, size) for key, size in zip(keys, sizes, strict=True) if size is not None]
        if gone:
            self._notify_keys_deleted([key for key, _ in gone], [size for _, size in gone])

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
            "counts": self._tallies.snapshot(),
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
        self._watch.close()
        for notifier in self._notifiers:
            notifier.close()

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

    def _conclude_store(self, keys: Sequence[ObjectKey], stores: Sequence[ObjectStore]) -> L2StoreResult:
        if len(stores) < len(keys) or not all(store.is_stored for store in stores):
            return L2StoreResult(success=False, bytes_transferred=0)
        self._tell_listeners(keys, [store.buffer.size_bytes for store in stores])
        return L2StoreResult(success=True, bytes_transferred=sum(store.sent_bytes for store in stores))

    def _tell_listeners(self, keys: Sequence[ObjectKey], sizes: Sequence[int]) -> None:
        try:
            self._notify_keys_stored(list(keys), list(sizes))
        except Exception:  # a listener is not ours, and its defect must not keep a task from ending
            logger.exception("A listener of LMCache failed on %d stored keys", len(keys))


def _bitmap(bits: Sequence[bool]) -> Bitmap:
    bitmap = Bitmap(len(bits))
    for index, bit in enumerate(bits):
        if bit:
            bitmap.set(index)
    return bitmap
