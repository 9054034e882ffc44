"""Pauses between the attempts that one call makes for what is put off."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

_FIRST_SECONDS, _LAST_SECONDS = 0.002, 0.25


class Pauses:
    """Pauses of one call, each twice as long as the one before.

    Args:
        deadline: moment on the monotonic clock by which the call must have ended.
        closed: ends a pause, and the call with it.
    """

    def __init__(self, deadline: float, closed: threading.Event) -> None:
        self._deadline = deadline
        self._closed = closed
        self._next_seconds = _FIRST_SECONDS

    def wait(self) -> bool:
        """Wait, and say whether another attempt is to be made: there is time left, and nothing was closed."""
        seconds = self._next_seconds
        self._next_seconds = min(2 * seconds, _LAST_SECONDS)
        return time.monotonic() + seconds < self._deadline and not self._closed.wait(seconds)
