"""One of three data nodes is down: that costs what is on it, and nothing else, by either transport."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from conftest import Place
from lmcache_parts import KIB, Driver, L1Memory, content, create_adapter, keys
from observing import count, is_healthy, wait_until
from three_nodes import COLLECTION, is_alive, running_three_nodes

from couchbase_lm_cache.insisting import PATIENCE_SECONDS
from e2e.couchbase_emulator.running import RunningEmulator

DEAD = 1
SIZE, COUNT = 512 * KIB, 120
TASK_DEADLINE_SECONDS = 10.0
STORE_DEADLINE_SECONDS = 4 * TASK_DEADLINE_SECONDS


@pytest.fixture
def cluster() -> Iterator[RunningEmulator]:
    with running_three_nodes() as emulator:
        yield emulator


@pytest.fixture(params=["direct", "sdk"])
def place(cluster: RunningEmulator, request: pytest.FixtureRequest) -> Place:
    return Place(cluster, COLLECTION, request.param)


@pytest.fixture
def driver(place: Place) -> Iterator[Driver]:
    limits = {"kv_timeout_seconds": 1.0, "task_deadline_seconds": TASK_DEADLINE_SECONDS}
    adapter = create_adapter(place.params | limits)
    yield Driver(adapter)
    adapter.close()


def test_objects_on_live_nodes_are_stored_found_and_loaded_at_full_rate(
    l1: L1Memory, place: Place, driver: Driver
) -> None:
    names, objects = keys(COUNT), l1.filled(*[SIZE] * COUNT)
    alive = [is_alive(place, name, shards=1, dead=DEAD) for name in names]
    assert COUNT / 4 < sum(alive) < COUNT
    place.emulator.kill_node(DEAD)

    for limit_seconds in (1.5 * PATIENCE_SECONDS, 0.75 * PATIENCE_SECONDS):
        begun = time.monotonic()
        assert not driver.store(names, objects).is_successful()
        took = time.monotonic() - begun
        assert took < limit_seconds, "the task waits for a node that is down, or still does when it has been for long"
    assert driver.lookup(names) == alive, "an object whose node is down must not cost its neighbours"
    assert count(driver, "objects_stored") == sum(alive)

    kept = [name for name, is_there in zip(names, alive, strict=True) if is_there]
    originals = [item for item, is_there in zip(objects, alive, strict=True) if is_there]
    places = l1.take(*[SIZE] * len(kept))
    begun = time.monotonic()
    assert driver.load(kept, places) == [True] * len(kept)
    assert [content(item) for item in places] == [content(item) for item in originals]
    assert driver.store(kept, l1.filled(*[SIZE] * len(kept), seed=1)).is_successful()
    assert time.monotonic() - begun < 3, "objects of live nodes are slow while another node is down"


def test_stores_go_on_beside_those_that_wait_for_a_node(l1: L1Memory, place: Place, driver: Driver) -> None:
    """More tasks than there are threads that store."""
    names = keys(400)
    dead = [name for name in names if not is_alive(place, name, shards=1, dead=DEAD)][:12]
    live = [name for name in names if is_alive(place, name, shards=1, dead=DEAD)][:4]
    place.emulator.kill_node(DEAD)
    hopeless = [driver.adapter.submit_store_task([name], l1.filled(SIZE)) for name in dead]
    begun = time.monotonic()
    assert driver.store(live, l1.filled(*[SIZE] * len(live))).is_successful()
    assert time.monotonic() - begun < STORE_DEADLINE_SECONDS / 4
    assert not any(driver.stored(task).is_successful() for task in hopeless)
    assert driver.lookup(dead + live) == [False] * len(dead) + [True] * len(live)


def test_a_node_that_comes_back_soon_gets_what_was_meant_for_it(l1: L1Memory, place: Place, driver: Driver) -> None:
    names = keys(12)
    place.emulator.kill_node(DEAD)
    task = driver.adapter.submit_store_task(names, l1.filled(*[SIZE] * len(names)))
    wait_until(lambda: count(driver, "store_retries") > 0 or place.transport == "sdk", "the first attempt")
    place.emulator.revive_node(DEAD)
    assert driver.stored(task).is_successful()
    assert driver.lookup(names) == [True] * len(names)


@pytest.mark.usefixtures("eager_probes")
def test_requests_for_objects_of_the_dead_node_alone_are_no_outage(l1: L1Memory, place: Place, driver: Driver) -> None:
    names = keys(60)
    assert driver.store(names, l1.filled(*[KIB] * len(names))).is_successful()
    live = [name for name in names if is_alive(place, name, shards=1, dead=DEAD)]
    dead = [name for name in names if not is_alive(place, name, shards=0, dead=DEAD)]
    place.emulator.kill_node(DEAD)
    # From the first moment on, before and after the connection has noticed the node.
    for turn in range(4):
        for name in dead[turn : turn + 2]:
            assert driver.lookup([name]) == [False]
            assert driver.load([name], l1.take(KIB)) == [False]
        assert driver.adapter.report_status()["connection_state"] == "ready"
        assert driver.lookup([live[turn]]) == [True]
        assert driver.load([live[turn]], l1.take(KIB)) == [True]
    place.emulator.revive_node(DEAD)
    wait_until(lambda: is_healthy(driver), "recovery")
    assert driver.lookup(live) == [True] * len(live)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield int(listener.getsockname()[1])


def test_a_node_that_says_nothing_costs_no_more_than_one_that_is_gone(
    l1: L1Memory, cluster: RunningEmulator, silent_port: int
) -> None:
    ports = [port for _, port in cluster.kv_addresses]
    for index, port in enumerate([silent_port, *ports[1:]]):
        cluster.set_alternate_address(index, "127.0.0.1", {"kv": port})
    place = Place(cluster, COLLECTION, "direct")
    text = f"couchbase://127.0.0.1:{ports[1]}?network=external"
    driver = Driver(create_adapter(place.params | {"connection_string": text}))
    wait_until(lambda: not is_healthy(driver), "noticing the node")
    names, objects = keys(COUNT), l1.filled(*[SIZE] * COUNT)
    begun = time.monotonic()
    for turn in range(2):
        driver.store(names, objects)
        assert driver.lookup(names) == [is_alive(place, name, shards=1, dead=0) for name in names], turn
        assert driver.adapter.report_status()["connection_state"] == "ready"
    assert time.monotonic() - begun < STORE_DEADLINE_SECONDS / 2
    driver.adapter.close()
