"""Set-up of all tests of this package: LMCache uses the backend under test, as it is installed from its wheel."""

import os

import pytest

# Before any test imports LMCache, which chooses a backend once for the process.
os.environ |= {"LMCACHE_DEVICE_BACKEND": "hostcpu", "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}


@pytest.fixture
def shared_memory_stays_clean():
    """Fail a test that leaves shared memory of ours or of LMCache's pool behind."""
    from python_processes import shared_files

    before = shared_files()
    yield
    assert shared_files() <= before
