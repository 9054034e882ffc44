"""Half of a value has arrived when its memory changes hands: not one byte may follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from conftest import BUCKET, SCOPE, Place, prepare
from lmcache.v1.memory_management import MemoryObj
from lmcache_parts import KIB, MIB, Driver, L1Memory, content, create_adapter, key, keys
from observing import wait_until

from e2e.couchbase_emulator.running import running_emulator

COUNT = 8
REUSED = bytes([0x5A])
DEADLINE_SECONDS = 1.0
LARGE_BYTES = 8 * MIB  # takes a while to arrive, so that the deadline comes in the middle of it


@pytest.fixture(params=["direct", "direct with TLS", "sdk"])
def trickling(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A server of its own whose values can be made to come in two halves."""
    with running_emulator(tls="TLS" in request.param) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "halves")
        yield Place(emulator, "halves", request.param.split()[0])


@pytest.fixture
def drivers(trickling: Place) -> Iterator[list[Driver]]:  # noqa: ARG001 - closed before the server
    """What a test opens, to be closed."""
    opened: list[Driver] = []
    yield opened
    for driver in opened:
        driver.adapter.close()


def opened(place: Place, drivers: list[Driver], **changes: float) -> Driver:
    emulator, params = place.emulator, place.params | {"connections_per_node": COUNT} | changes
    if emulator.options.tls:
        params |= {"connection_string": emulator.tls_connection_string, "tls_ca_file": str(emulator.ca_path)}
    drivers.append(Driver(create_adapter(params)))
    return drivers[-1]


def reuse(item: MemoryObj) -> None:
    """Write what the next owner of the memory would."""
    item.byte_array.cast("B")[:] = REUSED * item.get_size()


def is_untouched(item: MemoryObj) -> bool:
    """Whether the memory holds what its next owner wrote; compared in place, as content() copies."""
    return item.byte_array.cast("B") == memoryview(REUSED * item.get_size())


class Watch:
    """Looks at memory that has changed hands until the block ends, from a thread of its own."""

    def __init__(self, items: list[MemoryObj]) -> None:
        self._items = items
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changed = False

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        assert not self.changed, "memory was written after its load had been reported"

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            self._look()

    def _look(self) -> None:
        self.changed = self.changed or any(not is_untouched(item) for item in self._items)


class Loads:
    """Loads of all objects: one task for each, or one for all where the SDK would have them wait for each other."""

    def __init__(self, place: Place, driver: Driver, target: list[MemoryObj]) -> None:
        self._driver = driver
        self._per_task = COUNT if place.transport == "sdk" else 1
        adapter, names = driver.adapter, keys(COUNT)
        firsts = range(0, COUNT, self._per_task)
        self.tasks = [
            adapter.submit_load_task(names[n : n + self._per_task], target[n : n + self._per_task]) for n in firsts
        ]

    def results(self) -> list[bool]:
        """Wait for all and return what was loaded."""
        return [bit for task in self.tasks for bit in self._driver.loaded(task, self._per_task)]


def has_begun(target: list[MemoryObj], place: Place) -> bool:
    """Whether bytes have come: into memory with the direct transport, into the SDK's own otherwise.

    The store has looked for manifests; the loads read manifests and shards.
    """
    if place.transport == "direct":
        return all(any(item.byte_array.cast("B")[: 4 * KIB]) for item in target)
    return place.emulator.counters.kv_requests["GET"] >= 3 * len(target)


@pytest.mark.usefixtures("eager_probes")
@pytest.mark.parametrize("after_deadline_seconds", [-0.08, -0.04, 0.0, 0.3])
def test_no_byte_follows_the_deadline(
    trickling: Place, drivers: list[Driver], l1: L1Memory, after_deadline_seconds: float
) -> None:
    """The second halves come around the deadline, and well after it."""
    limits = {"task_deadline_seconds": DEADLINE_SECONDS, "kv_timeout_seconds": DEADLINE_SECONDS}
    driver = opened(trickling, drivers, shard_size_bytes=LARGE_BYTES, **limits)
    emulator = trickling.emulator
    source, target = l1.filled(*[LARGE_BYTES] * COUNT), l1.take(*[LARGE_BYTES] * COUNT)
    assert driver.store(keys(COUNT), source).is_successful()
    emulator.faults.trickle_seconds = DEADLINE_SECONDS + after_deadline_seconds
    begun, before = time.monotonic(), emulator.counters.kv_requests["GET"]
    loads = Loads(trickling, driver, target)
    wait_until(lambda: emulator.counters.kv_requests["GET"] - before >= 2 * COUNT, "the first halves")
    for is_loaded, item, original in zip(loads.results(), target, source, strict=True):
        assert not is_loaded or content(item) == content(original)
        reuse(item)
    assert time.monotonic() - begun < 2 * DEADLINE_SECONDS
    [spare] = l1.take(LARGE_BYTES)
    with Watch(target):
        wait_until(lambda: emulator.counters.kv_trickled_values >= COUNT, "the second halves")
        emulator.faults.clear()
        wait_until(lambda: driver.load([key(0)], [spare]) == [True], "the next load")


def test_no_byte_follows_an_unlock(trickling: Place, drivers: list[Driver], l1: L1Memory) -> None:
    driver = opened(trickling, drivers)
    emulator = trickling.emulator
    source, target = l1.filled(*[MIB] * COUNT), l1.take(*[MIB] * COUNT)
    assert driver.store(keys(COUNT), source).is_successful()
    assert driver.lookup(keys(COUNT)) == [True] * COUNT
    emulator.faults.trickle_seconds = 1.0
    loads = Loads(trickling, driver, target)
    wait_until(lambda: has_begun(target, trickling), "the first halves")
    driver.adapter.submit_unlock(keys(COUNT - 1))
    for item in target[:-1]:
        reuse(item)
    assert emulator.counters.kv_trickled_values == 0
    with Watch(target[:-1]):
        wait_until(lambda: emulator.counters.kv_trickled_values >= COUNT, "the second halves")
        assert loads.results() == [False] * (COUNT - 1) + [True]
        assert content(target[-1]) == content(source[-1]), "its neighbour's memory was not given up"


def test_no_byte_follows_the_close(trickling: Place, drivers: list[Driver], l1: L1Memory) -> None:
    driver = opened(trickling, drivers)
    emulator = trickling.emulator
    target = l1.take(*[MIB] * COUNT)
    assert driver.store(keys(COUNT), l1.filled(*[MIB] * COUNT)).is_successful()
    emulator.faults.trickle_seconds = 1.0
    loads = Loads(trickling, driver, target)
    wait_until(lambda: has_begun(target, trickling), "the first halves")
    begun = time.monotonic()
    driver.adapter.close()
    assert time.monotonic() - begun < 10
    for item in target:
        reuse(item)
    with Watch(target):
        wait_until(lambda: emulator.counters.kv_trickled_values >= COUNT, "the second halves")
        time.sleep(0.3)  # what would come of them has no event
    answers = [driver.adapter.query_load_result(task) for task in loads.tasks]
    assert all(answer is not None for answer in answers), "a load got no answer"
