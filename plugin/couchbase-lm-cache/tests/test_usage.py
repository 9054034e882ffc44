"""Usage as LMCache's listeners and eviction see it: nothing twice, nothing below zero."""

from __future__ import annotations

import pytest
from conftest import OpenAdapter
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.internal_api import L2AdapterListener
from lmcache_parts import KIB, Driver, L1Memory, key, keys

SIZE = 64 * KIB


class Diary(L2AdapterListener):  # type: ignore[misc]
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.stored: list[tuple[ObjectKey, int]] = []
        self.accessed: list[ObjectKey] = []
        self.deleted: list[ObjectKey] = []

    def on_l2_keys_stored(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        self.stored += zip(keys, sizes, strict=True)

    def on_l2_keys_accessed(self, keys: list[ObjectKey]) -> None:
        self.accessed += keys

    def on_l2_keys_deleted(self, keys: list[ObjectKey]) -> None:
        self.deleted += keys


@pytest.fixture
def diary(driver: Driver) -> Diary:
    diary = Diary()
    driver.adapter.register_listener(diary)
    return diary


def used(driver: Driver) -> int:
    return int(driver.adapter.get_usage().total_bytes_used)


def test_usage_follows_stores_and_deletes(driver: Driver, diary: Diary, l1: L1Memory) -> None:
    driver.store(keys(3), l1.filled(SIZE, SIZE, SIZE))
    assert used(driver) == 3 * SIZE
    assert diary.stored == [(name, SIZE) for name in keys(3)]
    driver.adapter.delete(keys(3)[:1])
    assert used(driver) == 2 * SIZE
    assert diary.deleted == keys(3)[:1]
    driver.store(keys(1), l1.filled(SIZE))
    assert used(driver) == 3 * SIZE


@pytest.mark.parametrize("seed", [0, 1], ids=["the same bytes", "other bytes"])
def test_a_key_stored_again_is_counted_once(driver: Driver, diary: Diary, l1: L1Memory, seed: int) -> None:
    driver.store(keys(2), l1.filled(SIZE, SIZE))
    driver.store(keys(2), l1.filled(SIZE, SIZE, seed=seed))
    assert used(driver) == 2 * SIZE
    assert len(diary.stored) == 2
    assert diary.accessed == keys(2)


def test_what_another_server_had_stored_counts_from_the_first_store_here(
    open_adapter: OpenAdapter, driver: Driver, diary: Diary, l1: L1Memory
) -> None:
    open_adapter().store(keys(1), l1.filled(SIZE))
    assert used(driver) == 0
    driver.store(keys(1), l1.filled(SIZE))
    assert used(driver) == SIZE
    assert diary.stored == [(key(0), SIZE)]


def test_deletes_never_go_below_zero(open_adapter: OpenAdapter, driver: Driver, diary: Diary, l1: L1Memory) -> None:
    open_adapter().store(keys(2), l1.filled(SIZE, SIZE))
    driver.store([key(9)], l1.filled(SIZE))
    driver.adapter.delete(keys(2))
    assert used(driver) == SIZE
    assert diary.deleted == keys(2)
    driver.adapter.delete(keys(2))
    driver.adapter.delete([key(9)])
    driver.adapter.delete([key(9)])
    assert used(driver) == 0
    assert diary.deleted == [*keys(2), key(9)]


def test_loads_tell_which_keys_were_used(driver: Driver, diary: Diary, l1: L1Memory) -> None:
    driver.store(keys(2), l1.filled(SIZE, SIZE))
    assert driver.load(keys(3), l1.take(SIZE, SIZE, SIZE)) == [True, True, False]
    assert diary.accessed == keys(2)


def test_usage_by_salt(driver: Driver, l1: L1Memory) -> None:
    driver.store([key(1, salt="a"), key(1, salt="b"), key(2, salt="b")], l1.filled(SIZE, SIZE, SIZE))
    assert dict(driver.adapter.get_usage().bytes_by_cache_salt) == {"a": SIZE, "b": 2 * SIZE}
    driver.adapter.delete([key(1, salt="a")])
    assert dict(driver.adapter.get_usage().bytes_by_cache_salt) == {"b": 2 * SIZE}


def test_a_listener_that_fails_keeps_no_task_from_ending(driver: Driver, l1: L1Memory) -> None:
    class Broken(Diary):
        def on_l2_keys_accessed(self, keys: list[ObjectKey]) -> None:
            raise RuntimeError(f"broken listener of {len(keys)} keys")

    driver.adapter.register_listener(Broken())
    driver.store(keys(1), l1.filled(SIZE))
    assert driver.load(keys(1), l1.take(SIZE)) == [True]
