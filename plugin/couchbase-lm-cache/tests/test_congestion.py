"""A way to Couchbase that is too narrow for what is to go over it: work waits for its turn, and that is no outage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, OpenAdapter, Place
from lmcache_parts import KIB, MIB, L1Memory, content, keys
from observing import count, wait_until

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite, Transport
from couchbase_lm_cache.transports import open_transport
from e2e.couchbase_emulator.running import RunningEmulator

LOAD_SECONDS, CALL_SECONDS = 0.6, 2.0
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
