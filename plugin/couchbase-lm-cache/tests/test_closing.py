"""The end of an adapter: tasks are settled and threads are gone; for L1 memory see test_mid_value."""

from __future__ import annotations

import threading

from conftest import OpenAdapter, Place
from lmcache_parts import KIB, MIB, Driver, L1Memory, bits, content, key, keys
from observing import wait_until


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


def test_whoever_else_closes_waits_until_it_is_done(driver: Driver, l1: L1Memory, place: Place) -> None:
    place.emulator.faults.slow_seconds = 0.3
    driver.adapter.submit_store_task(keys(1), l1.filled(2 * MIB))
    first = threading.Thread(target=driver.adapter.close)
    first.start()
    wait_until(
        lambda: driver.adapter.submit_store_task([], []) in driver.adapter.pop_completed_store_tasks(), "closing"
    )
    driver.adapter.close()
    assert driver.adapter.report_status()["connection_state"] == "closed"
    first.join(10)
