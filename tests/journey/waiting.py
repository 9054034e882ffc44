"""Wait for a state of the world with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(holds: Callable[[], bool], timeout_seconds: float, every_seconds: float = 1.0) -> None:
    """Return once ``holds()`` is true; fail with its name after ``timeout_seconds``."""
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not true after {timeout_seconds:.0f} s")
        time.sleep(every_seconds)
