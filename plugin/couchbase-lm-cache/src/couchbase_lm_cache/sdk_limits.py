"""How long the SDK may try on behalf of callers that come back by themselves."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from couchbase_lm_cache.transport import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORTEST_SECONDS = 0.25
_LASTING_SECONDS = 30.0


class ShortLimit:
    """A limit for calls while some server refuses for the moment.

    What a server asks to try later (status 0x86) the SDK repeats by itself up to the limit of the call, and
    tells nobody before: each call that meets such a server would hold its thread, and the answers of the
    other servers, for its whole limit. So the first call that ends like this makes the following ones short,
    for half a minute from the last refusal on. One that proves too short, as on a slow network, is doubled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = _SHORTEST_SECONDS
        self._ends_at = 0.0

    def of(self, timeout_seconds: float) -> float:
        """Return the limit in seconds for a call that might take ``timeout_seconds``."""
        with self._lock:
            return min(timeout_seconds, self._seconds) if time.monotonic() < self._ends_at else timeout_seconds

    def learn(self, limit_seconds: float, outcomes: Sequence[Outcome]) -> None:
        """Learn from what became of the documents of a call that had the limit ``limit_seconds``."""
        now = time.monotonic()
        with self._lock:
            is_over = now >= self._ends_at
            if is_over:
                self._seconds = _SHORTEST_SECONDS
            elif Outcome.TIMEOUT in outcomes and limit_seconds >= self._seconds:
                self._seconds *= 2
            if Outcome.BUSY in outcomes:
                self._ends_at = now + _LASTING_SECONDS
