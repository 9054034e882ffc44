"""Keeps what is used from expiring: documents that are hit in the second half of their lifetime get a new one.

Reading does not extend a document's lifetime, so an object in constant use would vanish after
``ttl_seconds`` and be recomputed. A hit therefore leads to a look at the object's remaining time, in the
background and at most once per half lifetime and object.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import ManifestError
from couchbase_lm_cache.keys import shard_key
from couchbase_lm_cache.sharding import parse_manifest
from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from couchbase_lm_cache.connection import Connection
    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
    from couchbase_lm_cache.tallies import Tallies

logger = logging.getLogger(__name__)

_REMEMBERED_KEYS = 100_000
_MAX_WAITING = 10_000
_TOUCHES_PER_CALL = 64


class ExpiryRefresher:
    """Refreshes lifetimes on one background thread; does nothing without a lifetime or when switched off."""

    def __init__(self, settings: CouchbaseLMCacheConfig, connection: Connection, tallies: Tallies) -> None:
        self._ttl_seconds = settings.ttl_seconds if settings.refresh_ttl else 0
        self._connection = connection
        self._tallies = tallies
        self._lock = threading.Lock()
        self._look_again_at: collections.OrderedDict[str, float] = collections.OrderedDict()
        self._waiting: queue.Queue[str | None] = queue.Queue(_MAX_WAITING)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="couchbase-lm-expiry", daemon=True)
        if self._ttl_seconds:
            self._thread.start()

    def stored(self, keys: Iterable[str]) -> None:
        """Note that objects were just written and have their whole lifetime before them."""
        if self._ttl_seconds:
            self._remember(keys, time.monotonic() + self._ttl_seconds / 2)

    def hit(self, keys: Iterable[str]) -> None:
        """Note that objects are in use; look at those not looked at lately."""
        if not self._ttl_seconds:
            return
        now = time.monotonic()
        with self._lock:
            due = [key for key in keys if self._look_again_at.get(key, 0.0) <= now]
        # Also keeps a key from being queued twice; a hit that finds the queue full is tried again later.
        self._remember(due, now + self._ttl_seconds / 8)
        with contextlib.suppress(queue.Full):
            for key in due:
                self._waiting.put_nowait(key)

    def close(self) -> None:
        """Stop; what is waiting is dropped."""
        self._closed.set()
        if self._thread.is_alive():
            # When the queue is full the thread is busy and sees the flag after its present key.
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while (key := self._waiting.get()) is not None and not self._closed.is_set():
            self._refresh_safely(key)

    def _refresh_safely(self, key: str) -> None:
        try:
            self._refresh(key)
        except Exception:  # one object's lifetime must not cost all others theirs
            logger.exception("The lifetime of %s could not be refreshed", key)

    def _refresh(self, key: str) -> None:
        transport = self._connection.transport()
        if transport is None:
            return
        timeout = self._connection.call_timeout_seconds
        age = transport.age(key, timeout)
        self._tallies.count("lifetimes_checked")
        if age.document.outcome is not Outcome.OK or age.remaining_seconds is None:
            return
        if age.remaining_seconds > self._ttl_seconds / 2:
            self._remember([key], time.monotonic() + age.remaining_seconds - self._ttl_seconds / 2)
            return
        shards = 0
        if age.document.is_json:
            try:
                shards = parse_manifest(age.document.content).shards
            except ManifestError:
                return
        # The manifest comes last: it must not outlive its shards.
        keys = [*(shard_key(key, index) for index in range(shards)), key]
        for start in range(0, len(keys), _TOUCHES_PER_CALL):
            outcomes = transport.touch(keys[start : start + _TOUCHES_PER_CALL], self._ttl_seconds, timeout)
            if any(outcome is not Outcome.OK for outcome in outcomes):
                return
        self._tallies.count("objects_refreshed")
        self.stored([key])

    def _remember(self, keys: Iterable[str], look_again_at: float) -> None:
        with self._lock:
            for key in keys:
                self._look_again_at[key] = look_again_at
                self._look_again_at.move_to_end(key)
            while len(self._look_again_at) > _REMEMBERED_KEYS:
                self._look_again_at.popitem(last=False)
