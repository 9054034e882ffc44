"""These tests write to the Couchbase that ``LMCACHE_COUCHBASE_*`` names, so they run only for people who say so."""

from __future__ import annotations

import os

VARIABLE = "LMCACHE_COUCHBASE_LIVE_TESTS"

collect_ignore_glob = [] if os.environ.get(VARIABLE) == "1" else ["test_*.py"]


def pytest_report_header() -> str:
    """Say what is written to, or how to let it be."""
    if collect_ignore_glob:
        return f"live tests: left out ({VARIABLE}=1 runs them against LMCACHE_COUCHBASE_CONNSTR)"
    return f"live tests: against {os.environ.get('LMCACHE_COUCHBASE_CONNSTR', 'nothing: LMCACHE_COUCHBASE_CONNSTR')}"
