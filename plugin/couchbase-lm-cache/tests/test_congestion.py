"""A way to Couchbase that is too narrow for what is to go over it: work waits for its turn, and that is no outage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, OpenAdapter, Place
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.memory_management import MemoryObj
from lmcache_parts import KIB, MIB, Driver, L1Memory, content, keys
from observing import count, wait_until

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.object_client import ObjectClient
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite, Transport
from couchbase_lm_cache.transports import open_transport
from e2e.couchbase_emulator.running import RunningEmulator

LOAD_SECONDS, CALL_SECONDS = 0.8, 3.0
PAUSE_SECONDS = 1.9
"""Longer than half of a call's limit, after which nobody waits for a connection any more."""
SIZE = 64 * KIB
TASKS = 6
"""Over one connection they take longer than one call may."""


@pytest.fixture
def narrow(emulator: RunningEmulator) -> Iterator[Transport]:
    """The direct transport with one connection for loads; the SDK makes nobody wait for a connection."""
    emulator.create_collection(BUCKET, SCOPE, "narrow")
    params = Place(emulator, "narrow", "direct").params | {"connections_per_node": 1}
    settings = CouchbaseLMCacheConfig.from_dict(params, environ={})
    transport = open_transport(settings, Credentials(USERNAME, PASSWORD), 5.0)
    yield transport
    emulator.faults.clear()
    transport.close()
    emulator.drop_collection(BUCKET, SCOPE, "narrow")


def write(transport: Transport, size_bytes: int) -> None:
    source = GuardedBuffer(memoryview(bytearray(size_bytes)))
    assert transport.write([ShardWrite("d", source, 0, size_bytes)], 0, 5.0) == [Outcome.OK]


def read(transport: Transport, size_bytes: int, timeout_seconds: float) -> list[Outcome]:
    target = GuardedBuffer(memoryview(bytearray(size_bytes)))
    return transport.read_into([ShardRead("d", target, 0, size_bytes, None)], timeout_seconds)


def test_who_waits_for_a_connection_is_told_so_while_there_is_time_for_another_turn(
    narrow: Transport, emulator: RunningEmulator
) -> None:
    write(narrow, SIZE)
    emulator.faults.trickle_seconds = 1.5
    results: list[list[Outcome]] = []
    first = threading.Thread(target=lambda: results.append(read(narrow, SIZE, 5.0)))
    reads = emulator.counters.kv_reads
    first.start()
    wait_until(lambda: emulator.counters.kv_reads > reads, "the first read")
    begun = time.monotonic()
    assert read(narrow, SIZE, 1.0) == [Outcome.CONGESTED]
    assert time.monotonic() - begun < 0.9
    first.join()
    assert results == [[Outcome.OK]]


def test_a_value_that_is_still_arriving_is_late_and_no_silence(narrow: Transport, emulator: RunningEmulator) -> None:
    write(narrow, SIZE)
    emulator.faults.trickle_seconds = 3.0
    assert read(narrow, SIZE, 0.5) == [Outcome.LATE]
    emulator.faults.clear()
    assert read(narrow, SIZE, 5.0) == [Outcome.OK]


def test_loads_that_wait_for_their_turn_are_done_and_are_no_outage(
    l1: L1Memory, open_adapter: OpenAdapter, place: Place
) -> None:
    driver = open_adapter(connections_per_node=1, kv_timeout_seconds=CALL_SECONDS)
    names, sources, targets = keys(TASKS), l1.filled(*[MIB] * TASKS), l1.take(*[MIB] * TASKS)
    assert driver.store(names, sources).is_successful()
    place.emulator.faults.trickle_seconds = LOAD_SECONDS
    loads = [driver.adapter.submit_load_task([name], [item]) for name, item in zip(names, targets, strict=True)]
    assert [driver.loaded(task, 1) for task in loads] == [[True]] * TASKS
    assert [content(item) for item in targets] == [content(item) for item in sources]
    assert count(driver, "objects_loaded") == TASKS
    assert driver.adapter.report_status()["connection_state"] == "ready"


def test_loads_whose_turn_never_comes_end_by_their_deadline(
    l1: L1Memory, open_adapter: OpenAdapter, place: Place
) -> None:
    driver = open_adapter(connections_per_node=1, kv_timeout_seconds=1.0, task_deadline_seconds=1.5)
    names, targets = keys(TASKS), l1.take(*[MIB] * TASKS)
    assert driver.store(names, l1.filled(*[MIB] * TASKS)).is_successful()
    place.emulator.faults.trickle_seconds = 0.4
    begun = time.monotonic()
    loads = [driver.adapter.submit_load_task([name], [item]) for name, item in zip(names, targets, strict=True)]
    results = [driver.loaded(task, 1) for task in loads]
    assert time.monotonic() - begun < 2.5
    assert place.transport == "sdk" or [False] in results
    assert driver.adapter.report_status()["connection_state"] == "ready"


