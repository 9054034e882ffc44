"""Reads that Couchbase asks to try later, for want of memory or for a moment: both transports do, within the limit."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import PASSWORD, USERNAME, OpenAdapter, Place
from lmcache_parts import MIB, L1Memory, content, keys

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite, Transport
from couchbase_lm_cache.transports import open_transport

SECONDS = 5.0
COUNT = 8


@pytest.fixture
def transport(place: Place) -> Iterator[Transport]:
    settings = CouchbaseLMCacheConfig.from_dict(place.params, environ={})
    transport = open_transport(settings, Credentials(USERNAME, PASSWORD), SECONDS)
    yield transport
    place.emulator.faults.clear()
    transport.close()


@pytest.fixture(params=["out_of_memory_reads", "tmpfail_reads"])
def shortage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reads(transport: Transport) -> list[ShardRead]:
    """Documents that are there."""
    source, target = (GuardedBuffer(memoryview(bytearray(COUNT))) for _ in range(2))
    writes = [ShardWrite(f"d{n}", source, n, n + 1) for n in range(COUNT)]
    assert transport.write(writes, 0, SECONDS) == [Outcome.OK] * COUNT
    return [ShardRead(write.key, target, write.start, write.end, None) for write in writes]


def test_a_shortage_that_passes_costs_a_read_some_time(
    transport: Transport, place: Place, shortage: str, reads: list[ShardRead]
) -> None:
    setattr(place.emulator.faults, shortage, COUNT + 3)
    assert transport.read_into(reads, SECONDS) == [Outcome.OK] * COUNT
    setattr(place.emulator.faults, shortage, 3)
    documents = transport.read([reads[0].key, "absent"], SECONDS)
    assert [document.outcome for document in documents] == [Outcome.OK, Outcome.MISSING]


def test_a_shortage_that_stays_ends_a_read_by_its_limit(
    transport: Transport, place: Place, shortage: str, reads: list[ShardRead]
) -> None:
    setattr(place.emulator.faults, shortage, -1)
    begun = time.monotonic()
    outcomes = set(transport.read_into(reads, 0.5))
    assert outcomes <= {Outcome.BUSY, Outcome.TIMEOUT}
    assert time.monotonic() - begun < 1.0


def test_a_load_waits_for_a_shortage_to_pass(
    l1: L1Memory, open_adapter: OpenAdapter, place: Place, shortage: str
) -> None:
    driver = open_adapter()
    source, target = l1.filled(3 * MIB), l1.take(3 * MIB)
    assert driver.store(keys(1), source).is_successful()
    setattr(place.emulator.faults, shortage, 5)
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


def test_reads_that_wait_for_a_shortage_are_not_held_up_by_it_when_the_transport_closes(
    transport: Transport, place: Place, reads: list[ShardRead]
) -> None:
    place.emulator.faults.out_of_memory_reads = -1
    transport.close()
    begun = time.monotonic()
    assert set(transport.read_into(reads, SECONDS)) <= {Outcome.BUSY, Outcome.UNREACHABLE}
    assert time.monotonic() - begun < 1.0
