"""What happens when Couchbase, its documents, its user or the caller misbehave: never a wrong byte, never a hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, Place, prepare
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.collection import Collection
from couchbase.options import ClusterOptions, UpsertOptions
from couchbase.transcoder import RawBinaryTranscoder
from lmcache_parts import KIB, MIB, MODEL, Driver, L1Memory, bits, content, key, keys

from couchbase_lm_cache.errors import ConnectError
from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

OpenAdapter = Callable[..., Driver]
KEY_0 = f"{MODEL}@0x01000100@0@{'0' * 64}"


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float = 30) -> None:
    """Wait for something that no event tells about."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def is_healthy(driver: Driver) -> bool:
    return bool(driver.adapter.report_status()["is_healthy"])


def count(driver: Driver, name: str) -> int:
    return int(driver.adapter.report_status()["counts"].get(name, 0))


@pytest.fixture
def bucket(place: Place) -> Iterator[Collection]:
    """The test's collection through the SDK, to look at and change documents."""
    options = ClusterOptions(PasswordAuthenticator(USERNAME, PASSWORD))
    cluster = Cluster.connect(place.emulator.connection_string, options)
    yield cluster.bucket(BUCKET).scope(SCOPE).collection(place.collection)
    cluster.close()


@pytest.fixture
def own_emulator() -> Iterator[RunningEmulator]:
    """An emulator that a test may kill."""
    with running_emulator() as emulator:
        prepare(emulator)
        yield emulator


@pytest.fixture
def own_place(own_emulator: RunningEmulator) -> Place:
    own_emulator.create_collection(BUCKET, SCOPE, "own")
    return Place(own_emulator, "own")


def put(bucket: Collection, name: str, value: bytes) -> None:
    bucket.upsert(name, value, UpsertOptions(transcoder=RawBinaryTranscoder()))


# --- documents that are not what they should be ---------------------------------------------------------


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
    assert content(target[0])[MIB:] == bytes(MIB)
    assert driver.store(keys(1), source).bytes_transferred() == 2 * MIB
    assert driver.load(keys(1), target) == [True]


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
    ],
)
def test_a_document_that_is_no_manifest_is_a_miss(
    driver: Driver, l1: L1Memory, bucket: Collection, manifest: Any
) -> None:
    bucket.upsert(KEY_0, manifest)
    target = l1.take(2 * MIB)
    assert driver.load(keys(1), target) == [False]
    assert content(target[0]) == bytes(2 * MIB)


# --- a server that is slow, full or gone ----------------------------------------------------------------


def test_a_server_that_is_full_for_a_moment_gets_the_store_later(driver: Driver, l1: L1Memory, place: Place) -> None:
    place.emulator.faults.tmpfail = 3
    source, target = l1.filled(3 * MIB), l1.take(3 * MIB)
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]


