"""Counts of what became of objects, for the status report."""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Tallies:
    """Named counters, safe to use from many threads.

    Args:
        also: told of every count as well, by name and amount.
    """

    def __init__(self, also: Callable[[str, int], None] | None = None) -> None:
        self._also = also
        self._lock = threading.Lock()
        self._counts: collections.Counter[str] = collections.Counter()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter, which begins at 0."""
        with self._lock:
            self._counts[name] += amount
        if self._also is not None:
            self._also(name, amount)

    def snapshot(self) -> dict[str, int]:
        """Return all counters that were ever used."""
        with self._lock:
            return dict(self._counts)
