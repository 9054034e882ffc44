"""Counts of what became of objects, for the status report."""

from __future__ import annotations

import collections
import threading


class Tallies:
    """Named counters, safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter, which begins at 0."""
        with self._lock:
            self._counts[name] += amount

    def snapshot(self) -> dict[str, int]:
        """Return all counters that were ever used."""
        with self._lock:
            return dict(self._counts)
