"""Couchbase as the tier behind LMCache's local CPU cache.

LMCache loads :mod:`couchbase_lm_cache.l2_adapter` (its server) or :mod:`couchbase_lm_cache.connector`
(in-process mode) by name. What is exported here needs no LMCache; settings, key names and the storage
format need no Couchbase SDK either, so the store is imported at its first use.
"""

from typing import TYPE_CHECKING, Any

from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

if TYPE_CHECKING:
    from couchbase_lm_cache.kv_store import CouchbaseKVStore

__all__ = ["CouchbaseKVStore", "CouchbaseLMCacheConfig"]


def __getattr__(name: str) -> Any:
    if name == "CouchbaseKVStore":
        from couchbase_lm_cache.kv_store import CouchbaseKVStore  # noqa: PLC0415 - needs the SDK

        return CouchbaseKVStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
