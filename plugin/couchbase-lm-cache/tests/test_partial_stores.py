"""A store of many small objects while one of three nodes is down: the others are kept, whole, and can be found."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import Place
from lmcache_parts import Driver, L1Memory, content, create_adapter, keys
from three_nodes import COLLECTION, running_three_nodes

from e2e.couchbase_emulator.running import RunningEmulator

KIB = 1024
COUNT = 60


@pytest.fixture
def cluster() -> Iterator[RunningEmulator]:
    with running_three_nodes() as emulator:
        yield emulator


@pytest.fixture(params=["direct", "sdk"])
def driver(cluster: RunningEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    adapter = create_adapter(
        Place(cluster, COLLECTION, request.param).params | {"kv_timeout_seconds": 1.0, "task_deadline_seconds": 2.0}
    )
    yield Driver(adapter)
    adapter.close()


def test_objects_on_other_nodes_are_stored_though_one_node_is_down(
    cluster: RunningEmulator, driver: Driver, l1: L1Memory
) -> None:
    names, objects = keys(COUNT), l1.filled(*[64 * KIB] * COUNT)
    cluster.kill_node(1)
    driver.store(names, objects)
    cluster.revive_node(1)

    deadline = time.monotonic() + 10
    while not any(found := driver.lookup(names)):
        assert time.monotonic() < deadline, "an object whose node is down must not cost its neighbours"
        time.sleep(0.1)
    assert not all(found)
    places = l1.take(*[64 * KIB] * COUNT)
    loaded = driver.load(names, places)
    assert loaded == found, "what can be found is whole"
    for is_loaded, item, place in zip(loaded, objects, places, strict=True):
        assert not is_loaded or content(place) == content(item)
