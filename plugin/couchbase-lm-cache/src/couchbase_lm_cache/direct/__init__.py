"""A lean client of Couchbase's key-value protocol; :func:`connect` makes its transport."""

from couchbase_lm_cache.direct.connecting import connect

__all__ = ["connect"]