@pytest.fixture
def slow_limits() -> dict[str, float]:
    """Calls that have to wait for another one of :data:`PAUSE_SECONDS` find no connection in half of their limit."""
    return {"kv_timeout_seconds": CALL_SECONDS, "task_deadline_seconds": 30.0}


def connect_all(place: Place, load: Callable[[], object]) -> None:
    """Have all connections made that loads may use: a log-in takes several answers."""
    place.emulator.faults.slow_seconds = 0.1
    load()
    place.emulator.faults.clear()


def load_each(driver: Driver, names: list[ObjectKey], targets: list[MemoryObj]) -> list[list[bool]]:
    """Load every object by a task of its own, all at once."""
    tasks = [driver.adapter.submit_load_task([name], [item]) for name, item in zip(names, targets, strict=True)]
    return [driver.loaded(task, 1) for task in tasks]


def test_nobody_loses_for_a_server_that_pauses(
    l1: L1Memory, open_adapter: OpenAdapter, place: Place, slow_limits: dict[str, float]
) -> None:
    driver = open_adapter(**slow_limits)
    names, sources, targets = keys(TASKS), l1.filled(*[KIB] * TASKS), l1.take(*[KIB] * TASKS)
    assert driver.store(names, sources).is_successful()
    connect_all(place, lambda: load_each(driver, names, targets))
    place.emulator.faults.slow_seconds = PAUSE_SECONDS
    reads = place.emulator.counters.kv_reads
    loads = [driver.adapter.submit_load_task([name], [item]) for name, item in zip(names, targets, strict=True)]
    wait_until(lambda: place.emulator.counters.kv_reads >= reads + 4, "loads that hold all connections")
    lookup = driver.adapter.submit_lookup_and_lock_task(names, {})
    assert driver.looked_up(lookup, TASKS) == [True] * TASKS
    place.emulator.faults.clear()
    assert [driver.loaded(task, 1) for task in loads] == [[True]] * TASKS
    assert driver.adapter.report_status()["connection_state"] == "ready"


def test_objects_of_another_shard_size_wait_for_their_turns(
    l1: L1Memory, open_adapter: OpenAdapter, place: Place, slow_limits: dict[str, float]
) -> None:
    names, sources, targets = keys(TASKS), l1.filled(*[MIB] * TASKS), l1.take(*[MIB] * TASKS)
    assert open_adapter(shard_size_bytes=300 * KIB).store(names, sources).is_successful()
    driver = open_adapter(shard_size_bytes=4 * MIB, **slow_limits)
    connect_all(place, lambda: load_each(driver, names, targets))
    place.emulator.faults.slow_seconds = PAUSE_SECONDS
    assert load_each(driver, names, targets) == [[True]] * TASKS, driver.adapter.report_status()["counts"]
    assert [content(item) for item in targets] == [content(item) for item in sources]


def test_the_client_of_plain_bytes_waits_for_its_turn(place: Place, slow_limits: dict[str, float]) -> None:
    settings = CouchbaseLMCacheConfig.from_dict(place.params | slow_limits, environ={})
    client = ObjectClient(settings)
    names = [f"chunk-{number}" for number in range(TASKS + 2)]
    for name in names:
        assert client.store(name, name.encode(), "", 10.0).future.result(10)
    connect_all(place, lambda: [load.future.result(30) for load in [client.load(n, None, KIB, 30.0) for n in names]])
    place.emulator.faults.slow_seconds = PAUSE_SECONDS
    reads = place.emulator.counters.kv_reads
    loads = [client.load(name, None, KIB, 30.0) for name in names[:TASKS]]
    wait_until(lambda: place.emulator.counters.kv_reads >= reads + 4, "loads that hold all connections")
    waiting = threading.Timer(CALL_SECONDS / 2, place.emulator.faults.clear)
    waiting.start()
    assert client.remove(names[-1])
    assert [load.future.result(30).content for load in loads] == [name.encode() for name in names[:TASKS]]
    waiting.join()
    assert not any(name.startswith(names[-1]) for name in place.documents())
    client.close()
