"""How much of a task goes into one call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_cache.batching import GROUP_BYTES, batches
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

KIB, MIB = 1024, 1024 * 1024


def settings(**changes: object) -> CouchbaseLMCacheConfig:
    params = {"connection_string": "couchbase://h", "bucket_name": "b", "username": "u", "password": "p"}
    return CouchbaseLMCacheConfig.from_dict(params | changes, environ={})


@pytest.mark.parametrize(
    ("size", "count", "lengths"),
    [(64 * KIB, 256, [128, 128]), (36 * MIB, 20, [16, 4]), (KIB, 1000, [512, 488]), (MIB, 16, [16])],
)
def test_many_small_objects_share_a_call_and_few_large_ones(size: int, count: int, lengths: list[int]) -> None:
    assert [len(batch) for batch in batches(range(count), lambda _: size, settings())] == lengths


def test_calls_that_may_bring_whole_objects_ask_for_few() -> None:
    plain = settings(checksum="none", shard_size_bytes=20 * MIB)
    assert [len(batch) for batch in batches(range(3), lambda _: 20 * MIB, plain)] == [1, 1, 1]


@given(st.lists(st.integers(0, 2 * GROUP_BYTES)))
def test_nothing_is_lost_or_put_in_another_order(sizes: list[int]) -> None:
    found = batches(range(len(sizes)), lambda index: sizes[index], settings())
    assert [index for batch in found for index in batch] == list(range(len(sizes)))
