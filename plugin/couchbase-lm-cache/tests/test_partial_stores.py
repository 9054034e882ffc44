"""A store of many small objects while one of three nodes is down: the others are kept, whole, and can be found."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import BUCKET, SCOPE, Place, prepare
from lmcache_parts import Driver, L1Memory, content, create_adapter, keys

from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

KIB = 1024
COUNT = 60


@pytest.fixture
def cluster() -> Iterator[RunningEmulator]:
    with running_emulator(nodes=3) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "nodes")
        yield emulator


@pytest.fixture(params=["direct", "sdk"])
def driver(cluster: RunningEmulator, request: pytest.FixtureRequest) -> Iterator[Driver]:
    adapter = create_adapter(
        Place(cluster, "nodes", request.param).params | {"kv_timeout_seconds": 1.0, "task_deadline_seconds": 2.0}
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
