from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_operator.core.quantity import format_bytes, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1Mi", 1 << 20),
        ("1.5Gi", 3 << 29),
        ("100M", 100_000_000),
        ("1k", 1000),
        ("123", 123),
        ("1500m", 2),
        ("0", 0),
        ("1e9", 10**9),
    ],
)
def test_quantities_are_bytes(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "1mi", "1 Gi", "Gi", "1e3x", "e3", "1e999", "NaN", "1GiB"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@given(st.integers(0, 1 << 60))
def test_formatting_loses_nothing(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes)) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90s", 90), ("24h", 86400), ("1d12h", 129_600), ("1h30m5s", 5405)]
)
def test_durations_are_seconds(text: str, seconds: int) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "1m1h", "-1s", "1.5h", "1y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)
