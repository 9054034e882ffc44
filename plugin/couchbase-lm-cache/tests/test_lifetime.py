"""How long documents live, and which hits renew them."""

from __future__ import annotations

import time

from conftest import OpenAdapter, Place
from lmcache_parts import MIB, Driver, L1Memory, keys
from observing import count, wait_until


def test_documents_get_the_lifetime(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    now = time.time()
    assert open_adapter(ttl_seconds=3600).store(keys(1), l1.filled(2 * MIB)).is_successful()
    documents = place.documents()
    assert len(documents) == 3
    assert all(now + 3590 <= document.expiry <= time.time() + 3610 for document in documents.values())


def test_without_a_lifetime_documents_never_expire(driver: Driver, l1: L1Memory, place: Place) -> None:
    assert driver.store(keys(1), l1.filled(2 * MIB)).is_successful()
    assert {document.expiry for document in place.documents().values()} == {0}


def test_a_hit_in_the_second_half_of_its_life_extends_an_object(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    """Written with 100 s to live, read by a server that would give it 3600 s."""
    assert open_adapter(ttl_seconds=100).store(keys(1), l1.filled(2 * MIB)).is_successful()
    reader = open_adapter(ttl_seconds=3600)
    assert reader.lookup(keys(1)) == [True]

    def all_extended() -> bool:
        return all(document.expiry > time.time() + 3000 for document in place.documents().values())

    wait_until(all_extended, "the refresh of all three documents")
    writes = place.emulator.counters.kv_writes
    assert reader.lookup(keys(1)) == [True]
    assert reader.load(keys(1), l1.take(2 * MIB)) == [True]
    assert place.emulator.counters.kv_writes == writes, "a fresh object was refreshed again"


def test_a_hit_in_the_first_half_or_without_refresh_changes_nothing(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    assert open_adapter(ttl_seconds=100).store(keys(1), l1.filled(2 * MIB)).is_successful()
    before = {name: document.expiry for name, document in place.documents().items()}
    early = open_adapter(ttl_seconds=110)
    assert early.lookup(keys(1)) == [True]
    wait_until(lambda: count(early, "lifetimes_checked") == 1, "the look at the lifetime")
    without = open_adapter(ttl_seconds=3600, refresh_ttl=False)
    assert without.lookup(keys(1)) == [True]
    without.adapter.close()
    assert (count(without, "lifetimes_checked"), count(early, "objects_refreshed")) == (0, 0)
    assert {name: document.expiry for name, document in place.documents().items()} == before
