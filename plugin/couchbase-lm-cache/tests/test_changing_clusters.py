"""What administrators do to a cluster in use: nodes leave and return, a collection is dropped, a password changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BUCKET, SCOPE, OpenAdapter, Place
from lmcache_parts import KIB, MIB, Driver, L1Memory, content, create_adapter, key, keys
from observing import is_healthy, wait_until
from three_nodes import COLLECTION, running_three_nodes

from e2e.couchbase_emulator.running import RunningEmulator

COUNT = 24
CHANGES_SECONDS = 5.0


class Nodes:
    """Three nodes, the last of which leaves and returns in a thread until the block ends."""

    def __init__(self, emulator: RunningEmulator) -> None:
        self._emulator = emulator
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.changes = 0

    def __enter__(self) -> Nodes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.15):
            # At times it stays reachable for a while and sends clients away, as between rebalance and ejection.
            self._emulator.remove_node(2, close_sockets=self.changes % 2 == 0)
            self._stop.wait(0.15)
            self._emulator.add_node(2)
            self.changes += 1


@pytest.fixture(params=["direct", "direct with TLS", "sdk"])
def three_nodes(request: pytest.FixtureRequest) -> Iterator[tuple[RunningEmulator, Driver]]:
    with running_three_nodes(tls="TLS" in request.param) as emulator:
        params = Place(emulator, COLLECTION, request.param.split()[0]).params
        if emulator.options.tls:
            params |= {"connection_string": emulator.tls_connection_string, "tls_ca_file": str(emulator.ca_path)}
        # Without checksums nothing but the transport itself stands between damage and L1.
        limits = {"checksum": "none", "kv_timeout_seconds": 3.0, "task_deadline_seconds": 10.0}
        driver = Driver(create_adapter(params | limits))
        yield emulator, driver
        driver.adapter.close()


def test_a_node_that_leaves_three_and_returns(three_nodes: tuple[RunningEmulator, Driver], l1: L1Memory) -> None:
    emulator, driver = three_nodes
    source, target = l1.filled(*[2 * MIB] * COUNT), l1.take(*[2 * MIB] * COUNT)
    expected = [content(item) for item in source]
    assert driver.store(keys(COUNT), source).is_successful()
    loads = loaded = stores = stored = 0
    end = time.monotonic() + CHANGES_SECONDS
    with Nodes(emulator) as nodes:
        while time.monotonic() < end or nodes.changes < 4:
            for item in target:
                item.byte_array.cast("B")[:] = bytes(item.get_size())
            begun = time.monotonic()
            bits = driver.load(keys(COUNT), target)
            assert time.monotonic() - begun < 11, "a load outlived its deadline"
            for bit, item, original in zip(bits, target, expected, strict=True):
                assert not bit or content(item) == original, "a wrong byte was called loaded"
            stored += driver.store([key(100 + loads)], source[:1]).is_successful()
            loads, loaded, stores = loads + 1, loaded + sum(bits), stores + 1
    # The documents move along: nearly everything is found all the time.
    assert loaded > 0.8 * loads * COUNT
    assert stored > 0.8 * stores
    emulator.remove_node(2)
    wait_until(lambda: driver.load(keys(COUNT), target) == [True] * COUNT, "loads from two nodes", 10)
    assert [content(item) for item in target] == expected
    assert driver.lookup(keys(COUNT)) == [True] * COUNT
    assert driver.store([key(99)], source[:1]).is_successful()


def state(driver: Driver) -> str:
    return str(driver.adapter.report_status()["connection_state"])


@pytest.mark.usefixtures("eager_probes")
def test_a_collection_that_is_dropped_and_made_again(place: Place, open_adapter: OpenAdapter, l1: L1Memory) -> None:
    driver = open_adapter(kv_timeout_seconds=1.0, task_deadline_seconds=2.0)
    source, target = l1.filled(2 * MIB, 2 * MIB), l1.take(2 * MIB, 2 * MIB)
    assert driver.store(keys(2), source).is_successful()
    place.emulator.drop_collection(BUCKET, SCOPE, place.collection)
    begun = time.monotonic()
    assert driver.lookup(keys(2)) == [False, False]
    assert driver.load(keys(2), target) == [False, False]
    assert time.monotonic() - begun < 5
    assert not driver.store([key(9)], source[:1]).is_successful()
    assert time.monotonic() - begun < 9 + 5, "a store outlived its deadline, four times that of a load"
    wait_until(lambda: state(driver) == "unavailable", "noticing that the collection is gone", 15)
    # The SDK looks for the collection until its time is up, so with it the reason is that nothing answered.
    expected = "does not answer" if place.transport == "sdk" else "the collection is gone"
    assert expected in driver.adapter.report_status()["reason"]
    place.emulator.create_collection(BUCKET, SCOPE, place.collection)
    wait_until(lambda: state(driver) == "ready", "recovery", 15)
    assert is_healthy(driver)
    assert driver.lookup(keys(2)) == [False, False], "the new collection is empty"
    assert driver.store(keys(2), source).is_successful()
    assert driver.load(keys(2), target) == [True, True]
    assert is_healthy(driver)
    assert [content(item) for item in target] == [content(item) for item in source]


def file_first(change_file: Callable[[], None], change_server: Callable[[], None]) -> None:
    change_file()
    change_server()


def server_first(change_file: Callable[[], None], change_server: Callable[[], None]) -> None:
    change_server()
    change_file()


@pytest.mark.usefixtures("eager_probes")
@pytest.mark.parametrize("order", [file_first, server_first], ids=["file first", "server first"])
def test_a_password_that_changes(
    own_place: Place,
    open_own: OpenAdapter,
    l1: L1Memory,
    tmp_path: Path,
    order: Callable[[Callable[[], None], Callable[[], None]], None],
) -> None:
    """The same user with a new password, in its file and on the server; old connections end in between."""
    emulator, password = own_place.emulator, tmp_path / "password"
    roles = f"data_reader[{BUCKET}],data_writer[{BUCKET}]"
    emulator.create_user("rotated", "old-password", roles)
    password.write_text("old-password")
    limits = {"kv_timeout_seconds": 1.0, "task_deadline_seconds": 2.0, "connect_timeout_seconds": 2.0}
    driver = open_own(username="rotated", password=None, password_file=str(password), **limits)
    source, target = l1.filled(MIB), l1.take(MIB)
    assert driver.store(keys(1), source).is_successful()

    def settle() -> None:
        """Have the change noticed before the other one is made, as far as it can be."""
        begun = time.monotonic()
        driver.load(keys(1), target)
        assert time.monotonic() - begun < 3, "a load outlived its deadline"

    def change_server() -> None:
        emulator.create_user("rotated", "new-password", roles)
        emulator.kill_node(0)  # what is stored survives; nobody stays logged in with the old password
        emulator.revive_node(0)
        settle()

    def change_file() -> None:
        password.write_text("new-password")
        settle()

    order(change_file, change_server)
    wait_until(lambda: is_healthy(driver), "the login with the new password", 20)
    wait_until(lambda: driver.load(keys(1), target) == [True], "a load with the new password", 10)
    assert content(target[0]) == content(source[0])
    assert driver.store([key(5)], l1.filled(KIB)).is_successful()
    # New connections, too: those of before are cut once more.
    emulator.faults.disconnect = 4
    wait_until(lambda: driver.lookup(keys(1)) == [True], "a new connection", 10)
    wait_until(lambda: is_healthy(driver), "the end of it", 10)
