"""The storage format: manifests byte for byte, and when a stored object may be loaded."""

from __future__ import annotations

import itertools
import json

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_cache.batching import grouped
from couchbase_lm_cache.errors import ManifestError
from couchbase_lm_cache.keys import MAX_SHARDS
from couchbase_lm_cache.sharding import (
    Manifest,
    checksum,
    layout_hash,
    parse_manifest,
    refusal,
    shard_count,
    split,
)

LAYOUT = layout_hash([[2, 36, 256, 1024]], ["torch.bfloat16"])


def test_the_plain_manifest_is_the_documented_one_byte_for_byte() -> None:
    assert Manifest(36, 37748736).to_json() == b'{"lmcache_shards": 36, "bytes": 37748736}'


def test_a_manifest_with_checksums_begins_with_the_documented_keys() -> None:
    fields = json.loads(Manifest(1, 3, (checksum(b"abc"),), LAYOUT).to_json())
    assert list(fields) == ["lmcache_shards", "bytes", "xxh3", "layout"]
    assert fields["xxh3"] == [xxhash.xxh3_64(b"abc").hexdigest()]


@given(st.integers(0, 10**6), st.integers(1, 2 * 10**6))
def test_shards_cover_an_object_exactly(size_bytes: int, shard_size_bytes: int) -> None:
    shards = split(size_bytes, shard_size_bytes)
    assert len(shards) == shard_count(size_bytes, shard_size_bytes)
    assert [part.index for part in shards] == list(range(len(shards)))
    assert sum(part.size_bytes for part in shards) == size_bytes
    assert all(one.end == other.start for one, other in itertools.pairwise(shards))
    assert all(part.size_bytes == shard_size_bytes for part in shards[:-1])
    groups = grouped(shards, lambda part: part.size_bytes, 100_000)
    assert [part for group in groups for part in group] == shards
    assert all(len(group) == 1 or sum(part.size_bytes for part in group) <= 100_000 for group in groups)


def test_more_shards_than_keys_can_number_are_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        split((MAX_SHARDS + 1) * 1024, 1024)


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_a_manifest_survives_the_way_through_a_document(content: bytes, shard_size_bytes: int) -> None:
    shards = split(len(content), shard_size_bytes)
    sums = tuple(checksum(content[part.start : part.end]) for part in shards)
    for manifest in (Manifest(len(shards), len(content), sums, LAYOUT), Manifest(len(shards), len(content))):
        assert parse_manifest(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"lmcache_shards": 1}',
        b'{"lmcache_shards": true, "bytes": 1}',
        b'{"lmcache_shards": -1, "bytes": 1}',
        b'{"lmcache_shards": 1.5, "bytes": 2}',
        b'{"lmcache_shards": 0, "bytes": 5}',
        b'{"lmcache_shards": 3, "bytes": 2}',
        b'{"lmcache_shards": 1, "bytes": 2, "xxh3": ["0", "1"], "layout": "x"}',
        b'{"lmcache_shards": 1, "bytes": 2, "xxh3": [7], "layout": "x"}',
        b'{"lmcache_shards": 1, "bytes": 2, "xxh3": "0", "layout": "x"}',
        b'{"lmcache_shards": 1, "bytes": 2, "xxh3": ["0"]}',
        b'{"lmcache_shards": 1, "bytes": 2, "layout": "x"}',
        b'{"lmcache_shards": 1, "bytes": 2, "xxi3": ["0"], "layouu": "x"}',
        b'{"lmcache_shards": 99999999999999, "bytes": 99999999999999}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(content)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_break_the_parser(content: bytes) -> None:
    try:
        parse_manifest(content)
    except ManifestError:
        return


def test_an_object_is_loaded_only_into_a_buffer_of_its_size_and_layout() -> None:
    manifest = Manifest(1, 3, (checksum(b"abc"),), LAYOUT)
    assert refusal(manifest, size_bytes=3, layout=LAYOUT, require_checksum=True) is None
    assert refusal(manifest, size_bytes=4, layout=LAYOUT, require_checksum=False) == "size"
    assert refusal(manifest, size_bytes=2, layout=LAYOUT, require_checksum=False) == "size"
    assert refusal(manifest, size_bytes=3, layout="other", require_checksum=False) == "layout"


def test_objects_without_checksums_are_loaded_unless_checksums_are_required() -> None:
    plain = Manifest(2, 3)
    assert refusal(plain, size_bytes=3, layout=LAYOUT, require_checksum=False) is None
    assert refusal(plain, size_bytes=3, layout=LAYOUT, require_checksum=True) == "unverifiable"


def test_layouts_differ_by_shape_order_and_dtype() -> None:
    hashes = {
        layout_hash([[2, 4]], ["torch.float16"]),
        layout_hash([[4, 2]], ["torch.float16"]),
        layout_hash([[2, 4]], ["torch.bfloat16"]),
        layout_hash([[2], [4]], ["torch.float16", "torch.float16"]),
    }
    assert len(hashes) == 4
