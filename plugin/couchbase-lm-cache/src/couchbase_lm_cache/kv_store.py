"""The Python API: bytes under a key, in the storage format that LMCache's objects have.

Needs no LMCache. Everything is synchronous and bounded by the deadlines of the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.keys import document_key
from couchbase_lm_cache.object_client import MAX_OBJECT_BYTES, ObjectClient
from couchbase_lm_cache.sharding import layout_hash
from couchbase_lm_cache.transport import PROBE_KEYS, Outcome

if TYPE_CHECKING:
    from types import TracebackType

    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

_NOTHING_TO_GIVE = (Outcome.MISSING, Outcome.CORRUPT, Outcome.WRONG_LENGTH)
_ANSWERS = (Outcome.OK, Outcome.MISSING)


class CouchbaseKVStore:
    """Objects in one collection of Couchbase. Use it as a context manager or call :meth:`close`.

    Keys get ``key_prefix`` in front; objects above ``shard_size_bytes`` are split; documents expire after
    ``ttl_seconds``. May be used from many threads.

    Args:
        config: the settings; ``startup`` decides whether the constructor waits for Couchbase.

    Raises:
        ConnectError: ``startup`` is strict and Couchbase could not be used within ``connect_timeout_seconds``.
    """

    def __init__(self, config: CouchbaseLMCacheConfig) -> None:
        self._config = config
        self._client = ObjectClient(config)

    def put_bytes(self, key: str, data: bytes | bytearray) -> None:
        """Store ``data`` under ``key``, replacing what is there.

        Readers find all of it or nothing, whatever happens meanwhile. ``data`` must not be changed before
        this returns.

        Raises:
            ValueError: ``data`` is longer than 1 GiB.
            ConnectError: not all of it could be stored within four times ``task_deadline_seconds``.
        """
        if len(data) > MAX_OBJECT_BYTES:
            raise ValueError(f"{key!r} would hold {len(data)} bytes: at most {MAX_OBJECT_BYTES} can be loaded again")
        layout = layout_hash([[len(data)]], ["bytes"])
        call = self._client.store(self._document(key), data, layout, self._config.store_deadline_seconds)
        if not call.future.result():
            raise ConnectError(f"{key!r} was not stored in Couchbase: {self._client.reason}")

    def get_bytes(self, key: str) -> bytes | None:
        """Return what is stored under ``key``; None when it is missing, incomplete or damaged.

        Raises:
            ConnectError: Couchbase did not answer within ``task_deadline_seconds``, so nobody knows.
        """
        deadline_seconds = self._config.task_deadline_seconds
        loaded = self._client.load(self._document(key), None, MAX_OBJECT_BYTES, deadline_seconds).future.result()
        if loaded.content is not None:
            return bytes(loaded.content)
        if loaded.outcome in _NOTHING_TO_GIVE:
            return None
        raise self._no_answer(key, loaded.outcome)

    def exists(self, key: str) -> bool:
        """Say whether something is stored under ``key``; its parts are not looked at.

        Raises:
            ConnectError: Couchbase did not answer.
        """
        outcome = self._client.transport().exists([self._document(key)], self._client.call_timeout_seconds)[0]
        if outcome not in _ANSWERS:
            raise self._no_answer(key, outcome)
        return outcome is Outcome.OK

    def remove(self, key: str) -> bool:
        """Remove what is stored under ``key``; False when there was nothing.

        Raises:
            ConnectError: Couchbase did not answer, or the object is still there.
        """
        removed = self._client.remove(self._document(key))
        if not removed and self.exists(key):
            raise self._no_answer(key, Outcome.TIMEOUT)
        return removed

    def ping(self) -> bool:
        """Say whether Couchbase answers now and lets us read; never raises."""
        try:
            outcomes = self._client.transport().exists(PROBE_KEYS, self._client.call_timeout_seconds)
        except ConnectError:
            return False
        return all(outcome in _ANSWERS for outcome in outcomes)

    def close(self) -> None:
        """End what is under way and disconnect. Idempotent."""
        self._client.close()

    def __enter__(self) -> CouchbaseKVStore:
        """Return the store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _document(self, key: str) -> str:
        return document_key(self._config.key_prefix, key)

    def _no_answer(self, key: str, outcome: Outcome) -> ConnectError:
        return ConnectError(f"Couchbase gave no usable answer for {key!r} ({outcome.value}): {self._client.reason}")
