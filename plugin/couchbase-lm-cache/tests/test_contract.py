"""LMCache's contract with an L2 adapter, on the real LMCache classes, the real SDK and an emulated Couchbase."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
import xxhash
from conftest import Place
from lmcache.v1.memory_management import GDSMemoryObject, MemoryFormat, MemoryObjMetadata
from lmcache_parts import KIB, MIB, MODEL, Driver, L1Memory, content, key, keys

from couchbase_lm_cache.errors import SettingsError
from couchbase_lm_cache.sharding import layout_hash

OpenAdapter = Callable[..., Driver]
KEY_0 = f"{MODEL}@0x01000100@0@{'0' * 64}"


def test_the_loader_of_lmcache_creates_it_with_a_memory_descriptor(place: Place, l1: L1Memory) -> None:
    from lmcache_parts import create_adapter

    adapter = create_adapter(place.params, l1.descriptor)
    assert adapter.report_status()["is_healthy"] is True
    adapter.close()


def test_the_loader_of_lmcache_passes_on_what_is_wrong_with_a_setting(open_adapter: OpenAdapter) -> None:
    with pytest.raises(SettingsError, match="did you mean ttl_seconds"):
        open_adapter(tll_seconds=1)


def test_descriptors_are_distinct(driver: Driver, open_adapter: OpenAdapter) -> None:
    fds = [
        fd
        for adapter in (driver.adapter, open_adapter().adapter)
        for fd in (
            adapter.get_store_event_fd(),
            adapter.get_lookup_and_lock_event_fd(),
            adapter.get_load_event_fd(),
        )
    ]
    assert len(set(fds)) == 6


@pytest.mark.parametrize("checksum", ["xxh3", "none"])
@pytest.mark.parametrize("size", [1, 4095, 1023 * KIB, MIB, MIB + 1, 5 * MIB + 17, 20 * MIB])
def test_what_is_stored_is_loaded(open_adapter: OpenAdapter, l1: L1Memory, size: int, checksum: str) -> None:
    driver = open_adapter(checksum=checksum)
    source, target = l1.filled(size), l1.take(size)
    result = driver.store(keys(1), source)
    assert result.is_successful()
    assert result.bytes_transferred() == size
    assert driver.lookup(keys(1)) == [True]
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


def test_tensors_of_several_groups_survive(driver: Driver, l1: L1Memory) -> None:
    shapes, dtypes = [torch.Size([2, 3, 64, 8]), torch.Size([1, 64, 4])], [torch.bfloat16, torch.float32]
    source, target = l1.shaped(shapes, dtypes), l1.shaped(shapes, dtypes)
    source.byte_array.cast("B")[:] = bytes(i % 251 for i in range(source.get_size()))
    assert driver.store(keys(1), [source]).is_successful()
    assert driver.load(keys(1), [target]) == [True]
    assert content(target) == content(source)


def test_mixed_sizes_and_groups_in_one_task(driver: Driver, l1: L1Memory) -> None:
    sizes = [3 * MIB, 1, 700 * KIB, 2 * MIB, 64 * KIB]
    names = [key(number, group=number % 3, salt="team" * (number % 2)) for number in range(5)]
    source, target = l1.filled(*sizes), l1.take(*sizes)
    assert driver.store(names, source).bytes_transferred() == sum(sizes)
    assert driver.load(names, target) == [True] * 5
    assert [content(item) for item in target] == [content(item) for item in source]


def test_salts_ranks_groups_and_models_are_kept_apart(driver: Driver, l1: L1Memory) -> None:
    assert driver.store([key(1)], l1.filled(KIB)).is_successful()
    others = [key(1, salt="x"), key(1, rank=0x02000200), key(1, group=1), key(1, model="other"), key(2)]
    assert driver.lookup([key(1), *others]) == [True] + [False] * 5


def test_a_lookup_reports_every_hit_behind_a_gap(driver: Driver, l1: L1Memory) -> None:
    stored = [key(number) for number in (0, 2, 3, 7)]
    assert driver.store(stored, l1.filled(*[KIB] * 4)).is_successful()
    assert driver.lookup(keys(9)) == [number in (0, 2, 3, 7) for number in range(9)]


def test_a_load_with_interleaved_misses_fills_exactly_the_hits(driver: Driver, l1: L1Memory) -> None:
    source = l1.filled(*[2 * MIB] * 4)
    assert driver.store([key(number) for number in range(0, 8, 2)], source).is_successful()
    target = l1.take(*[2 * MIB] * 8)
    assert driver.load(keys(8), target) == [True, False] * 4
    assert [content(item) for item in target[::2]] == [content(item) for item in source]
    assert all(content(item) == bytes(2 * MIB) for item in target[1::2])


@pytest.mark.parametrize("count", [16, 32, 700])
def test_batches(driver: Driver, l1: L1Memory, count: int) -> None:
    source, target = l1.filled(*[KIB] * count), l1.take(*[KIB] * count)
    assert driver.store(keys(count), source).is_successful()
    assert driver.lookup(keys(count + 3)) == [True] * count + [False] * 3
    assert driver.load(keys(count), target) == [True] * count
    assert [content(item) for item in target] == [content(item) for item in source]


def test_many_tasks_at_once(driver: Driver, l1: L1Memory) -> None:
    source = l1.filled(*[512 * KIB] * 24)
    stores = [driver.adapter.submit_store_task([key(n)], [source[n]]) for n in range(24)]
    assert len(set(stores)) == 24
    assert all(driver.stored(task).is_successful() for task in stores)
    target = l1.take(*[512 * KIB] * 24)
    loads = [driver.adapter.submit_load_task([key(n)], [target[n]]) for n in range(24)]
    assert [driver.loaded(task, 1) for task in loads] == [[True]] * 24
    assert [content(item) for item in target] == [content(item) for item in source]


def test_empty_tasks_end_at_once(driver: Driver) -> None:
    assert driver.store([], []).is_successful()
    assert driver.lookup([]) == []
    assert driver.load([], []) == []


def test_results_are_handed_out_once(driver: Driver, l1: L1Memory) -> None:
    adapter, memory = driver.adapter, l1.filled(KIB)
    lookup = adapter.submit_lookup_and_lock_task(keys(1))
    driver.looked_up(lookup, 1)
    assert adapter.query_lookup_and_lock_result(lookup) is None
    load = adapter.submit_load_task(keys(1), memory)
    driver.loaded(load, 1)
    assert adapter.query_load_result(load) is None
    assert adapter.query_load_result(10**9) is None
    driver.store(keys(1), memory)
    assert adapter.pop_completed_store_tasks() == {}


def test_storing_again_replaces_the_content(driver: Driver, l1: L1Memory) -> None:
    first, second, target = l1.filled(3 * MIB, seed=1), l1.filled(3 * MIB, seed=2), l1.take(3 * MIB)
    assert driver.store(keys(1), first).is_successful()
    assert driver.store(keys(1), second).bytes_transferred() == 3 * MIB
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(second[0])


def test_the_same_content_is_not_sent_twice(driver: Driver, l1: L1Memory, place: Place) -> None:
    memory = l1.filled(3 * MIB)
    assert driver.store(keys(1), memory).is_successful()
    before = place.emulator.mutations.kv_writes
    again = driver.store(keys(1), memory)
    assert again.is_successful()
    assert again.bytes_transferred() == 0
    assert place.emulator.mutations.kv_writes == before


def test_a_deleted_object_is_a_miss_and_leaves_no_documents(driver: Driver, l1: L1Memory, place: Place) -> None:
    assert driver.store(keys(2), l1.filled(3 * MIB, 3 * MIB)).is_successful()
    assert driver.adapter.get_usage().total_bytes_used == 6 * MIB
    driver.adapter.delete([key(0), key(9)])
    assert driver.lookup(keys(2)) == [False, True]
    assert len(place.documents()) == 4
    assert driver.adapter.get_usage().total_bytes_used == 3 * MIB


def test_two_servers_share_what_one_of_them_stored(open_adapter: OpenAdapter, l1: L1Memory) -> None:
    one, other = open_adapter(key_prefix="v1:"), open_adapter(key_prefix="v1:")
    stranger = open_adapter(key_prefix="v2:")
    source, target = l1.filled(2 * MIB), l1.take(2 * MIB)
    assert one.store(keys(1), source).is_successful()
    assert stranger.lookup(keys(1)) == [False]
    assert other.lookup(keys(1)) == [True]
    assert other.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


def test_documents_with_checksums(driver: Driver, l1: L1Memory, place: Place) -> None:
    memory = l1.filled(2 * MIB + 5, 10)
    assert driver.store(keys(2), memory).is_successful()
    documents = place.documents()
    assert len(documents) == 4 + 2
    manifest = json.loads(documents[KEY_0].value)
    data = content(memory[0])
    parts = [data[:MIB], data[MIB : 2 * MIB], data[2 * MIB :]]
    assert manifest == {
        "lmcache_shards": 3,
        "bytes": 2 * MIB + 5,
        "xxh3": [xxhash.xxh3_64_hexdigest(part) for part in parts],
        "layout": layout_hash([[2 * MIB + 5]], ["torch.uint8"]),
    }
    assert [bytes(documents[f"{KEY_0}::shard::{n}"].value) for n in range(3)] == parts
    assert documents[KEY_0].flags == 0x02000000 | 0x0
    assert documents[f"{KEY_0}::shard::0"].flags >> 24 == 3
    one = json.loads(documents[KEY_0[:-1] + "1"].value)
    assert (one["lmcache_shards"], one["bytes"]) == (1, 10)


def test_documents_without_checksums_are_the_documented_format(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    memory = l1.filled(2 * MIB + 5, MIB)
    assert open_adapter(checksum="none").store(keys(2), memory).is_successful()
    documents = place.documents()
    assert bytes(documents[KEY_0].value) == b'{"lmcache_shards": 3, "bytes": 2097157}'
    assert documents[KEY_0].flags >> 24 == 2
    whole = documents[KEY_0[:-1] + "1"]
    assert bytes(whole.value) == content(memory[1])
    assert whole.flags >> 24 == 3
    assert len(documents) == 5


@pytest.mark.parametrize("shard_size", [64 * KIB, MIB - 4 * KIB, 2 * MIB, 20 * MIB])
def test_shard_sizes_of_other_servers_are_understood(open_adapter: OpenAdapter, l1: L1Memory, shard_size: int) -> None:
    """Also one that gives the same number of shards as our own, which no manifest can tell."""
    for checksum in ("xxh3", "none"):
        names = [key(1, salt=checksum), key(2, salt=checksum)]
        source, target = l1.filled(3 * MIB - 100 * KIB, 500), l1.take(3 * MIB - 100 * KIB, 500)
        assert open_adapter(shard_size_bytes=shard_size, checksum=checksum).store(names, source).is_successful()
        assert open_adapter().load(names, target) == [True, True]
        assert [content(item) for item in target] == [content(item) for item in source]


def test_objects_without_checksums_are_misses_when_checksums_are_required(
    open_adapter: OpenAdapter, l1: L1Memory
) -> None:
    assert open_adapter(checksum="none").store(keys(2), l1.filled(2 * MIB, KIB)).is_successful()
    target = l1.take(2 * MIB, KIB)
    assert open_adapter(require_checksum=True).load(keys(2), target) == [False, False]
    assert content(target[1]) == bytes(KIB)


def test_a_long_model_name_and_a_foreign_salt_work(driver: Driver, l1: L1Memory) -> None:
    names = [key(1, model="m" * 240), key(1, salt="ü" * 128), key(1, salt="\ud800"), key(1, model="m" * 241)]
    source, target = l1.filled(*[KIB] * 4), l1.take(*[KIB] * 4)
    assert driver.store(names, source).is_successful()
    assert driver.lookup(names) == [True] * 4
    assert driver.load(names, target) == [True] * 4
    assert [content(item) for item in target] == [content(item) for item in source]


def test_the_hundredth_shard_of_a_long_name_still_has_a_key(open_adapter: OpenAdapter, l1: L1Memory) -> None:
    rest_bytes = len(KEY_0) - len(MODEL)
    names = [key(0, model="m" * (length - rest_bytes)) for length in range(228, 240)]
    adapter = open_adapter(shard_size_bytes=4 * KIB)
    for name in names:
        source, target = l1.filled(401 * KIB), l1.take(401 * KIB)
        assert adapter.store([name], source).is_successful()
        assert adapter.load([name], target) == [True]
        assert content(target[0]) == content(source[0])


def test_memory_without_an_address_is_not_cached_and_breaks_nothing(driver: Driver, l1: L1Memory) -> None:
    """LMCache's GPUDirect Storage tier: its objects cannot be read by a CPU."""
    shape = torch.Size([KIB])
    metadata = MemoryObjMetadata(
        shape, torch.uint8, address=0, phy_size=KIB, ref_count=1, fmt=MemoryFormat.BINARY_BUFFER, shapes=[shape]
    )
    metadata.dtypes = [torch.uint8]
    slab = GDSMemoryObject(metadata)
    source, target = l1.filled(KIB), l1.take(KIB)
    assert not driver.store(keys(2), [slab, source[0]]).is_successful()
    assert driver.load([key(0), key(1)], [slab, target[0]]) == [False, True]
    assert content(target[0]) == content(source[0])


def test_status_tells_where_things_are_and_no_secret(driver: Driver, place: Place) -> None:
    status: dict[str, Any] = driver.adapter.report_status()
    assert status["type"] == "CouchbaseL2Adapter"
    assert status["is_healthy"] is True
    assert status["connection_state"] == "ready"
    assert status["collection"] == place.collection
    assert place.params["password"] not in json.dumps(status)
