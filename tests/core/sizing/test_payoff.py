"""Loading against computing: numbers by hand, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.core.sizing.payoff import Rates, assumed_rates, payoff, shown_seconds

_FLOPS = st.integers(min_value=1, max_value=10**24)
_BYTES = st.integers(min_value=1, max_value=10**15)


def test_by_hand() -> None:
    found = payoff(10_000, 3_000_000_000, 30 * 10**12, 2, assumed_rates("cuda", 1.5, 5))
    assert (found.load_seconds, found.prefill_seconds) == (2.0, 3.0)
    assert found.is_worthwhile
    assert found.break_even_bytes_per_second == 1e9


def test_given_rates_take_the_place_of_the_defaults() -> None:
    assert assumed_rates("cuda") == Rates(2e9, 150e12)
    assert assumed_rates("cpu") == Rates(2e9, 1e12)
    assert assumed_rates("cpu", 0.5, 3) == Rates(0.5e9, 3e12)


def test_unknown_work_gives_no_verdict() -> None:
    found = payoff(256, 1000, None, 1, assumed_rates("cuda"))
    assert found.is_worthwhile is None
    assert found.prefill_seconds is None
    assert found.load_seconds > 0


def test_a_context_shorter_than_a_chunk_is_never_worthwhile() -> None:
    found = payoff(0, 0, 0, 1, assumed_rates("cuda"))
    assert found.is_worthwhile is False
    assert found.break_even_bytes_per_second is None


@given(_BYTES, _FLOPS, st.integers(1, 64))
def test_loading_pays_off_exactly_above_the_break_even(size_bytes: int, flops: int, ranks: int) -> None:
    at = payoff(1, size_bytes, flops, ranks, assumed_rates("cuda")).break_even_bytes_per_second
    assert at is not None
    assert payoff(1, size_bytes, flops, ranks, Rates(at * 1.01, 150e12)).is_worthwhile
    assert not payoff(1, size_bytes, flops, ranks, Rates(at * 0.99, 150e12)).is_worthwhile


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, 0.0), (-1.0, 0.0), (0.012345, 0.012), (0.0996, 0.1), (1.25, 1.2), (12.6, 13.0), (1234.0, 1200.0)],
)
def test_two_significant_digits(seconds: float, shown: float) -> None:
    assert shown_seconds(seconds) == shown
