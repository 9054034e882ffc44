"""Warnings that may come once per document, told once a minute."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

_INTERVAL_SECONDS = 60.0


class Complaints:
    """Logs each kind of trouble at most once a minute, with how often it came since.

    Args:
        logger: where to.
        clock: seconds that only go forward.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def warn(self, kind: str, text: str) -> None:
        """Log ``text`` unless its kind was logged within the last minute."""
        now = self._clock()
        with self._lock:
            last = self._told_at.get(kind)
            if last is not None and now - last < _INTERVAL_SECONDS:
                self._untold[kind] = self._untold.get(kind, 0) + 1
                return
            self._told_at[kind] = now
            more = self._untold.pop(kind, 0)
        self._logger.warning("%s%s", text, f" ({more} more since the last warning)" if more else "")
