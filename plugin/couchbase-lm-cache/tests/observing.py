"""What tests see of an adapter from outside, and how they wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from lmcache_parts import Driver


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float = 30) -> None:
    """Wait for something that no event tells about."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def is_healthy(driver: Driver) -> bool:
    return bool(driver.adapter.report_status()["is_healthy"])


def count(driver: Driver, name: str) -> int:
    return int(driver.adapter.report_status()["counts"].get(name, 0))
