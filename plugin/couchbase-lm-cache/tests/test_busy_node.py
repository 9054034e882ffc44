"""One of three data nodes refuses for the moment: what is on the others is stored beside it, by either transport."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import PASSWORD, USERNAME, Place
from lmcache_parts import KIB, Driver, L1Memory, create_adapter, keys
from observing import is_healthy, wait_until
from three_nodes import COLLECTION, is_alive, running_three_nodes

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome, ShardWrite, Transport
from couchbase_lm_cache.transports import open_transport
from e2e.couchbase_emulator.kv import document_commands
from e2e.couchbase_emulator.kv.opcodes import Status
from e2e.couchbase_emulator.kv.session import Session
from e2e.couchbase_emulator.running import RunningEmulator

SHORT = 1
SIZE, COUNT = 512 * KIB, 120
KV_TIMEOUT_SECONDS = 3.0
WAITING_TASKS = 12  # three for each thread that stores
LOCKED = 0x09
SYNC_WRITE_IN_PROGRESS = 0xA2


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningEmulator]:
    """A cluster of which one node alone is ever short of memory."""
    struck = document_commands._struck

    def struck_there(session: Session, temporary: str, out_of_memory: str) -> Status | None:
        return struck(session, temporary, out_of_memory) if session.node.index == SHORT else None

    monkeypatch.setattr(document_commands, "_struck", struck_there)
    with running_three_nodes() as emulator:
        yield emulator


@pytest.fixture(params=["direct", "sdk"])
def place(cluster: RunningEmulator, request: pytest.FixtureRequest) -> Place:
    return Place(cluster, COLLECTION, request.param)


@pytest.fixture
def driver(place: Place) -> Iterator[Driver]:
    adapter = create_adapter(place.params | {"kv_timeout_seconds": KV_TIMEOUT_SECONDS})
    yield Driver(adapter)
    place.emulator.faults.clear()
    adapter.close()


@pytest.mark.parametrize("faults", [("tmpfail",), ("out_of_memory",), ("tmpfail", "tmpfail_reads")])
def test_stores_go_on_beside_those_that_a_node_puts_off(
    l1: L1Memory, place: Place, driver: Driver, faults: tuple[str, ...]
) -> None:
    names = keys(400)
    put_off = [name for name in names if not is_alive(place, name, shards=1, dead=SHORT)][:WAITING_TASKS]
    live = [name for name in names if is_alive(place, name, shards=1, dead=SHORT)][:4]
    for fault in faults:
        setattr(place.emulator.faults, fault, -1)
    waiting = [driver.adapter.submit_store_task([name], l1.filled(SIZE)) for name in put_off]
    begun = time.monotonic()
    assert driver.store(live, l1.filled(*[SIZE] * len(live))).is_successful()
    # The SDK does not tell of a refusal before the limit of the first call.
    limit_seconds = KV_TIMEOUT_SECONDS / 2 + (KV_TIMEOUT_SECONDS if place.transport == "sdk" else 0)
    assert time.monotonic() - begun < limit_seconds, "a thread waits for a node that refuses"
    assert not driver.adapter.pop_completed_store_tasks()
    assert is_healthy(driver)

    place.emulator.faults.clear()
    assert all(driver.stored(task).is_successful() for task in waiting), "what was put off is stored in the end"
    assert driver.lookup(put_off + live) == [True] * len(put_off + live)


def test_objects_of_one_store_do_not_wait_for_each_other(l1: L1Memory, place: Place, driver: Driver) -> None:
    names = keys(COUNT)
    live = [name for name in names if is_alive(place, name, shards=1, dead=SHORT)]
    place.emulator.faults.tmpfail = -1
    task = driver.adapter.submit_store_task(names, l1.filled(*[SIZE] * COUNT))
    wait_until(lambda: all(driver.lookup(live)), "storing what is on the other nodes", 3 * KV_TIMEOUT_SECONDS)
    put_off = [name for name in names if name not in live]
    assert driver.lookup(put_off) == [False] * len(put_off), "no manifest stands beside a shard that was refused"
    place.emulator.faults.clear()
    assert driver.stored(task).is_successful()
    assert driver.lookup(names) == [True] * COUNT


@pytest.fixture
def transport(place: Place) -> Iterator[Transport]:
    settings = CouchbaseLMCacheConfig.from_dict(place.params, environ={})
    transport = open_transport(settings, Credentials(USERNAME, PASSWORD), 5.0)
    yield transport
    place.emulator.faults.clear()
    transport.close()


@pytest.mark.parametrize("status", [LOCKED, SYNC_WRITE_IN_PROGRESS, int(Status.ETMPFAIL), int(Status.ENOMEM)])
def test_what_is_refused_for_the_moment_is_busy_and_only_waited_for_by_the_patient(
    place: Place, transport: Transport, status: int
) -> None:
    faults = place.emulator.faults
    source = GuardedBuffer(memoryview(bytearray(b"content")))
    writes = [ShardWrite("d", source, 0, 7)]
    assert transport.write(writes, 0, 5.0) == [Outcome.OK]
    faults.refusal_status = status

    faults.refusals = 3
    assert transport.write(writes, 0, 5.0) == [Outcome.OK]
    faults.refusals = 3
    assert transport.read(["d"], 5.0)[0].content == b"content"
    faults.refusals = -1
    assert transport.write(writes, 0, 0.5) == [Outcome.BUSY]
    assert transport.write(writes, 0, 0.5, is_patient=False) == [Outcome.BUSY], "the SDK learns it here"
    begun = time.monotonic()
    assert transport.write(writes, 0, 5.0, is_patient=False) == [Outcome.BUSY]
    assert transport.write_json([("j", b"{}")], 0, 5.0, is_patient=False) == [Outcome.BUSY]
    assert transport.read(["d"], 5.0, is_patient=False)[0].outcome is Outcome.BUSY
    assert transport.remove(["d"], 5.0, is_patient=False) == [Outcome.BUSY]
    assert time.monotonic() - begun < 2.5
    faults.refusals = 0
    assert transport.remove(["d"], 5.0, is_patient=False) == [Outcome.OK]
