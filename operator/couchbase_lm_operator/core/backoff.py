"""When to look again: in trouble after growing waits, in steady state rarely and spread out. Pure.

Waits grow with the time that the trouble has lasted, and not with the number of passes: passes also come
from events, and many of those must not make the next look late.
"""

from __future__ import annotations

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
MISSING_REFERENCE_DELAY_SECONDS = 15.0
_STEADY_SPREAD = 0.1


def retry_delay_seconds(first_seconds: float, elapsed_seconds: float, fraction: float) -> float:
    """Return the wait until the next look: half of the time the trouble has lasted.

    At least ``first_seconds``, at most five minutes, less up to a fifth by ``fraction`` in [0, 1), which
    spreads resources that got into trouble together. What is merely missing is looked for at a steady pace.
    """
    longest = LONGEST_DELAY_SECONDS
    if first_seconds == MISSING_REFERENCE_DELAY_SECONDS:
        longest = MISSING_REFERENCE_DELAY_SECONDS
    return min(max(first_seconds, elapsed_seconds / 2), longest) * (1 - 0.2 * fraction)


def steady_delay_seconds(resync_seconds: float, fraction: float) -> float:
    """Return the wait of a resource with nothing to do: the resync period plus or minus a tenth."""
    return resync_seconds * (1 - _STEADY_SPREAD + 2 * _STEADY_SPREAD * fraction)
