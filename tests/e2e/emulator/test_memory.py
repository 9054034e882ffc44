"""Quota, refusal of writes, eviction, expiry."""

import pytest

from e2e.couchbase_emulator import RunningEmulator
from e2e.couchbase_emulator.model.bucket import BucketSettings, make_bucket
from e2e.couchbase_emulator.model.clock import RELATIVE_EXPIRY_LIMIT_SECONDS, Clock
from e2e.couchbase_emulator.model.documents import DocumentStore, Room
from tests.e2e.emulator.conftest import Start, Wire

MIB = 1024 * 1024


def _store(eviction: str, quota_mib: int = 100) -> DocumentStore:
    settings = BucketSettings("b", "ephemeral", quota_mib, eviction_policy=eviction, vbuckets=8)
    return make_bucket(settings, members=[0], node_count=1, clock=Clock()).documents


def _fill(store: DocumentStore, count: int) -> None:
    for number in range(count):
        store.put(number % 8, b"\0%d" % number, bytes(MIB), flags=0, expiry=0)


def test_writes_are_refused_above_93_percent() -> None:
    store = _store("noEviction")
    _fill(store, 92)
    assert store.room_for(0, b"\0x", MIB // 2) is Room.FREE
    assert store.room_for(0, b"\0x", 2 * MIB) is Room.TEMPORARILY_FULL


def test_shrunken_quota_is_out_of_memory() -> None:
    store = _store("noEviction")
    _fill(store, 90)
    store.quota_bytes = 80 * MIB
    assert store.room_for(0, b"\0x", 1) is Room.OUT_OF_MEMORY


def test_pager_evicts_the_least_read_down_to_the_low_watermark() -> None:
    store = _store("nruEviction")
    _fill(store, 88)
    hot = [(number % 8, b"\0%d" % number) for number in range(0, 88, 4)]
    for vbucket, key in hot:
        for _ in range(3):
            store.get(vbucket, key)
    store.relieve(0)
    assert 70 * MIB <= store.used_bytes[0] <= 75 * MIB
    assert all(store.get(vbucket, key) for vbucket, key in hot)
    assert store.evicted_documents == 88 - store.count()


def test_pager_of_a_bucket_without_eviction_keeps_everything() -> None:
    store = _store("noEviction")
    _fill(store, 88)
    assert store.relieve(0) == 0
    assert store.count() == 88


def test_memory_is_given_back() -> None:
    store = _store("nruEviction")
    _fill(store, 10)
    store.put(0, b"\x000", b"small", flags=0, expiry=0)
    for number in range(10):
        store.remove(number % 8, b"\0%d" % number)
    assert store.used_bytes == [0]


def test_bucket_under_pressure_recovers_by_eviction(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        statuses = [client.set(b"key-%d" % number, bytes(MIB)).status for number in range(300)]
    assert set(statuses) <= {0, 0x86}
    assert statuses.count(0) > 200
    used = emulator.call(lambda running: running.cluster.buckets["cache"].documents.used_bytes[0])
    assert used <= 93 * MIB


def test_bucket_without_eviction_answers_temporary_failure(start: Start) -> None:
    emulator = start()
    emulator.create_bucket("cache", quota_mib=100, eviction_policy="noEviction")
    with Wire(emulator, "Administrator", "password", place=("cache", "_default", "_default")) as client:
        statuses = [client.set(b"key-%d" % number, bytes(MIB)).status for number in range(100)]
    assert statuses[:90] == [0] * 90
    assert statuses[-5:] == [0x86] * 5


@pytest.mark.parametrize(
    ("wire_expiry", "max_ttl", "lives_seconds"),
    [(0, 0, None), (60, 0, 60), (60, 30, 30), (0, 30, 30), (RELATIVE_EXPIRY_LIMIT_SECONDS, 0, 30 * 86400)],
)
def test_expiry_counts_from_now_and_is_capped(wire_expiry: int, max_ttl: int, lives_seconds: int | None) -> None:
    clock = Clock()
    expiry = clock.absolute_expiry(wire_expiry, max_ttl)
    if lives_seconds is None:
        assert expiry == 0
    else:
        assert expiry - clock.now_seconds() == pytest.approx(lives_seconds, abs=2)


def test_far_expiry_is_a_unix_time() -> None:
    clock = Clock()
    moment = int(clock.now_seconds()) + 90 * 86400
    assert clock.absolute_expiry(moment) == moment


def test_documents_expire_when_time_passes(emulator: RunningEmulator) -> None:
    with Wire(emulator) as client:
        client.set(b"short", b"v", expiry=60)
        client.set(b"long", b"v", expiry=7200)
        client.set(b"ever", b"v")
        emulator.advance_clock(3600)
        assert [client.get(key).status for key in (b"short", b"long", b"ever")] == [0x01, 0, 0]
    assert set(emulator.documents("cache", "kv", "shards")) == {b"long", b"ever"}


def test_collection_and_bucket_cap_the_expiry(start: Start) -> None:
    emulator = start()
    emulator.create_bucket("cache", max_ttl_seconds=100)
    emulator.create_collection("cache", "kv", "shards")
    emulator.create_collection("cache", "kv", "short", max_ttl_seconds=10)
    for collection, seconds in (("shards", 100), ("short", 10)):
        with Wire(emulator, "Administrator", "password", place=("cache", "kv", collection)) as client:
            client.set(b"key", b"v", expiry=5000)
        expiry = emulator.documents("cache", "kv", collection)[b"key"].expiry
        now = emulator.call(lambda running: running.cluster.clock.now_seconds())
        assert expiry - now == pytest.approx(seconds, abs=2)
