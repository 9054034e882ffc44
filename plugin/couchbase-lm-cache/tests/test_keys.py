"""Document keys: the documented shape, the limit, and that no two objects share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couchbase_lm_cache.keys import MAX_KEY_BYTES, MAX_SHARDS, object_key, shard_key

SOURCES = Path(__file__).parents[1] / "src"
HASH = bytes(range(32))

names = st.text(st.characters(exclude_characters="@"), min_size=1, max_size=150)
salts = st.text(st.characters(exclude_characters="@/\\\x00"), max_size=128)
identities = st.tuples(names, st.integers(0, 2**32 - 1), st.integers(0, 300), st.binary(min_size=1, max_size=32), salts)


def key_of(prefix: str, identity: tuple[str, int, int, bytes, str]) -> str:
    model, rank, group, chunk, salt = identity
    return object_key(prefix, model_name=model, kv_rank=rank, object_group_id=group, chunk_hash=chunk, cache_salt=salt)


def test_the_documented_shape() -> None:
    plain = object_key("", model_name="Qwen/Qwen3-8B", kv_rank=0x01000100, object_group_id=10, chunk_hash=HASH)
    assert plain == f"Qwen/Qwen3-8B@0x01000100@a@{HASH.hex()}"
    salted = object_key(
        "v1:", model_name="Qwen/Qwen3-8B", kv_rank=1, object_group_id=0, chunk_hash=HASH, cache_salt="team"
    )
    assert salted == f"v1:Qwen/Qwen3-8B@0x00000001@0@{HASH.hex()}@team"
    assert shard_key(plain, 35) == plain + "::shard::35"


def test_a_long_name_becomes_a_hash_that_keeps_the_prefix() -> None:
    key = object_key("v1:", model_name="m" * 200, kv_rank=1, object_group_id=0, chunk_hash=HASH)
    assert key.startswith("v1:#")
    assert len(key) == len("v1:#") + 64


@pytest.mark.parametrize("index", [-1, MAX_SHARDS])
def test_shard_numbers_outside_the_reserved_room_are_refused(index: int) -> None:
    with pytest.raises(ValueError, match="shard number"):
        shard_key("key", index)


@given(st.text(max_size=300), identities)
def test_every_key_and_shard_key_fits_and_is_utf8(prefix: str, identity: tuple[str, int, int, bytes, str]) -> None:
    key = key_of(prefix, identity)
    assert 0 < len(key.encode()) <= MAX_KEY_BYTES
    assert len(shard_key(key, MAX_SHARDS - 1).encode()) <= MAX_KEY_BYTES
    assert key == key_of(prefix, identity)


@given(st.text(max_size=80), identities, identities)
def test_different_objects_have_different_keys(
    prefix: str, one: tuple[str, int, int, bytes, str], other: tuple[str, int, int, bytes, str]
) -> None:
    assert (key_of(prefix, one) == key_of(prefix, other)) == (one == other)


def test_a_salt_with_a_lone_surrogate_has_a_key() -> None:
    key = object_key("p:", model_name="m", kv_rank=1, object_group_id=0, chunk_hash=HASH, cache_salt="\ud800")
    assert key.startswith("p:#")


@pytest.mark.parametrize("module", ["keys", "sharding", "settings"])
def test_tools_can_import_it_without_lmcache_and_without_the_sdk(module: str) -> None:
    code = (
        f"import sys, couchbase_lm_cache.{module}; "
        "sys.exit(sorted({'couchbase', 'lmcache', 'torch'} & set(sys.modules)) or 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
