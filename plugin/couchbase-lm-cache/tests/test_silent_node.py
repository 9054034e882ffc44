"""A data node that is connected and says nothing, or not everything: it is noticed, and stays noticed under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, Place, prepare
from lmcache.v1.distributed.api import ObjectKey
from lmcache_parts import KIB, Driver, L1Memory, bits, create_adapter, keys
from observing import is_healthy, wait_until
from three_nodes import COLLECTION, is_alive, running_three_nodes

from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.transport import Outcome
from couchbase_lm_cache.transports import open_transport
from e2e.couchbase_emulator.kv.connection import KvConnection
from e2e.couchbase_emulator.kv.document_commands import DOCUMENT_COMMANDS
from e2e.couchbase_emulator.kv.frames import Request
from e2e.couchbase_emulator.kv.lookup_commands import LOOKUP_COMMANDS
from e2e.couchbase_emulator.running import RunningEmulator, running_emulator

SILENT = 1
COUNT = 32
LOOKUPS_PER_SECOND = 20
LOAD_SECONDS = 5.0


class Silence:
    """Keeps nodes of all emulators from answering document requests, or anything at all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes: set[int] = set()
        self.is_total = False
        self.asked: set[int] = set()
        real: Callable[[KvConnection, Request], None] = KvConnection._handle

        def handle(connection: KvConnection, request: Request) -> None:
            node = connection._session.node.index
            is_document = request.opcode in DOCUMENT_COMMANDS or request.opcode in LOOKUP_COMMANDS
            if is_document:
                self.asked.add(node)
            if node not in self.nodes or not (is_document or self.is_total):
                real(connection, request)

        monkeypatch.setattr(KvConnection, "_handle", handle)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    return Silence(monkeypatch)


@pytest.fixture
def cluster(silence: Silence) -> Iterator[RunningEmulator]:
    with running_three_nodes() as emulator:
        yield emulator
        silence.nodes.clear()


@pytest.fixture(params=["direct", "sdk"])
def place(cluster: RunningEmulator, request: pytest.FixtureRequest) -> Place:
    return Place(cluster, COLLECTION, request.param)


@pytest.fixture
def driver(place: Place) -> Iterator[Driver]:
    driver = Driver(create_adapter(place.params | {"kv_timeout_seconds": 1.0, "task_deadline_seconds": 10.0}))
    yield driver
    driver.adapter.close()


def look_up_steadily(driver: Driver, names: list[ObjectKey]) -> Iterator[tuple[float, list[bool]]]:
    """Look up again and again, whatever became of the lookups before; give the seconds and hits of each."""
    adapter = driver.adapter
    begun = time.monotonic()
    pending: dict[int, float] = {}
    asked = 0
    while pending or time.monotonic() - begun < LOAD_SECONDS:
        now = time.monotonic()
        if asked / LOOKUPS_PER_SECOND <= now - begun < LOAD_SECONDS:
            pending[adapter.submit_lookup_and_lock_task(names, {})] = now
            asked += 1
        for task in list(pending):
            result = adapter.query_lookup_and_lock_result(task)
            if result is not None:
                yield time.monotonic() - pending.pop(task), bits(result, len(names))
        time.sleep(0.005)  # a load has a rate


@pytest.mark.usefixtures("eager_probes")
@pytest.mark.parametrize("is_total", [False, True], ids=["documents", "everything"])
def test_lookups_do_not_pile_up_behind_a_node_that_says_nothing(
    l1: L1Memory, place: Place, driver: Driver, silence: Silence, *, is_total: bool
) -> None:
    names = keys(COUNT)
    assert driver.store(names, l1.filled(*[KIB] * COUNT)).is_successful()
    silence.is_total = is_total
    silence.nodes.add(SILENT)
    while is_healthy(driver):
        driver.lookup(names)
    places = l1.take(*[KIB] * COUNT)
    for name, item in zip(names, places, strict=True):
        driver.adapter.submit_load_task([name], [item])

    alive = [is_alive(place, name, shards=0, dead=SILENT) for name in names]
    answers = []
    for answer in look_up_steadily(driver, names):
        answers.append(answer)
        assert not is_healthy(driver), "the node is overlooked under load"
    assert driver.adapter.report_status()["connection_state"] == "ready"
    waits = sorted(wait for wait, _ in answers)
    assert len(waits) > LOOKUPS_PER_SECOND * LOAD_SECONDS / 2
    assert waits[-1] < 2.0, "lookups pile up"
    complete = sum(found == alive for _, found in answers)
    assert complete > 0.8 * len(answers), "the other nodes were not heard"
    silence.nodes.clear()
    wait_until(lambda: is_healthy(driver), "recovery")
    assert driver.lookup(names) == [True] * COUNT


@pytest.mark.parametrize("transport", ["direct", "sdk"])
def test_the_probe_meets_every_node_of_a_large_cluster(silence: Silence, transport: str) -> None:
    nodes = 10
    with running_emulator(nodes=nodes) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "large")
        settings = CouchbaseLMCacheConfig.from_dict(Place(emulator, "large", transport).params, environ={})
        opened = open_transport(settings, Credentials(USERNAME, PASSWORD), 5.0)
        silence.asked.clear()
        assert set(opened.probe(5.0)) == {Outcome.MISSING}
        assert silence.asked == set(range(nodes))
        for silent in (2, 5, nodes - 1):
            silence.nodes = {silent}
            outcomes = opened.probe(1.0)
            assert {Outcome.MISSING} < set(outcomes), "other nodes were not heard"
            assert set(outcomes) <= {Outcome.MISSING, Outcome.TIMEOUT}
        silence.nodes.clear()
        opened.close()
