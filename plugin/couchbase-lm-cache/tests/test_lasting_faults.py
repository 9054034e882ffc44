"""Faults that last for a minute, with the settings that everybody has: nothing hangs, and all comes back by itself.

Each is a scenario of its own on a server of its own. All run side by side, so that they take little more than the
minute together; each test waits for one of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from conftest import BUCKET, SCOPE, Place, prepare
from lmcache_parts import MIB, Driver, L1Memory, content, create_adapter, key, keys
from observing import is_healthy, wait_until

from e2e.couchbase_emulator.running import running_emulator

MINUTE_SECONDS = 60.0
DEADLINE_SECONDS = 20.0  # of a load, by default
TRANSPORTS = ("direct", "sdk")
pytestmark = pytest.mark.timeout(240)
COUNT = 6


class World:
    """A server, an adapter with default settings, and some objects of which the server has the first ones."""

    def __init__(self, place: Place, l1: L1Memory) -> None:
        self.place = place
        self.faults = place.emulator.faults
        self.driver = Driver(create_adapter(place.params))
        self.source, self.target = l1.filled(*[MIB] * COUNT), l1.take(*[MIB] * COUNT)
        self.store_all()

    def store_all(self) -> None:
        assert self.driver.store(keys(COUNT), self.source).is_successful()

    def load_all(self) -> list[bool]:
        """Load everything; what is called loaded is right, and the answer comes in time."""
        for item in self.target:
            item.byte_array.cast("B")[:] = bytes(MIB)
        begun = time.monotonic()
        loaded = self.driver.load(keys(COUNT), self.target)
        assert time.monotonic() - begun < DEADLINE_SECONDS + 1, "a load outlived its deadline"
        for is_loaded, item, original in zip(loaded, self.target, self.source, strict=True):
            assert not is_loaded or content(item) == content(original), "a wrong byte was called loaded"
        return loaded

    def loads_again(self, within_seconds: float) -> None:
        wait_until(lambda: self.load_all() == [True] * COUNT, "a load after the fault", within_seconds)

    def stores_again(self, number: int, within_seconds: float) -> None:
        store = self.driver.store
        wait_until(
            lambda: store([key(number)], self.source[:1]).is_successful(), "a store after the fault", within_seconds
        )


def server_gone_for_a_minute(world: World) -> None:
    """Longer than the adapter waits before it connects anew instead of hoping for the old connections."""
    world.place.emulator.kill_node(0)
    end = time.monotonic() + MINUTE_SECONDS
    wait_until(lambda: not is_healthy(world.driver), "noticing the outage")
    assert not world.driver.store([key(90)], world.source[:1]).is_successful(), "it waits, and in vain"
    costs_seconds: list[float] = []
    while time.monotonic() < end:
        begun = time.monotonic()
        assert world.load_all() == [False] * COUNT
        assert world.driver.lookup(keys(COUNT)) == [False] * COUNT
        assert not world.driver.store([key(90)], world.source[:1]).is_successful()
        costs_seconds.append(time.monotonic() - begun)
        time.sleep(1)
    assert statistics.median(costs_seconds) < 0.2, "an outage that is known must cost requests nothing"
    world.place.emulator.revive_node(0)
    wait_until(lambda: is_healthy(world.driver), "recovery", 15)
    world.store_all()
    world.loads_again(1)


def slow_by_ten_seconds(world: World) -> None:
    """Slower than a call may be: an outage, in which what is under way ends in time."""
    world.faults.slow_seconds = 10.0
    begun = time.monotonic()
    store = world.driver.adapter.submit_store_task([key(90)], world.source[:1])
    lookup = world.driver.adapter.submit_lookup_and_lock_task(keys(COUNT), {})
    assert world.load_all() == [False] * COUNT
    assert world.driver.looked_up(lookup, COUNT) == [False] * COUNT
    assert not world.driver.stored(store).is_successful()
    assert time.monotonic() - begun < DEADLINE_SECONDS + 1
    assert not is_healthy(world.driver)
    world.faults.clear()
    world.loads_again(15)
    world.stores_again(91, 5)


def writes_refused_for_a_minute(world: World, fault: str) -> None:
    """A full server: reads go on, and a store that began during the fault succeeds after it."""
    setattr(world.faults, fault, -1)
    end = time.monotonic() + MINUTE_SECONDS
    store = world.driver.adapter.submit_store_task([key(90)], world.source[:1])
    while time.monotonic() < end:
        assert world.load_all() == [True] * COUNT, "a server that takes no writes can be read"
        assert not world.driver.adapter.pop_completed_store_tasks(), "the store gave up long before its deadline"
        assert is_healthy(world.driver)
        time.sleep(1)
    world.faults.clear()
    begun = time.monotonic()
    assert world.driver.stored(store).is_successful()
    assert time.monotonic() - begun < 5, "a store that was put off went on too late"
    assert world.driver.lookup([key(90)]) == [True]


def temporary_failures_of_writes(world: World) -> None:
    writes_refused_for_a_minute(world, "tmpfail")


def out_of_memory_for_writes(world: World) -> None:
    writes_refused_for_a_minute(world, "out_of_memory")


def reads_refused_for_a_minute(world: World, fault: str) -> None:
    """All loads end in time as misses; none is left over, and the first one afterwards succeeds soon."""
    setattr(world.faults, fault, -1)
    end = time.monotonic() + MINUTE_SECONDS
    while time.monotonic() < end:
        assert world.load_all() == [False] * COUNT
        time.sleep(1)
    world.faults.clear()
    world.loads_again(10)
    world.stores_again(91, 5)
    assert world.driver.adapter.report_status()["loads_in_flight"] == 0


def temporary_failures_of_reads(world: World) -> None:
    reads_refused_for_a_minute(world, "tmpfail_reads")


def out_of_memory_for_reads(world: World) -> None:
    reads_refused_for_a_minute(world, "out_of_memory_reads")


Scenario = Callable[[World], None]
SCENARIOS: tuple[Scenario, ...] = (
    server_gone_for_a_minute,
    slow_by_ten_seconds,
    temporary_failures_of_writes,
    out_of_memory_for_writes,
    temporary_failures_of_reads,
    out_of_memory_for_reads,
)


def play(scenario: Scenario, transport: str) -> None:
    """Run a scenario in a world of its own."""
    l1 = L1Memory(32 * MIB)
    with running_emulator() as emulator:
        prepare(emulator, quota_mib=256)
        emulator.create_collection(BUCKET, SCOPE, "lasting")
        world = World(Place(emulator, "lasting", transport), l1)
        try:
            scenario(world)
        finally:
            world.driver.adapter.close()
    l1.close()


@pytest.fixture(scope="module")
def playing() -> Iterator[dict[tuple[Scenario, str], Future[None]]]:
    """All scenarios, under way."""
    pairs = [(scenario, transport) for scenario in SCENARIOS for transport in TRANSPORTS]
    with ThreadPoolExecutor(len(pairs), thread_name_prefix="scenario") as pool:
        yield {pair: pool.submit(play, *pair) for pair in pairs}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_fault_that_lasts(
    playing: dict[tuple[Scenario, str], Future[None]], scenario: Scenario, transport: str
) -> None:
    playing[scenario, transport].result()
