"""Documents that are not what they should be: never a wrong byte, and the object is stored again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from conftest import OpenAdapter, Place
from couchbase.collection import Collection
from couchbase.options import UpsertOptions
from couchbase.transcoder import RawBinaryTranscoder, RawJSONTranscoder
from lmcache_parts import KIB, MIB, MODEL, Driver, L1Memory, content, keys

from couchbase_lm_cache.direct.transport import DirectTransport
from couchbase_lm_cache.document_flags import BINARY_FLAGS, JSON_FLAGS
from couchbase_lm_cache.sdk_transport import SdkTransport
from couchbase_lm_cache.transport import Outcome, ShardWrite, Transport

KEY_0 = f"{MODEL}@0x01000100@0@{'0' * 64}"
KEY_1 = KEY_0[:-1] + "1"
LAST_OF_1 = f"{KEY_1}::shard::2"


def put(bucket: Collection, name: str, value: bytes) -> None:
    bucket.upsert(name, value, UpsertOptions(transcoder=RawBinaryTranscoder()))


def test_a_smaller_or_larger_buffer_stays_empty(driver: Driver, l1: L1Memory) -> None:
    assert driver.store(keys(2), l1.filled(2 * MIB, 2 * MIB)).is_successful()
    target = l1.take(2 * MIB - 1, 2 * MIB + 1)
    assert driver.load(keys(2), target) == [False, False]
    assert all(content(item) == bytes(item.get_size()) for item in target)


def test_a_buffer_of_another_layout_stays_empty(driver: Driver, l1: L1Memory) -> None:
    import torch

    assert driver.store(keys(1), l1.filled(4 * KIB)).is_successful()
    same_size = l1.shaped([torch.Size([2, KIB])], [torch.float16])
    assert driver.load(keys(1), [same_size]) == [False]
    assert content(same_size) == bytes(4 * KIB)


@pytest.mark.parametrize("checksum", ["xxh3", "none"])
def test_a_missing_shard_is_a_miss_and_the_object_is_stored_again(
    open_adapter: OpenAdapter, l1: L1Memory, bucket: Collection, checksum: str
) -> None:
    driver = open_adapter(checksum=checksum)
    source, target = l1.filled(3 * MIB, 2 * MIB), l1.take(3 * MIB, 2 * MIB)
    assert driver.store(keys(2), source).is_successful()
    bucket.remove(f"{KEY_0}::shard::1")
    assert driver.load(keys(2), target) == [False, True]
    assert driver.lookup(keys(2)) == [False, True]
    assert driver.store(keys(2), source).is_successful()
    target = l1.take(3 * MIB, 2 * MIB)
    assert driver.load(keys(2), target) == [True, True]
    assert content(target[0]) == content(source[0])


def test_a_changed_byte_is_a_miss_and_the_object_is_stored_again(
    driver: Driver, l1: L1Memory, bucket: Collection, place: Place
) -> None:
    source, target = l1.filled(2 * MIB), l1.take(2 * MIB)
    assert driver.store(keys(1), source).is_successful()
    value = bytearray(place.documents()[f"{KEY_0}::shard::1"].value)
    value[12345] ^= 1
    put(bucket, f"{KEY_0}::shard::1", bytes(value))
    assert driver.load(keys(1), target) == [False]
    assert driver.store(keys(1), source).bytes_transferred() == 2 * MIB
    assert driver.load(keys(1), target) == [True]


def test_a_shard_of_another_chunk_is_a_miss(
    open_adapter: OpenAdapter, l1: L1Memory, bucket: Collection, place: Place
) -> None:
    """Whole, of the right length and with the right flags, but not its own; also one of its own in another place."""
    driver = open_adapter()
    source, target = l1.filled(*[3 * MIB] * 3), l1.take(*[3 * MIB] * 3)
    assert driver.store(keys(3), source).is_successful()
    documents = place.documents()
    put(bucket, f"{KEY_0}::shard::1", documents[f"{KEY_1}::shard::1"].value)
    put(bucket, f"{KEY_1}::shard::0", documents[f"{KEY_1}::shard::2"].value)
    assert driver.load(keys(3), target) == [False, False, True]
    assert content(target[2]) == content(source[2])
    assert driver.store(keys(3), source).bytes_transferred() == 6 * MIB, "what was damaged is stored again"
    assert driver.load(keys(3), target) == [True] * 3
    assert [content(item) for item in target] == [content(item) for item in source]


def test_a_manifest_of_another_chunk_is_a_miss(driver: Driver, l1: L1Memory, place: Place) -> None:
    source, target = l1.filled(2 * MIB, 2 * MIB), l1.take(2 * MIB, 2 * MIB)
    assert driver.store(keys(2), source).is_successful()
    other = place.documents()[KEY_1]
    place.put({KEY_0: (other.value, other.flags)})
    assert driver.load(keys(2), target) == [False, True]


@pytest.mark.parametrize("checksum", ["xxh3", "none"])
@pytest.mark.parametrize("flags", [JSON_FLAGS, JSON_FLAGS | 0x2], ids=["JSON", "JSON with legacy bits"])
def test_a_shard_with_the_flags_of_a_manifest_is_a_miss(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place, checksum: str, flags: int
) -> None:
    driver = open_adapter(checksum=checksum)
    source, target = l1.filled(3 * MIB), l1.take(3 * MIB)
    assert driver.store(keys(1), source).is_successful()
    name = f"{KEY_0}::shard::1"
    place.put({name: (place.documents()[name].value, flags)})
    assert driver.load(keys(1), target) == [False]
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]


@pytest.mark.parametrize("checksum", ["xxh3", "none"])
@pytest.mark.parametrize("flags", [BINARY_FLAGS, 0], ids=["binary", "none"])
def test_a_manifest_with_the_flags_of_a_shard_is_a_miss(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place, checksum: str, flags: int
) -> None:
    """Its bytes would be taken for an object of the plain format, were they as long as one."""
    driver = open_adapter(checksum=checksum)
    source, target = l1.filled(3 * MIB), l1.take(3 * MIB)
    assert driver.store(keys(1), source).is_successful()
    place.put({KEY_0: (place.documents()[KEY_0].value, flags)})
    assert driver.load(keys(1), target) == [False]
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


def test_a_document_longer_than_the_buffer_leaves_its_neighbours_alone(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    """Whole documents of the plain format, which no manifest describes, and shards."""
    driver = open_adapter(checksum="none")
    source, target = l1.filled(MIB, 3 * MIB, MIB), l1.take(MIB, 3 * MIB, MIB)
    assert driver.store(keys(3), source).is_successful()
    documents = place.documents()
    longer = {name: (documents[name].value + bytes([1]) * MIB, documents[name].flags) for name in (KEY_0, LAST_OF_1)}
    place.put(longer)
    assert driver.load(keys(3), target) == [False, False, True]
    assert content(target[0]) == bytes(MIB)
    assert content(target[2]) == content(source[2])


def test_a_byte_changed_on_the_way_is_a_miss(driver: Driver, l1: L1Memory, place: Place) -> None:
    source, target = l1.filled(4 * MIB), l1.take(4 * MIB)
    assert driver.store(keys(1), source).is_successful()
    place.emulator.faults.corrupt_values = -1
    assert driver.load(keys(1), target) == [False]


@pytest.mark.parametrize("length", [0, 1, MIB - 1, MIB + 1])
@pytest.mark.parametrize("checksum", ["xxh3", "none"])
def test_a_shard_of_another_length_is_a_miss(
    open_adapter: OpenAdapter, l1: L1Memory, bucket: Collection, length: int, checksum: str
) -> None:
    driver = open_adapter(checksum=checksum)
    assert driver.store(keys(1), l1.filled(3 * MIB)).is_successful()
    put(bucket, f"{KEY_0}::shard::1", b"x" * length)
    target = l1.take(3 * MIB)
    assert driver.load(keys(1), target) == [False]


def test_shards_without_a_manifest_are_a_miss(driver: Driver, l1: L1Memory, bucket: Collection) -> None:
    assert driver.store(keys(1), l1.filled(2 * MIB)).is_successful()
    bucket.remove(KEY_0)
    assert driver.lookup(keys(1)) == [False]
    assert driver.load(keys(1), l1.take(2 * MIB)) == [False]


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        [],
        "text",
        {"lmcache_shards": 2, "bytes": 2 * MIB, "xxh3": ["0"], "layout": "x"},
        {"lmcache_shards": 10**9, "bytes": 2 * MIB},
        {"lmcache_shards": 2, "bytes": -1},
        {"lmcache_shards": 2, "bytes": 10**400},
        {"lmcache_shards": 10**400, "bytes": 10**400},
        {"lmcache_shards": 2**63, "bytes": 2 * MIB},
        {"lmcache_shards": -2, "bytes": 2 * MIB},
        {"lmcache_shards": 2.0, "bytes": 2e6},
        {"lmcache_shards": True, "bytes": 2 * MIB},
        {"lmcache_shards": 2 * MIB, "bytes": 2 * MIB},
    ],
    ids=lambda manifest: str(manifest)[:40],
)
def test_a_document_that_is_no_manifest_is_a_miss(
    driver: Driver, l1: L1Memory, bucket: Collection, manifest: Any
) -> None:
    bucket.upsert(KEY_0, manifest)
    target = l1.take(2 * MIB)
    assert driver.load(keys(1), target) == [False]
    assert content(target[0]) == bytes(2 * MIB)


@pytest.mark.parametrize("checksum", ["xxh3", "none"])
def test_a_store_that_stops_halfway_leaves_no_mixture_behind(
    open_adapter: OpenAdapter, l1: L1Memory, monkeypatch: pytest.MonkeyPatch, checksum: str
) -> None:
    """Lengths cannot tell the shards of two stores apart; what was stored first has no checksums."""
    first, second, target = l1.filled(3 * MIB, seed=1), l1.filled(3 * MIB, seed=2), l1.take(3 * MIB)
    reader = open_adapter()
    assert open_adapter(checksum="none").store(keys(1), first).is_successful()
    assert reader.load(keys(1), target) == [True]
    for transport in (SdkTransport, DirectTransport):
        monkeypatch.setattr(transport, "write", _half(transport.write))
    writer = open_adapter(checksum=checksum)
    assert not writer.store(keys(1), second).is_successful()
    assert reader.load(keys(1), l1.take(3 * MIB)) == [False]
    monkeypatch.undo()
    assert writer.store(keys(1), second).is_successful()
    assert reader.load(keys(1), target) == [True]
    assert content(target[0]) == content(second[0])


def _half(whole: Callable[..., list[Outcome]]) -> Callable[..., list[Outcome]]:
    def half(self: Transport, writes: Sequence[ShardWrite], ttl: int, timeout: float) -> list[Outcome]:
        return [*whole(self, writes[:1], ttl, timeout), *[Outcome.REFUSED] * (len(writes) - 1)]

    return half


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not JSON",
        b'{"lmcache_shards": 2, "bytes": 2097152',
        b'{"lmcache_shards": 2, "bytes": 1e999}',
        b'{"lmcache_shards": NaN, "bytes": Infinity}',
        b'{"lmcache_shards": 1' + b"0" * 5000 + b', "bytes": 2097152}',
        b'\xff\xfe{"lmcache_shards": 2}',
        b"\0" * 4096,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_a_manifest_that_is_not_json_is_a_miss_and_the_object_is_stored_again(
    driver: Driver, l1: L1Memory, place: Place, text: bytes
) -> None:
    source, target = l1.filled(2 * MIB), l1.take(2 * MIB)
    assert driver.store(keys(1), source).is_successful()
    place.put({KEY_0: (text, JSON_FLAGS)})
    assert driver.load(keys(1), target) == [False]
    assert content(target[0]) == bytes(2 * MIB)
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]


def test_a_manifest_that_is_nested_too_deep_costs_only_its_own_object(
    driver: Driver, l1: L1Memory, bucket: Collection
) -> None:
    assert driver.store(keys(2), l1.filled(KIB, KIB)).is_successful()
    bucket.upsert(KEY_0, b"[" * 100_000, UpsertOptions(transcoder=RawJSONTranscoder()))
    assert driver.load(keys(2), l1.take(KIB, KIB)) == [False, True]
