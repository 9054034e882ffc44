"""The memory of what is stored: bounded, and about the objects that were in use last."""

from __future__ import annotations

import tracemalloc

from couchbase_lm_cache.stored_sizes import StoredSizes

MIB = 1024 * 1024


def test_a_stored_object_is_new_once_and_taken_off_once() -> None:
    sizes: StoredSizes[str] = StoredSizes()
    assert sizes.add(["a", "b", "a"], [1, 2, 3]) == [True, True, False]
    assert sizes.add(["b"], [9]) == [False]
    assert sizes.take(["a", "b", "c", "a"]) == [1, 2, 0, 0]
    assert sizes.add(["a"], [4]) == [True]


def test_what_was_in_use_lately_is_known_and_what_is_forgotten_is_new_again() -> None:
    sizes: StoredSizes[int] = StoredSizes(remembered=100)
    sizes.add([-1], [7])
    for key in range(1000):
        assert sizes.add([key, -1], [1, 9]) == [True, False]
    assert sizes.add(range(900, 1000), [1] * 100) == [False] * 100
    assert sizes.take([0, 1, 2]) == [0, 0, 0]
    assert sizes.add([0], [1]) == [True]
    assert sizes.take([-1]) == [7], "the size that was counted first is the one to be taken off"


def test_a_long_life_costs_no_more_memory_than_a_short_one() -> None:
    sizes: StoredSizes[int] = StoredSizes()
    tracemalloc.start()
    try:
        for first in range(0, 500_000, 1000):
            sizes.add(range(first << 20, (first + 1000) << 20, 1 << 20), range(first + 1000, first + 2000))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16 * MIB