def test_a_server_that_stays_full_fails_the_store_by_its_deadline(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    driver = open_adapter(task_deadline_seconds=0.5, kv_timeout_seconds=0.2)
    place.emulator.faults.tmpfail = -1
    begun = time.monotonic()
    assert not driver.store(keys(1), l1.filled(3 * MIB)).is_successful()
    assert time.monotonic() - begun < 4
    place.emulator.faults.clear()
    assert driver.lookup(keys(1)) == [False], "a store that failed has published something"


def test_a_map_that_moved_is_followed(driver: Driver, l1: L1Memory, place: Place) -> None:
    place.emulator.faults.not_my_vbucket = 3
    source, target = l1.filled(3 * MIB), l1.take(3 * MIB)
    assert driver.store(keys(1), source).is_successful()
    place.emulator.faults.not_my_vbucket = 3
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


def test_hung_loads_all_end_by_their_deadline(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    """More of them than LMCache has in flight at once (8), and more than there are threads."""
    driver = open_adapter(task_deadline_seconds=1.0, kv_timeout_seconds=1.0, max_workers=2)
    source = l1.filled(*[MIB] * 12)
    assert driver.store(keys(12), source).is_successful()
    place.emulator.faults.drop = -1
    begun = time.monotonic()
    targets = l1.take(*[MIB] * 12)
    tasks = [driver.adapter.submit_load_task([key(n)], [targets[n]]) for n in range(12)]
    lookup = driver.adapter.submit_lookup_and_lock_task(keys(12), {})
    assert time.monotonic() - begun < 0.5, "submitting must not block"
    assert [driver.loaded(task, 1) for task in tasks] == [[False]] * 12
    assert driver.looked_up(lookup, 12) == [False] * 12
    assert time.monotonic() - begun < 3
    assert all(content(item) == bytes(MIB) for item in targets)


def test_no_byte_arrives_after_the_deadline(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    driver = open_adapter(task_deadline_seconds=0.5, kv_timeout_seconds=0.5)
    assert driver.store(keys(1), l1.filled(2 * MIB)).is_successful()
    place.emulator.faults.slow_seconds = 0.4
    target = l1.take(2 * MIB)
    assert driver.load(keys(1), target) == [False]
    reused = bytes([7]) * (2 * MIB)
    target[0].byte_array.cast("B")[:] = reused
    place.emulator.faults.clear()
    # Work that was under way has ended when a later task got through.
    assert driver.load([key(5)], l1.take(KIB)) == [False]
    assert content(target[0]) == reused


def test_calls_cut_short_by_a_deadline_are_not_taken_for_an_outage(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    driver = open_adapter(task_deadline_seconds=0.5, kv_timeout_seconds=0.5)
    assert driver.store(keys(6), l1.filled(*[MIB] * 6)).is_successful()
    # Slower than what the load has left for its second calls, faster than a call's own limit.
    place.emulator.faults.slow_seconds = 0.35
    assert driver.load(keys(6), l1.take(*[MIB] * 6)) == [False] * 6
    assert driver.lookup(keys(6)) == [True] * 6
    assert driver.adapter.report_status()["connection_state"] == "ready"


def test_couchbase_killed_in_the_middle_of_a_load(own_place: Place, l1: L1Memory) -> None:
    from lmcache_parts import create_adapter

    settings = {"task_deadline_seconds": 3.0, "kv_timeout_seconds": 1.0}
    driver = Driver(create_adapter(own_place.params | settings))
    source, target = l1.filled(*[8 * MIB] * 4), l1.take(*[8 * MIB] * 4)
    assert driver.store(keys(4), source).is_successful()
    own_place.emulator.faults.slow_seconds = 0.2
    task = driver.adapter.submit_load_task(keys(4), target)
    own_place.emulator.faults.kill_node(0)
    for bit, item, original in zip(driver.loaded(task, 4), target, source, strict=True):
        assert not bit or content(item) == content(original)
    # Once the outage is noticed, requests lose no time on it.
    wait_until(lambda: not is_healthy(driver), "noticing the outage")
    begun = time.monotonic()
    assert driver.lookup(keys(4)) == [False] * 4
    assert not driver.store(keys(1), source[:1]).is_successful()
    assert time.monotonic() - begun < 0.5
    own_place.emulator.faults.clear()
    own_place.emulator.faults.revive_node(0)
    wait_until(lambda: is_healthy(driver), "recovery")
    assert driver.store([key(9)], source[:1]).is_successful()
    driver.adapter.close()


def test_one_of_three_nodes_down_costs_only_what_is_on_it(l1: L1Memory) -> None:
    from lmcache_parts import create_adapter

    with running_emulator(nodes=3) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "three")
        params = Place(emulator, "three").params
        driver = Driver(create_adapter(params | {"kv_timeout_seconds": 1.0, "task_deadline_seconds": 5.0}))
        source, target = l1.filled(*[KIB] * 60), l1.take(*[KIB] * 60)
        assert driver.store(keys(60), source).is_successful()
        assert driver.load(keys(60), target) == [True] * 60
        emulator.faults.kill_node(2)
        wait_until(lambda: not is_healthy(driver), "noticing the node")
        assert driver.adapter.report_status()["connection_state"] == "ready"
        found = driver.lookup(keys(60))
        assert 0 < sum(found) < 60
        emulator.faults.revive_node(2)
        wait_until(lambda: is_healthy(driver), "recovery")
        driver.adapter.close()


# --- starting without Couchbase, and losing the right to use it -----------------------------------------


def test_a_ca_file_that_is_not_there_is_named(open_adapter: OpenAdapter) -> None:
    with pytest.raises(ConnectError, match="tls_ca_file /nonexistent cannot be read"):
        open_adapter(
            connection_string="couchbases://127.0.0.1:1", tls_ca_file="/nonexistent", connect_timeout_seconds=0.5
        )


def test_a_strict_start_fails_in_time_and_says_why(open_adapter: OpenAdapter) -> None:
    begun = time.monotonic()
    with pytest.raises(ConnectError, match=r"could not be used within 1 s: .*startup: degraded"):
        open_adapter(connection_string="couchbase://127.0.0.1:1", connect_timeout_seconds=1.0)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"password": "wrong"}, "username or password"),
        ({"bucket_name": "absent"}, "bucket absent cannot be opened|no right on bucket absent"),
        ({"collection_name": "absent"}, "absent does not exist, or the user lacks the roles"),
        ({"password": None, "password_file": "/nonexistent"}, "password_file /nonexistent cannot be read"),
    ],
)
def test_a_strict_start_names_the_likely_causes(open_adapter: OpenAdapter, changes: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConnectError, match=cause) as refused:
        open_adapter(connect_timeout_seconds=3.0, **changes)
    assert "wrong" not in str(refused.value).replace("is wrong", "")


