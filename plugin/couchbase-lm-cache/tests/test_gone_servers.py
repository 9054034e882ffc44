"""A server that is not there: before the start, in the middle of a load, in the middle of a store."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from conftest import OpenAdapter, Place
from lmcache_parts import KIB, MIB, L1Memory, content, key, keys
from observing import is_healthy, wait_until

from couchbase_lm_cache import insisting

COUNT = 4
SHARDS = 20  # of an object, more than one call takes


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine may take several attempts to connect."""
    monkeypatch.setattr(insisting, "PATIENCE_SECONDS", 30.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Still above the two seconds for which a node is left alone at most once it did not let us in."""
    monkeypatch.setattr(insisting, "PATIENCE_SECONDS", 3.0)


@pytest.mark.usefixtures("patient")
def test_a_server_that_starts_after_a_degraded_adapter_is_used_by_itself(
    own_place: Place, open_own: OpenAdapter, l1: L1Memory
) -> None:
    own_place.emulator.kill_node(0)
    begun = time.monotonic()
    driver = open_own(startup="degraded", connect_timeout_seconds=2.0)
    source, target = l1.filled(2 * MIB), l1.take(2 * MIB)
    assert driver.lookup(keys(3)) == [False] * 3
    assert driver.load(keys(1), target) == [False]
    assert time.monotonic() - begun < 2, "misses must cost requests nothing"
    task = driver.adapter.submit_store_task(keys(1), source)
    assert driver.adapter.report_status()["connection_state"] == "connecting"
    own_place.emulator.revive_node(0)
    wait_until(lambda: is_healthy(driver), "the late start", 15)
    assert driver.stored(task).is_successful(), "it waits for a server that comes soon"
    assert driver.load(keys(1), target) == [True]
    assert content(target[0]) == content(source[0])


def test_a_strict_start_waits_for_a_server_that_comes_within_its_time(
    own_place: Place, open_own: OpenAdapter, l1: L1Memory
) -> None:
    own_place.emulator.kill_node(0)
    start = threading.Timer(1.5, own_place.emulator.revive_node, [0])
    start.start()
    driver = open_own(connect_timeout_seconds=10.0)
    start.join()
    assert driver.store(keys(1), l1.filled(KIB)).is_successful()


@pytest.mark.usefixtures("patient")
def test_stores_wait_for_a_server_that_is_back_soon(own_place: Place, open_own: OpenAdapter, l1: L1Memory) -> None:
    driver = open_own(task_deadline_seconds=10.0, kv_timeout_seconds=1.0)
    emulator, sizes = own_place.emulator, [SHARDS * MIB] * COUNT
    source, target = l1.filled(*sizes), l1.take(*sizes)
    before = emulator.counters.kv_writes
    emulator.faults.slow_seconds = 0.05
    tasks = [driver.adapter.submit_store_task([key(n)], [source[n]]) for n in range(COUNT - 1)]
    wait_until(lambda: emulator.counters.kv_writes - before >= SHARDS // 2, "the first shards")
    emulator.kill_node(0)
    emulator.faults.clear()
    wait_until(lambda: not is_healthy(driver), "noticing the outage")
    tasks.append(driver.adapter.submit_store_task([key(COUNT - 1)], [source[COUNT - 1]]))
    time.sleep(2.0)
    emulator.revive_node(0)
    assert all(driver.stored(task).is_successful() for task in tasks)
    assert driver.load(keys(COUNT), target) == [True] * COUNT
    assert [content(item) for item in target] == [content(item) for item in source]


@pytest.mark.usefixtures("patient")
def test_stores_survive_a_server_that_stands_still_for_a_while(
    own_place: Place, open_own: OpenAdapter, l1: L1Memory
) -> None:
    """Longer than a probe or a new connection waits: to both it looks like an outage."""
    driver = open_own()
    faults, sizes = own_place.emulator.faults, [SHARDS * MIB] * COUNT
    faults.slow_seconds = 3.0
    tasks = [driver.adapter.submit_store_task([key(n)], [memory]) for n, memory in enumerate(l1.filled(*sizes))]
    time.sleep(4.0)
    faults.clear()
    assert all(driver.stored(task).is_successful() for task in tasks)
    assert driver.lookup(keys(COUNT)) == [True] * COUNT


@pytest.mark.usefixtures("impatient")
def test_stores_end_at_once_in_an_outage_that_lasts(own_place: Place, open_own: OpenAdapter, l1: L1Memory) -> None:
    own_place.emulator.kill_node(0)
    driver = open_own(startup="degraded")
    begun = time.monotonic()
    assert not driver.store(keys(1), l1.filled(MIB)).is_successful()
    assert time.monotonic() - begun < 2 * insisting.PATIENCE_SECONDS, "L1 memory is locked meanwhile"
    begun = time.monotonic()
    assert not driver.store(keys(1), l1.filled(MIB)).is_successful()
    assert time.monotonic() - begun < insisting.PATIENCE_SECONDS / 2, "nothing speaks for an early end of this outage"


@pytest.mark.usefixtures("eager_probes")
def test_couchbase_killed_in_the_middle_of_a_load(own_place: Place, open_own: OpenAdapter, l1: L1Memory) -> None:
    driver = open_own(task_deadline_seconds=3.0, kv_timeout_seconds=1.0)
    faults = own_place.emulator.faults
    source, target = l1.filled(*[8 * MIB] * 4), l1.take(*[8 * MIB] * 4)
    assert driver.store(keys(4), source).is_successful()
    faults.trickle_seconds = 30.0
    begun = time.monotonic()
    tasks = [driver.adapter.submit_load_task([key(n)], [target[n]]) for n in range(4)]
    # The store has looked for the manifests; the loads read them and have the first halves of their first shards.
    wait_until(lambda: own_place.emulator.counters.kv_requests["GET"] >= 4 + 4 + 4, "the first shards")
    faults.kill_node(0)
    assert [driver.loaded(task, 1) for task in tasks] == [[False]] * 4
    assert time.monotonic() - begun < 4, "a load outlived its deadline"
    # Once the outage is noticed, requests lose no time on it.
    wait_until(lambda: not is_healthy(driver), "noticing the outage")
    begun = time.monotonic()
    assert driver.lookup(keys(4)) == [False] * 4
    assert driver.load(keys(4), target) == [False] * 4
    assert time.monotonic() - begun < 0.5
    faults.clear()
    faults.revive_node(0)
    wait_until(lambda: is_healthy(driver), "recovery")
    wait_until(lambda: driver.load(keys(4), target) == [True] * 4, "the next load", 5)
    assert [content(item) for item in target] == [content(item) for item in source]
    assert driver.store([key(9)], source[:1]).is_successful()


@pytest.mark.usefixtures("eager_probes", "impatient")
def test_couchbase_killed_in_the_middle_of_a_store(own_place: Place, open_own: OpenAdapter, l1: L1Memory) -> None:
    """Some shards are there and some are not: what can be found is whole, all the rest is stored again."""
    driver = open_own(task_deadline_seconds=3.0, kv_timeout_seconds=2.5)
    emulator, sizes = own_place.emulator, [SHARDS * MIB] * COUNT
    source, target = l1.filled(*sizes), l1.take(*sizes)
    assert driver.store(keys(2, 90), l1.filled(KIB, KIB)).is_successful()
    others = Counter(name.split("::")[0] for name in own_place.documents())
    before = emulator.counters.kv_writes
    emulator.faults.slow_seconds = 0.05
    begun = time.monotonic()
    tasks = [driver.adapter.submit_store_task([key(n)], [source[n]]) for n in range(COUNT)]
    wait_until(lambda: emulator.counters.kv_writes - before >= SHARDS // 2, "the first shards")
    emulator.kill_node(0)
    results = [driver.stored(task) for task in tasks]
    assert time.monotonic() - begun < 13, "a store outlived its deadline, four times that of a load"
    assert not all(result.is_successful() for result in results), "the server was killed too late"
    written = Counter(name.split("::")[0] for name in own_place.documents())
    assert any(1 < written[name] < SHARDS for name in written - others), "no object is half there"
    wait_until(lambda: not is_healthy(driver), "noticing the outage")
    emulator.faults.clear()
    emulator.revive_node(0)
    wait_until(lambda: is_healthy(driver), "recovery")
    found = driver.lookup(keys(COUNT))
    assert driver.load(keys(COUNT), target) == found, "what can be found is whole"
    for is_found, result, item, original in zip(found, results, target, source, strict=True):
        assert is_found or not result.is_successful(), "a store that was reported is not there"
        assert content(item) == (content(original) if is_found else bytes(SHARDS * MIB))
    assert driver.store(keys(COUNT), source).is_successful()
    assert driver.load(keys(COUNT), target) == [True] * COUNT
    assert [content(item) for item in target] == [content(item) for item in source]
