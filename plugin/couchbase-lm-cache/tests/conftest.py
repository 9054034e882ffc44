"""Set-up of all tests of this package."""

from __future__ import annotations

import os

import hypothesis

# Machines that run several things at once make any per-example time limit flaky.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
