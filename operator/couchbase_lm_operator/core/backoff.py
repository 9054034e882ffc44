"""When to look again: after failures in growing steps, in steady state rarely and spread out. Pure."""

from __future__ import annotations

FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 300.0
MISSING_REFERENCE_DELAY_SECONDS = 15.0
STEADY_DELAY_SECONDS = 600.0
_STEADY_SPREAD = 0.1
_GROWTH = 2.0


def failure_delay_seconds(failures_in_a_row: int, fraction: float) -> float:
    """Return the wait after a failed pass: 5 s doubling up to 300 s, less up to a fifth.

    ``fraction`` in [0, 1) spreads resources that failed together; the caller draws it.
    """
    exponent = min(max(failures_in_a_row - 1, 0), 16)
    delay = min(FIRST_DELAY_SECONDS * _GROWTH**exponent, LONGEST_DELAY_SECONDS)
    return delay * (1 - 0.2 * fraction)


def steady_delay_seconds(fraction: float) -> float:
    """Return the wait of a resource with nothing to do: 600 s plus or minus a tenth."""
    return STEADY_DELAY_SECONDS * (1 - _STEADY_SPREAD + 2 * _STEADY_SPREAD * fraction)
