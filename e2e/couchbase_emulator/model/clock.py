"""Time as the emulated cluster sees it, so that tests can let documents expire without waiting."""

import time

# Expiry values up to 30 days count from now, larger ones are Unix times (memcached protocol).
RELATIVE_EXPIRY_LIMIT_SECONDS = 30 * 24 * 3600


class Clock:
    """Wall clock with an offset that only grows."""

    def __init__(self) -> None:
        self._offset_seconds = 0.0

    def now_seconds(self) -> float:
        """Unix time of the cluster."""
        return time.time() + self._offset_seconds

    def advance(self, seconds: float) -> None:
        """Move the cluster's time forward; raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError("the clock moves forward only")
        self._offset_seconds += seconds

    def absolute_expiry(self, expiry: int, max_ttl_seconds: int = 0) -> int:
        """Unix time at which a document with this wire expiry ends; 0 = never. `max_ttl_seconds` of 0 caps nothing."""
        now = int(self.now_seconds())
        absolute = 0
        if expiry:
            absolute = now + expiry if expiry <= RELATIVE_EXPIRY_LIMIT_SECONDS else expiry
        if max_ttl_seconds > 0:
            cap = now + max_ttl_seconds
            absolute = min(absolute, cap) if absolute else cap
        return absolute
