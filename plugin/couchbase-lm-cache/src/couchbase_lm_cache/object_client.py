"""Objects as plain bytes: what the Python API and the in-process connector have in common.

It puts the same parts together as the L2 adapter (storage format, checksums, deadlines, outage handling),
but the memory of an object is its own: nothing of LMCache's is touched on a thread of this package.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.connection import Connection
from couchbase_lm_cache.credentials import CredentialSource
from couchbase_lm_cache.errors import ConnectError, ManifestError
from couchbase_lm_cache.expiry import ExpiryRefresher
from couchbase_lm_cache.loading import Loader, ObjectLoad
from couchbase_lm_cache.lookups import Lookups
from couchbase_lm_cache.metered_transport import MeteredTransport
from couchbase_lm_cache.removal import remove_objects
from couchbase_lm_cache.sharding import parse_manifest
from couchbase_lm_cache.storing import ObjectStore, Storer
from couchbase_lm_cache.tallies import Tallies
from couchbase_lm_cache.tasks import DeadlineWatch, Task, TaskTable
from couchbase_lm_cache.transport import Outcome
from couchbase_lm_cache.transports import open_transport
from couchbase_lm_cache.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.credentials import Credentials
    from couchbase_lm_cache.metrics import AdapterMetrics
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
    from couchbase_lm_cache.transport import Transport

Result = TypeVar("Result")

MAX_OBJECT_BYTES = 1024**3
"""Far above any chunk: memory is taken before the parts are seen, and a manifest may claim anything."""

_LOOKUP_THREADS = 2
_THREADS_WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class Loaded:
    """What became of a load.

    Attributes:
        outcome: OK, or why there is nothing to give.
        content: every byte of the object, verified; None unless ``outcome`` is OK.
    """

    outcome: Outcome
    content: bytearray | bytes | None = None


class Call(Generic[Result]):
    """One operation under way: its result, at the latest at its deadline, and a way to give it up."""

    def __init__(self) -> None:
        self.future: Future[Result] = Future()
        # Nobody but the task may end it: a waiter that is cancelled must not make set_result() fail.
        self.future.set_running_or_notify_cancel()
        self._task: Task[object] | None = None

    def watch(self, task: Task[object]) -> None:
        """Name the task that :meth:`abandon` ends."""
        self._task = task

    def abandon(self) -> None:
        """End now, with what was reached."""
        if self._task is not None:
            self._task.end()


class ObjectClient:
    """Stores, loads, looks up and removes objects by document key. Safe to use from many threads.

    Args:
        settings: all settings; ``startup`` decides whether the constructor waits for Couchbase.

    Raises:
        ConnectError: ``startup`` is strict and Couchbase could not be used within ``connect_timeout_seconds``.
    """

    def __init__(self, settings: CouchbaseLMCacheConfig) -> None:
        self._settings = settings
        self._connection = Connection(settings, CredentialSource(settings), self._open_transport)
        self._metrics = _metrics(settings, self._connection)
        self._tallies = Tallies(self._metrics.count_event if self._metrics else None)
        self._refresher = ExpiryRefresher(settings, self._connection, self._tallies)
        self._watch = DeadlineWatch()
        self._tasks: TaskTable[object] = TaskTable(_Unheard(), self._watch)
        self._store_pool = WorkerPool("store", max(1, settings.max_workers // 2))
        self._lookup_pool = WorkerPool("lookup", _LOOKUP_THREADS)
        self._load_pool = WorkerPool("load", settings.max_workers)
        self._storer = Storer(settings, self._connection, self._store_pool, self._refresher, self._tallies)
        self._lookups = Lookups(self._connection, self._lookup_pool, self._refresher)
        self._loader = Loader(settings, self._connection, self._load_pool, self._tallies)
        self._connection.start()
        if settings.startup == "strict":
            try:
                self._connection.wait_ready(settings.connect_timeout_seconds)
            except ConnectError:
                self.close()
                raise

    def store(self, key: str, content: bytes | bytearray, layout: str, deadline_seconds: float) -> Call[bool]:
        """Store an object; True when all of it can be loaded. ``layout`` must be the same for the load."""
        store = ObjectStore(key, GuardedBuffer(memoryview(content)), layout)
        call, task = self._open(deadline_seconds, lambda: store.is_stored, [store.buffer])
        self._storer.start(task, [store])
        return call

    def load(self, key: str, layout: str | None, max_size_bytes: int, deadline_seconds: float) -> Call[Loaded]:
        """Load an object of unknown size, all of it or nothing.

        Args:
            key: document key.
            layout: what it must have been stored with; None takes any.
            max_size_bytes: larger objects are refused before memory is taken for them.
            deadline_seconds: time until the call ends by itself.
        """
        loading = _Loading()
        call, task = self._open(deadline_seconds, loading.conclude, [])
        self._load_pool.submit(task, partial(self._begin_load, task, key, layout, max_size_bytes, loading))
        return call

    def look_up(self, keys: Sequence[str], deadline_seconds: float) -> Call[list[bool]]:
        """Say which objects exist; what is not answered in time counts as missing."""
        found = [False] * len(keys)
        call, task = self._open(deadline_seconds, lambda: list(found), [])
        self._lookups.start(task, keys, found)
        return call

    def remove(self, key: str) -> bool:
        """Remove an object with its shards; False when there was none or Couchbase did not answer."""
        return remove_objects(self._connection, [key])[0] is not None

    def transport(self) -> Transport:
        """Return the transport.

        Raises:
            ConnectError: Couchbase is not available; the message says why.
        """
        transport = self._connection.transport()
        if transport is None:
            raise ConnectError(f"Couchbase at {self._settings.connection_string} is not available: {self.reason}")
        return transport

    @property
    def is_ready(self) -> bool:
        """Whether calls reach Couchbase, as far as is known now."""
        return self._connection.transport() is not None

    @property
    def reason(self) -> str:
        """Why Couchbase is not available or takes no writes; a generic text when nothing is known."""
        return str(self._connection.status().get("reason") or "it did not answer in time or refused the call")

    @property
    def call_timeout_seconds(self) -> float:
        """Limit of one direct use of the transport."""
        return self._connection.call_timeout_seconds

    def close(self) -> None:
        """End what is under way and disconnect. Idempotent."""
        self._tasks.close()
        self._refresher.close()
        for pool in (self._store_pool, self._lookup_pool, self._load_pool):
            pool.close(_THREADS_WAIT_SECONDS)
        self._connection.close()
        if self._metrics is not None:
            self._metrics.close()
        self._watch.close()

    def _open_transport(
        self, settings: CouchbaseLMCacheConfig, credentials: Credentials, timeout_seconds: float
    ) -> Transport:
        transport = open_transport(settings, credentials, timeout_seconds)
        return transport if self._metrics is None else MeteredTransport(transport, self._metrics)

    def _open(
        self, deadline_seconds: float, verdict: Callable[[], Result], buffers: Sequence[GuardedBuffer]
    ) -> tuple[Call[Result], Task[object]]:
        call: Call[Result] = Call()
        task = self._tasks.open(deadline_seconds, buffers, lambda: call.future.set_result(verdict()))
        call.watch(task)
        return call, task

    def _begin_load(
        self, task: Task[object], key: str, layout: str | None, max_size_bytes: int, loading: _Loading
    ) -> None:
        """Learn the size from the document at the key, then load into memory of that size."""
        transport = self._connection.transport()
        if transport is None:
            task.end()
            return
        began = time.monotonic()
        document = transport.read([key], min(self._connection.call_timeout_seconds, task.remaining_seconds))[0]
        self._connection.note([document.outcome], began)
        if task.gets_another_turn(document.outcome):
            self._load_pool.submit(task, partial(self._begin_load, task, key, layout, max_size_bytes, loading))
            return
        if document.outcome is Outcome.OK:
            self._refresher.hit([key])
        if document.outcome is Outcome.OK and document.is_json:
            load = loading.expect(key, document.content, layout, max_size_bytes)
            if load is not None:
                self._loader.start(task, [load])
                return
        elif document.outcome is Outcome.OK and not self._settings.require_checksum:
            loading.result = Loaded(Outcome.OK, document.content)
        else:
            loading.result = Loaded(Outcome.CORRUPT if document.outcome is Outcome.OK else document.outcome)
        task.end()


class _Loading:
    """A load on its way."""

    def __init__(self) -> None:
        self.result = Loaded(Outcome.TIMEOUT)
        self._load: ObjectLoad | None = None
        self._content = bytearray()

    def expect(self, key: str, manifest_json: bytes, layout: str | None, max_size_bytes: int) -> ObjectLoad | None:
        """Take memory for the object behind a manifest; None, and the result says so, when it must not be loaded."""
        try:
            manifest = parse_manifest(manifest_json)
        except ManifestError:
            self.result = Loaded(Outcome.CORRUPT)
            return None
        if manifest.size_bytes > max_size_bytes:
            self.result = Loaded(Outcome.CORRUPT)
            return None
        self._content = bytearray(manifest.size_bytes)
        expected = layout if layout is not None else manifest.layout or ""
        self._load = ObjectLoad(key, GuardedBuffer(memoryview(self._content)), expected)
        return self._load

    def conclude(self) -> Loaded:
        """Work out the result; whatever is still under way stops at the memory's guard."""
        load = self._load
        if load is None:
            return self.result
        if load.is_loaded:
            return Loaded(Outcome.OK, self._content)
        given_up = load.buffer.is_revoked
        load.buffer.revoke()
        return Loaded(load.failure or (Outcome.CORRUPT if given_up else Outcome.TIMEOUT))


def _metrics(settings: CouchbaseLMCacheConfig, connection: Connection) -> AdapterMetrics | None:
    """Return the metrics of the adapter, for this client; None where there is no Prometheus library."""
    try:
        from couchbase_lm_cache.metrics import AdapterMetrics  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return AdapterMetrics(settings, connection.status, dict)


class _Unheard:
    """Stands in for LMCache's notifier: results are handed over by futures."""

    def notify(self) -> None:
        """Nobody waits on a descriptor."""
