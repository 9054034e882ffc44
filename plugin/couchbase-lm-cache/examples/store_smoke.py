"""Check that Couchbase can hold the cache: write, read and remove a small and a sharded value.

The connection comes from ``LMCACHE_COUCHBASE_*``. Exit status 0 and one line when all is well; 1 and the
reason when Couchbase cannot be used or gives back something else. Nothing is left behind.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys

from couchbase_lm_cache import CouchbaseKVStore, CouchbaseLMCacheConfig
from couchbase_lm_cache.errors import CouchbaseLMCacheError


class SmokeTestError(Exception):
    """Couchbase was reached but did not do what a cache needs; the message says what."""


def main() -> int:
    """Run the check and return the exit status."""
    try:
        # degraded would hide for a while that Couchbase does not answer
        config = dataclasses.replace(CouchbaseLMCacheConfig.from_env(), startup="strict")
        store = CouchbaseKVStore(config)
        try:
            _check(store, shard_size_bytes=config.shard_size_bytes)
        finally:
            store.close()
    except (CouchbaseLMCacheError, SmokeTestError) as error:
        print(f"Couchbase LMCache store smoke test failed: {error}", file=sys.stderr)
        return 1
    print("Couchbase LMCache store smoke test passed")
    return 0


def _check(store: CouchbaseKVStore, shard_size_bytes: int) -> None:
    run = f"store-smoke-{secrets.token_hex(8)}"
    values = {
        f"{run}-small": os.urandom(512),
        f"{run}-sharded": os.urandom(2 * shard_size_bytes + shard_size_bytes // 2),
    }
    try:
        for key, value in values.items():
            store.put_bytes(key, value)
        for key, value in values.items():
            _require(store.exists(key), f"{key} was written but does not exist")
            _require(store.get_bytes(key) == value, f"{key} ({len(value)} bytes) was read back with other content")
    finally:
        for key in values:
            store.remove(key)
    for key in values:
        _require(not store.exists(key), f"{key} was removed but still exists")
        _require(store.get_bytes(key) is None, f"{key} was removed but can still be read")


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise SmokeTestError(complaint)


if __name__ == "__main__":
    sys.exit(main())
