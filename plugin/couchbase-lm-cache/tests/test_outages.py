"""A server that is slow, full or gone: every task ends in time, and everything comes back by itself."""

from __future__ import annotations

import time

import pytest
from conftest import OpenAdapter, Place
from lmcache_parts import KIB, MIB, Driver, L1Memory, content, create_adapter, key, keys
from observing import is_healthy, wait_until
from three_nodes import COLLECTION, running_three_nodes

NEXT_REQUEST_SECONDS = 5.0  # a probe each second, and what it takes to connect anew


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


def test_hung_loads_all_end_by_their_deadline_and_the_next_request_works(
    open_adapter: OpenAdapter, l1: L1Memory, place: Place
) -> None:
    """More of them than LMCache has in flight at once (8), and more than there are threads.

    "Next" is the first one after a probe has found that the server answers again: within seconds, by itself.
    """
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
    place.emulator.faults.clear()
    wait_until(lambda: driver.load(keys(12), targets) == [True] * 12, "the next request", NEXT_REQUEST_SECONDS)
    assert [content(item) for item in targets] == [content(item) for item in source]
    assert driver.store([key(20)], source[:1]).is_successful()


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


@pytest.mark.usefixtures("eager_probes")
@pytest.mark.parametrize("transport", ["direct", "sdk"])
def test_one_of_three_nodes_down_costs_only_what_is_on_it(l1: L1Memory, transport: str) -> None:
    with running_three_nodes() as emulator:
        params = Place(emulator, COLLECTION, transport).params
        driver = Driver(create_adapter(params | {"kv_timeout_seconds": 2.0, "task_deadline_seconds": 5.0}))
        source, target = l1.filled(*[KIB] * 60), l1.take(*[KIB] * 60)
        assert driver.store(keys(60), source).is_successful()
        assert driver.load(keys(60), target) == [True] * 60
        emulator.faults.kill_node(2)
        wait_until(lambda: not is_healthy(driver), "noticing the node")
        assert driver.adapter.report_status()["connection_state"] == "ready"
        found = driver.lookup(keys(60))
        assert 0 < sum(found) < 60
        begun = time.monotonic()
        requests = [driver.adapter.submit_lookup_and_lock_task(keys(60)) for _ in range(12)]
        answers = [driver.looked_up(task, 60) for task in requests]
        assert time.monotonic() - begun < 4, "requests queue up behind the node that is down"
        assert answers.count(found) > 6, "the other two nodes were not heard"
        emulator.faults.revive_node(2)
        wait_until(lambda: is_healthy(driver), "recovery")
        driver.adapter.close()


def test_a_deletion_of_many_objects_gives_up_soon(open_adapter: OpenAdapter, l1: L1Memory, place: Place) -> None:
    """LMCache deletes with a lock held."""
    driver = open_adapter(kv_timeout_seconds=0.5)
    assert driver.store(keys(160), l1.filled(*[KIB] * 160)).is_successful()
    place.emulator.faults.drop = -1
    begun = time.monotonic()
    driver.adapter.delete(keys(160))
    assert time.monotonic() - begun < 4
    assert driver.adapter.get_usage().total_bytes_used == 160 * KIB, "what is still there was reported as deleted"
    place.emulator.faults.clear()
