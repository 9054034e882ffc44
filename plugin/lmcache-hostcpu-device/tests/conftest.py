"""Set-up of all tests of this package: LMCache uses the backend under test, as it is installed from its wheel."""

import os

# Before any test imports LMCache, which chooses a backend once for the process.
os.environ |= {"LMCACHE_DEVICE_BACKEND": "hostcpu", "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
