"""Waits grow with the time that trouble has lasted, and never beyond five minutes."""

from __future__ import annotations

import pytest

from couchbase_lm_operator.core.backoff import retry_delay_seconds, steady_delay_seconds


@pytest.mark.parametrize(
    ("first", "elapsed", "expected"),
    [(5, 0, 5), (5, 8, 5), (5, 60, 30), (5, 10_000, 300), (1, 0, 1), (1, 20, 10), (15, 10_000, 15), (30, 0, 30)],
)
def test_the_wait_is_half_of_the_trouble_so_far(first: float, elapsed: float, expected: float) -> None:
    assert retry_delay_seconds(first, elapsed, 0.0) == expected
    assert 0.8 * expected < retry_delay_seconds(first, elapsed, 0.999) < expected


def test_steady_looks_are_spread_by_a_tenth() -> None:
    assert steady_delay_seconds(600, 0.0) == pytest.approx(540)
    assert steady_delay_seconds(600, 0.5) == pytest.approx(600)
    assert steady_delay_seconds(600, 0.999) == pytest.approx(660, abs=1)
