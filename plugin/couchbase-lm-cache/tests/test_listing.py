"""Lists of stored keys: how keys are read back, and what is said where a bucket cannot be scanned."""

from __future__ import annotations

import pytest
from conftest import OpenAdapter
from hypothesis import given
from hypothesis import strategies as st
from lmcache_parts import Driver

from couchbase_lm_cache.keys import KeyParts, object_key, parse_object_key, shard_key

models = st.text(st.characters(exclude_characters="@", exclude_categories=["Cs"]), min_size=1, max_size=40)
salts = st.text(st.characters(exclude_characters="@/\\\x00", exclude_categories=["Cs"]), max_size=20)
ranks = st.integers(0, 2**32 - 1)
prefixes = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(prefixes, st.builds(KeyParts, st.binary(min_size=1, max_size=32), models, ranks, st.integers(0, 300), salts))
def test_keys_are_read_back(prefix: str, parts: KeyParts) -> None:
    name = object_key(prefix, **parts._asdict())
    assert parse_object_key(prefix, name) == parts
    assert parse_object_key(prefix, shard_key(name, 7)) is None


@pytest.mark.parametrize(
    "name", ["", "p/", "p/#" + "0" * 64, "p/model@0x01000100@0@zz", "p/m@01000100@0@00", "q/m@0x01000100@0@00"]
)
def test_other_keys_are_nobody_s(name: str) -> None:
    assert parse_object_key("p/", name) is None


@pytest.mark.parametrize("cursor", ["§", "====", "AAA", "_____w=="])
def test_malformed_cursors_and_sizes_are_refused(driver: Driver, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor is malformed"):
        driver.adapter.list_l2_keys(cursor=cursor)
    with pytest.raises(ValueError, match="page_size is 0"):
        driver.adapter.list_l2_keys(page_size=0)
    with pytest.raises(ValueError, match="cursor belongs to another listing"):
        driver.adapter.list_l2_keys("some/model", cursor="YWJj")


def test_a_bucket_that_cannot_be_scanned_says_so(open_adapter: OpenAdapter) -> None:
    driver = open_adapter()
    with pytest.raises(NotImplementedError, match="ephemeral buckets have none"):
        driver.adapter.list_l2_keys()
