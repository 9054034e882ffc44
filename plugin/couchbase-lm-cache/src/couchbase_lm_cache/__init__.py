"""Couchbase as the tier behind LMCache's local CPU cache.

The package is loaded by name: LMCache imports :mod:`couchbase_lm_cache.l2_adapter` when its
``--l2-adapter`` JSON says so. Settings, key names and the storage format are importable without
LMCache and without the Couchbase SDK, so that tools can look at a bucket.
"""

from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

__all__ = ["CouchbaseLMCacheConfig"]
