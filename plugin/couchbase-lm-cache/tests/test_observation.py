"""What an adapter tells of the objects it stored and loaded, and that another layout of the same bytes is a miss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import BUCKET, SCOPE, OpenAdapter, Place
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache_parts import KIB, Driver, L1Memory, content, key, keys
from prometheus_client import REGISTRY
from storage_managers import LAYOUT, OBJECT_BYTES, manager

from couchbase_lm_cache.sharding import layout_hash

SHAPE = torch.Size([2, 4, 64, 128])
RANK_0, RANK_1 = 0x02000200, 0x02010201
# What the keys do not tell apart: other layouts of as many bytes.
TWINS = {
    "another dtype": ([SHAPE], [torch.float16]),
    "half the width, twice the tokens": ([torch.Size([2, 4, 128, 128])], [torch.float8_e4m3fn]),
    "another order": ([torch.Size([4, 2, 64, 128])], [torch.bfloat16]),
    "several tensors": ([torch.Size([4, 64, 128])] * 2, [torch.bfloat16] * 2),
}


def samples(place: Place, name: str) -> list[tuple[dict[str, str], float]]:
    """Return the series of a metric that are of the test's collection."""
    mine = {"bucket": BUCKET, "collection": f"{SCOPE}.{place.collection}"}
    return [
        ({label: text for label, text in sample.labels.items() if label not in mine}, sample.value)
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == f"couchbase_lm_cache_{name}" and mine.items() <= sample.labels.items()
    ]


def value(place: Place, name: str) -> float:
    ((_, number),) = samples(place, name)
    return number


def status(driver: Driver) -> dict[str, Any]:
    return driver.adapter.report_status()


def test_sizes_and_layouts_of_every_group_and_rank(driver: Driver, l1: L1Memory, place: Place) -> None:
    assert status(driver)["objects"] == []
    assert samples(place, "object_bytes") == []
    names = [key(1, rank=RANK_0), key(1, rank=RANK_1), key(1, rank=RANK_0, group=1)]
    full, state = ([SHAPE], [torch.bfloat16]), ([torch.Size([3, KIB]), torch.Size([5])], [torch.float32, torch.uint8])
    assert driver.store(names, [l1.shaped(*full), l1.shaped(*full), l1.shaped(*state)]).is_successful()

    bytes_of_full, bytes_of_state = OBJECT_BYTES, 3 * KIB * 4 + 5
    layout_of_full = layout_hash([SHAPE], ["torch.bfloat16"])
    layout_of_state = layout_hash([[3, KIB], [5]], ["torch.float32", "torch.uint8"])
    assert status(driver)["objects"] == [
        {
            "model_name": "test/model",
            "object_group": group,
            "kv_rank": rank,
            "bytes": size,
            "layout": layout,
            "shapes": shapes,
            "dtypes": dtypes,
        }
        for group, rank, size, layout, shapes, dtypes in (
            (0, "0x02000200", bytes_of_full, layout_of_full, [list(SHAPE)], ["torch.bfloat16"]),
            (0, "0x02010201", bytes_of_full, layout_of_full, [list(SHAPE)], ["torch.bfloat16"]),
            (1, "0x02000200", bytes_of_state, layout_of_state, [[3, KIB], [5]], ["torch.float32", "torch.uint8"]),
        )
    ]
    assert samples(place, "object_bytes") == [
        ({"model_name": "test/model", "object_group": group, "kv_rank": rank, "layout": layout}, size)
        for group, rank, layout, size in (
            ("0", "0x02000200", layout_of_full, bytes_of_full),
            ("0", "0x02010201", layout_of_full, bytes_of_full),
            ("1", "0x02000200", layout_of_state, bytes_of_state),
        )
    ]


def test_loads_of_whole_objects_give_the_speed(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    size = 100 * KIB
    one, other = open_adapter(), open_adapter()
    one.store(keys(3), l1.filled(size, size, size))
    assert status(one)["whole_loads"] == {"count": 0, "bytes": 0, "seconds": 0.0, "bytes_per_second": None}
    assert value(place, "load_seconds_count") == 0

    assert other.load(keys(3), l1.take(size, size, size)) == [True, True, True]
    assert other.load(keys(4), l1.take(size, size, size, size)) == [True, True, True, False]  # no measure of speed
    assert other.load([], []) == []
    loads = status(other)["whole_loads"]
    assert (loads["count"], loads["bytes"]) == (1, 3 * size)
    assert loads["bytes_per_second"] == pytest.approx(loads["bytes"] / loads["seconds"], rel=0.01)
    assert [each["bytes"] for each in status(other)["objects"]] == [size]
    assert value(place, "load_seconds_count") == 1
    assert value(place, "load_seconds_sum") == pytest.approx(loads["seconds"], abs=1e-5)
    assert value(place, "loaded_bytes_total") == 3 * size


def test_two_adapters_that_see_the_same_tell_it_once(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    one, other = open_adapter(), open_adapter()
    one.store(keys(1), l1.filled(KIB))
    other.load(keys(1), l1.take(KIB))
    assert [size for _, size in samples(place, "object_bytes")] == [KIB]
    one.adapter.close()
    assert [size for _, size in samples(place, "object_bytes")] == [KIB]
    other.adapter.close()
    assert samples(place, "object_bytes") == []


def test_what_failed_was_not_seen(open_adapter: OpenAdapter, l1: L1Memory) -> None:
    nowhere = open_adapter(connection_string="couchbase://127.0.0.1:1", startup="degraded")
    assert not nowhere.store(keys(1), l1.filled(KIB)).is_successful()
    assert nowhere.load(keys(1), l1.take(KIB)) == [False]
    assert status(nowhere)["objects"] == []
    assert status(nowhere)["whole_loads"]["count"] == 0


@pytest.mark.parametrize("twin", TWINS)
def test_as_many_bytes_of_another_layout_are_a_miss(driver: Driver, l1: L1Memory, twin: str) -> None:
    written = l1.shaped([SHAPE], [torch.bfloat16])
    written.byte_array.cast("B")[:] = bytes([7]) * OBJECT_BYTES
    assert driver.store(keys(1), [written]).is_successful()
    other = l1.shaped(*TWINS[twin])
    assert other.get_size() == OBJECT_BYTES
    assert driver.load(keys(1), [other]) == [False]
    assert content(other) == bytes(OBJECT_BYTES)
    assert status(driver)["counts"]["loads_failed_layout"] == 1
    # What was stored is good for those who share its layout, and stays.
    again = l1.shaped([SHAPE], [torch.bfloat16])
    assert driver.load(keys(1), [again]) == [True]
    assert content(again) == content(written)


def test_a_server_of_another_layout_computes_and_a_like_one_reads(place: Place) -> None:
    """Through LMCache's storage manager: under one key_prefix, as a user's own prefix may bring about."""
    with manager(place.params) as one:
        written = one.put(keys(4))
        one.await_stored(4)
    shapes, dtypes = TWINS["half the width, twice the tokens"]
    with manager(place.params) as other:
        result = other.answer(other.ask(keys(4), MemoryLayoutDesc(shapes, dtypes)))
        assert (result.l1_hit_count, result.l2_hit_count) == (0, 0)
        assert other.counts()["loads_failed_layout"] == 4
    with manager(place.params) as alike:
        assert alike.answer(alike.ask(keys(4), LAYOUT)).l2_hit_count == 4
        assert alike.read(keys(4)) == written