def test_a_degraded_start_returns_at_once_serves_misses_and_becomes_healthy_by_itself(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory
) -> None:
    """As in a new pod: the user and the collection do not exist yet."""
    begun = time.monotonic()
    driver = open_adapter(username="late-user", collection_name="late", startup="degraded", connect_timeout_seconds=2.0)
    source, target = l1.filled(2 * MIB), l1.take(2 * MIB)
    assert driver.lookup(keys(3)) == [False] * 3
    assert driver.load(keys(1), target) == [False]
    assert not driver.store(keys(1), source).is_successful()
    assert time.monotonic() - begun < 2
    status = driver.adapter.report_status()
    assert (status["is_healthy"], status["connection_state"]) == (False, "connecting")
    emulator.create_collection(BUCKET, SCOPE, "late")
    emulator.create_user(
        "late-user", PASSWORD, f"data_reader[{BUCKET}:{SCOPE}:late],data_writer[{BUCKET}:{SCOPE}:late]"
    )
    wait_until(lambda: is_healthy(driver), "the late start")
    assert driver.store(keys(1), source).is_successful()
    assert driver.load(keys(1), target) == [True]


def test_rotated_credentials_are_picked_up(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory, tmp_path: Path
) -> None:
    """A second user takes over, as an operator rotates; then the first one is gone."""
    roles = f"data_reader[{BUCKET}],data_writer[{BUCKET}]"
    emulator.create_user("blue", "blue-password", roles)
    username, password = tmp_path / "username", tmp_path / "password"
    username.write_text("blue")
    password.write_text("blue-password")
    driver = open_adapter(username=None, password=None, username_file=str(username), password_file=str(password))
    assert driver.store(keys(1), l1.filled(KIB)).is_successful()
    emulator.create_user("green", "green-password", roles)
    password.write_text("green-password")
    username.write_text("green")
    wait_until(lambda: driver.adapter.report_status()["username"] == "green", "the new login")
    emulator.create_user("blue", "blue-password", "")
    assert driver.lookup(keys(1)) == [True]
    assert is_healthy(driver)


def test_lost_rights_become_misses_and_come_back(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory
) -> None:
    roles = f"data_reader[{BUCKET}],data_writer[{BUCKET}]"
    emulator.create_user("fickle", "fickle-password", roles)
    driver = open_adapter(
        username="fickle", password="fickle-password", kv_timeout_seconds=1.0, connect_timeout_seconds=2.0
    )
    assert driver.store(keys(1), l1.filled(KIB)).is_successful()
    emulator.create_user("fickle", "fickle-password", "")
    assert driver.lookup(keys(1)) == [False]
    wait_until(lambda: not is_healthy(driver), "noticing the loss")
    emulator.create_user("fickle", "fickle-password", roles)
    wait_until(lambda: is_healthy(driver), "recovery")
    assert driver.lookup(keys(1)) == [True]


