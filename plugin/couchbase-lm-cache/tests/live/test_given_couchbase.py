"""What LMCache stores in the Couchbase of the environment comes back, whoever wrote it; nothing is left behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from lmcache_parts import KIB, MIB, Driver, L1Memory, content, create_adapter, keys

TRANSPORTS = ("direct", "sdk", "auto")
SIZES = (1, 64 * KIB, MIB, 3 * MIB + 5)
OpenOn = Callable[[str], Driver]


@pytest.fixture
def memory() -> Iterator[L1Memory]:
    memory = L1Memory()
    yield memory
    memory.close()


@pytest.fixture
def open_on() -> Iterator[OpenOn]:
    """Make adapters for one transport each; all share a key prefix that nobody else has."""
    prefix = f"live-test-{uuid.uuid4().hex}:"
    drivers: list[Driver] = []

    def make(transport: str) -> Driver:
        drivers.append(Driver(create_adapter({"transport": transport, "key_prefix": prefix, "startup": "strict"})))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.adapter.delete(keys(len(SIZES)))
        driver.adapter.close()


@pytest.mark.parametrize("reader", TRANSPORTS)
@pytest.mark.parametrize("writer", TRANSPORTS)
def test_what_one_transport_stores_every_one_loads(open_on: OpenOn, memory: L1Memory, writer: str, reader: str) -> None:
    names, source, target = keys(len(SIZES)), memory.filled(*SIZES), memory.take(*SIZES)
    assert open_on(writer).store(names, source).is_successful()
    loader = open_on(reader)
    assert loader.lookup(names) == [True] * len(SIZES)
    assert loader.load(names, target) == [True] * len(SIZES)
    assert [content(item) for item in target] == [content(item) for item in source]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_deleted_is_gone(open_on: OpenOn, memory: L1Memory, transport: str) -> None:
    names = keys(len(SIZES))
    driver = open_on(transport)
    assert driver.lookup(names) == [False] * len(SIZES)
    assert driver.store(names, memory.filled(*SIZES)).is_successful()
    driver.adapter.delete(names)
    assert driver.lookup(names) == [False] * len(SIZES)