def test_a_user_who_may_only_read_goes_on_reading_and_status_says_why_nothing_is_stored(
    open_adapter: OpenAdapter, emulator: RunningEmulator, l1: L1Memory
) -> None:
    assert open_adapter().store(keys(1), l1.filled(KIB)).is_successful()
    emulator.create_user("reader", "reader-password", f"data_reader[{BUCKET}]")
    driver = open_adapter(username="reader", password="reader-password")
    logins = emulator.counters.kv_logins
    for number in range(5):
        assert not driver.store([key(10 + number)], l1.filled(KIB)).is_successful()
        assert driver.load(keys(1), l1.take(KIB)) == [True]
    status = driver.adapter.report_status()
    assert (status["is_healthy"], status["connection_state"]) == (False, "ready")
    assert "data_writer" in status["reason"]
    assert emulator.counters.kv_logins == logins, "a right that is missing does not call for a new connection"
    emulator.create_user("reader", "reader-password", f"data_reader[{BUCKET}],data_writer[{BUCKET}]")
    assert driver.store([key(20)], l1.filled(KIB)).is_successful()
    assert is_healthy(driver)


# --- lifetime --------------------------------------------------------------------------------------------


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


# --- the end ---------------------------------------------------------------------------------------------


def test_tasks_after_close_end_as_failures(driver: Driver, l1: L1Memory) -> None:
    fds = [driver.adapter.get_load_event_fd(), driver.adapter.get_store_event_fd()]
    driver.adapter.close()
    memory = l1.filled(KIB)
    store = driver.adapter.submit_store_task(keys(1), memory)
    assert not driver.adapter.pop_completed_store_tasks()[store].is_successful()
    lookup = driver.adapter.submit_lookup_and_lock_task(keys(2), {})
    assert bits(driver.adapter.query_lookup_and_lock_result(lookup), 2) == [False, False]
    load = driver.adapter.submit_load_task(keys(1), memory)
    assert bits(driver.adapter.query_load_result(load), 1) == [False]
    driver.adapter.submit_unlock(keys(1))
    driver.adapter.delete(keys(1))
    assert driver.adapter.report_status()["connection_state"] == "closed"
    assert all(fd >= 0 for fd in fds)
    driver.adapter.close()


def test_close_in_the_middle_of_loads_leaves_l1_alone(driver: Driver, l1: L1Memory, place: Place) -> None:
    assert driver.store(keys(4), l1.filled(*[8 * MIB] * 4)).is_successful()
    place.emulator.faults.slow_seconds = 0.3
    target = l1.take(*[8 * MIB] * 4)
    tasks = [driver.adapter.submit_load_task([key(n)], [target[n]]) for n in range(4)]
    begun = time.monotonic()
    driver.adapter.close()
    assert time.monotonic() - begun < 10
    after = [content(item) for item in target]
    place.emulator.faults.clear()
    for task, item, then in zip(tasks, target, after, strict=True):
        bitmap = driver.adapter.query_load_result(task)
        assert bitmap is not None
        assert content(item) == then


def test_close_finishes_the_stores_under_way(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    driver = open_adapter()
    place.emulator.faults.slow_seconds = 0.2
    task = driver.adapter.submit_store_task(keys(3), l1.filled(*[3 * MIB] * 3))
    driver.adapter.close()
    assert driver.adapter.pop_completed_store_tasks()[task].is_successful()
    assert len(place.documents()) == 12


def test_an_unlock_during_a_load_gives_the_memory_back(driver: Driver, l1: L1Memory, place: Place) -> None:
    """LMCache gives up a request: it unlocks the keys and reuses their memory at once."""
    assert driver.store(keys(2), l1.filled(4 * MIB, 4 * MIB)).is_successful()
    assert driver.lookup(keys(2)) == [True, True]
    place.emulator.faults.slow_seconds = 0.2
    target = l1.take(4 * MIB, 4 * MIB)
    task = driver.adapter.submit_load_task(keys(2), target)
    driver.adapter.submit_unlock([key(0)])
    reused = bytes([9]) * (4 * MIB)
    target[0].byte_array.cast("B")[:] = reused
    assert driver.loaded(task, 2) == [False, True]
    assert content(target[0]) == reused


def test_threads_end_with_the_adapter(open_adapter: OpenAdapter) -> None:
    before = set(threading.enumerate())
    driver = open_adapter(ttl_seconds=60)
    ours = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("couchbase-lm")]
    assert ours
    driver.adapter.close()
    assert not [thread.name for thread in ours if thread.is_alive()]
