"""The direct transport and a cluster that changes under it."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, Place
from hypothesis import given
from hypothesis import strategies as st
from three_nodes import COLLECTION, running_three_nodes

from couchbase_lm_cache import transports
from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.direct.addresses import Node, parse_connection_string
from couchbase_lm_cache.direct.cluster_map import parse_cluster_map
from couchbase_lm_cache.direct.wire import ProtocolError
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.sharding import checksum
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite, Transport
from e2e.couchbase_emulator.running import RunningEmulator

KIB = 1024
COUNT = 60
SECONDS = 5.0
CREDENTIALS = Credentials(USERNAME, PASSWORD)


@pytest.fixture
def cluster() -> Iterator[RunningEmulator]:
    with running_three_nodes() as emulator:
        yield emulator


def settings_for(emulator: RunningEmulator, **changes: object) -> CouchbaseLMCacheConfig:
    params = Place(emulator, COLLECTION, "direct").params
    return CouchbaseLMCacheConfig.from_dict(params | changes, environ={})


@pytest.fixture
def transport(cluster: RunningEmulator) -> Iterator[Transport]:
    transport = transports.open_transport(settings_for(cluster), CREDENTIALS, SECONDS)
    yield transport
    transport.close()


class Content:
    """Documents spread over all nodes."""

    def __init__(self) -> None:
        self.bytes = os.urandom(COUNT * KIB)
        self.keys = [f"k{number}" for number in range(COUNT)]

    def write(self, transport: Transport, seconds: float = SECONDS) -> list[Outcome]:
        source = GuardedBuffer(memoryview(bytearray(self.bytes)))
        return transport.write(
            [ShardWrite(key, source, n * KIB, (n + 1) * KIB) for n, key in enumerate(self.keys)], 0, seconds
        )

    def read(self, transport: Transport, seconds: float = SECONDS) -> list[Outcome]:
        """Read all; what is said to be there must be right."""
        memory = bytearray(len(self.bytes))
        target = GuardedBuffer(memoryview(memory))
        outcomes = transport.read_into(
            [ShardRead(key, target, n * KIB, (n + 1) * KIB, None) for n, key in enumerate(self.keys)], seconds
        )
        for number, outcome in enumerate(outcomes):
            part = slice(number * KIB, (number + 1) * KIB)
            assert outcome is not Outcome.OK or memory[part] == self.bytes[part]
        return outcomes


def test_documents_are_followed_to_their_new_nodes(cluster: RunningEmulator, transport: Transport) -> None:
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.move_vbuckets()
    assert content.read(transport) == [Outcome.OK] * COUNT
    cluster.remove_node(2)
    assert content.read(transport) == [Outcome.OK] * COUNT
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.add_node(2)
    assert transport.exists(content.keys, SECONDS) == [Outcome.OK] * COUNT
    assert content.read(transport) == [Outcome.OK] * COUNT


def test_a_node_that_is_down_costs_only_what_is_on_it_and_no_time(
    cluster: RunningEmulator, transport: Transport
) -> None:
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.kill_node(1)
    content.read(transport)
    began = time.monotonic()
    outcomes = content.read(transport)
    assert time.monotonic() - began < 1.5, "a node known to be down is not waited for"
    assert set(outcomes) == {Outcome.OK, Outcome.UNREACHABLE}
    cluster.revive_node(1)
    deadline = time.monotonic() + 10
    while Outcome.UNREACHABLE in transport.exists(content.keys, SECONDS):
        assert time.monotonic() < deadline, "the node was not found again"
        time.sleep(0.1)


def test_a_call_outlives_the_node_that_a_new_map_drops(cluster: RunningEmulator, transport: Transport) -> None:
    content, ended = Content(), []
    assert content.write(transport) == [Outcome.OK] * COUNT
    assert content.read(transport) == [Outcome.OK] * COUNT
    cluster.faults.slow_seconds = 1.0
    asked = cluster.counters.kv_requests["GET"]
    threads = [threading.Thread(target=lambda: ended.append(content.read(transport, 10.0))) for _ in range(2)]
    threads[0].start()
    deadline = time.monotonic() + 10
    while cluster.counters.kv_requests["GET"] < asked + COUNT:
        assert time.monotonic() < deadline, "the first call was not sent"
        time.sleep(0.005)
    cluster.remove_node(2, close_sockets=False)
    # The second call is answered before the first, learns the new map and drops the node that the first waits for.
    cluster.faults.slow_seconds = 0.0
    threads[1].start()
    threads[1].join(20)
    assert threads[0].is_alive()
    threads[0].join(20)
    assert ended == [[Outcome.OK] * COUNT] * 2


def test_a_restarted_cluster_is_found_again(cluster: RunningEmulator, transport: Transport) -> None:
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.restart(0.2)
    deadline = time.monotonic() + 10
    while set(content.write(transport)) != {Outcome.OK}:
        assert time.monotonic() < deadline, "the cluster was not found again"
    assert content.read(transport) == [Outcome.OK] * COUNT


def test_what_is_refused_for_a_moment_is_tried_again_within_the_time(
    cluster: RunningEmulator, transport: Transport
) -> None:
    content = Content()
    cluster.faults.tmpfail = 100
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.faults.not_my_vbucket = 50
    assert content.read(transport) == [Outcome.OK] * COUNT
    cluster.faults.disconnect = 1
    assert content.read(transport) == [Outcome.OK] * COUNT
    cluster.faults.tmpfail = -1
    began = time.monotonic()
    assert content.write(transport, 0.5) == [Outcome.BUSY] * COUNT
    assert time.monotonic() - began < 1.5


def test_a_collection_made_again_is_found_under_its_new_number(cluster: RunningEmulator, transport: Transport) -> None:
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.drop_collection(BUCKET, SCOPE, COLLECTION)
    assert transport.exists(["k0"], SECONDS) == [Outcome.DENIED]
    cluster.create_collection(BUCKET, SCOPE, COLLECTION)
    assert content.read(transport) == [Outcome.MISSING] * COUNT
    assert content.write(transport) == [Outcome.OK] * COUNT


def test_many_threads_share_few_connections(cluster: RunningEmulator) -> None:
    settings = settings_for(cluster, connections_per_node=1)
    transport = transports.open_transport(settings, CREDENTIALS, SECONDS)
    content, failures = Content(), []
    assert content.write(transport) == [Outcome.OK] * COUNT

    def work() -> None:
        for _ in range(10):
            failures.extend(outcome for outcome in content.read(transport, 20.0) if outcome is not Outcome.OK)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    transport.close()
    assert failures == []


@pytest.mark.parametrize(("kind", "connections", "expected"), [("load", 4, 4), ("load", 1, 1), ("store", 4, 2)])
def test_a_node_serves_over_as_many_connections_as_allowed_and_no_more(
    cluster: RunningEmulator, *, kind: str, connections: int, expected: int
) -> None:
    """Answers come late: those of one connection one after the other, those of several at the same time."""
    settings = settings_for(cluster, connections_per_node=connections)
    transport = transports.open_transport(settings, CREDENTIALS, SECONDS)
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    before = cluster.counters.kv_logins
    cluster.faults.slow_seconds = 0.2
    act = content.read if kind == "load" else content.write
    outcomes: list[Outcome] = []
    threads = [threading.Thread(target=lambda: outcomes.extend(act(transport, 30.0))) for _ in range(2 * expected + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == [Outcome.OK] * COUNT * len(threads)
    made = cluster.counters.kv_logins - before
    # The first write has opened one connection to each of the three nodes. All others need not be made to each
    # node: while one caller logs in to the first, another may be done with the second.
    most = 3 * (expected if kind == "load" else expected - 1)
    assert most / 3 <= made <= most
    assert kind == "store" or connections == 1 or made > 3
    act(transport, 30.0)
    assert cluster.counters.kv_logins - before == made, "connections are kept"
    transport.close()


def test_any_of_several_hosts_will_do(cluster: RunningEmulator) -> None:
    cluster.kill_node(0)
    transport = transports.open_transport(settings_for(cluster), CREDENTIALS, SECONDS)
    assert transport.name == "direct"
    transport.close()


def test_alternate_addresses_are_used_when_asked_for(cluster: RunningEmulator) -> None:
    for index, (_, port) in enumerate(cluster.kv_addresses):
        cluster.set_alternate_address(index, "localhost", {"kv": port})
    text = f"{cluster.connection_string}?network=external"
    transport = transports.open_transport(settings_for(cluster, connection_string=text), CREDENTIALS, SECONDS)
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    transport.close()


@pytest.mark.parametrize("fault", ["wrong_opaques", "unknown_hellos", "extra_bytes", "refusals"])
def test_auto_uses_the_sdk_when_the_direct_transport_meets_a_surprise(cluster: RunningEmulator, fault: str) -> None:
    """Faults begin when the SDK is connected: what it finds is the reference."""
    settings = settings_for(cluster, transport="auto")
    reference = transports.open_transport(settings_for(cluster, transport="sdk"), CREDENTIALS, SECONDS)
    candidate = None
    if fault == "unknown_hellos":
        cluster.faults.unknown_hellos = -1
        with pytest.raises(ConnectError, match="direct transport understands"):
            transports.open_transport(settings_for(cluster), CREDENTIALS, 1.0)
    else:
        candidate = transports.open_transport(settings_for(cluster), CREDENTIALS, SECONDS)
        setattr(cluster.faults, fault, -1 if fault != "extra_bytes" else 1)
        assert transports.compare(reference, candidate) is not None
        candidate.close()
    cluster.faults.clear()
    reference.close()
    good = transports.open_transport(settings, CREDENTIALS, 10.0)
    assert (good.name, good.notice) == ("direct", "")
    good.close()


def test_damaged_answers_of_any_kind_never_deliver_a_wrong_byte_nor_an_exception(
    cluster: RunningEmulator, transport: Transport
) -> None:
    content = Content()
    assert content.write(transport) == [Outcome.OK] * COUNT
    cluster.faults.corrupt_seed = 7
    cluster.faults.corrupt_stream = 0.02
    memory = bytearray(len(content.bytes))
    seen = set()
    for _ in range(30):
        target = GuardedBuffer(memoryview(memory))
        parts = [(key, n * KIB, (n + 1) * KIB) for n, key in enumerate(content.keys)]
        reads = [ShardRead(key, target, a, b, checksum(content.bytes[a:b])) for key, a, b in parts]
        for (_, start, end), outcome in zip(parts, transport.read_into(reads, 0.5), strict=True):
            seen.add(outcome)
            assert outcome is not Outcome.OK or memory[start:end] == content.bytes[start:end]
        transport.exists(content.keys, 0.5)
    assert Outcome.OK in seen
    cluster.faults.clear()
    deadline = time.monotonic() + 10
    while content.read(transport) != [Outcome.OK] * COUNT:
        assert time.monotonic() < deadline, "the transport did not recover"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"rev": 1, "nodesExt": [], "vBucketServerMap": {"vBucketMap": [[0]], "serverList": ["a:1"]}}',
    ],
)
def test_a_map_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_cluster_map(text, Node("h", 1), parse_connection_string("couchbase://h"))


MAP = {
    "rev": 7,
    "revEpoch": 1,
    "nodesExt": [
        {
            "hostname": "a",
            "services": {"kv": 1, "kvSSL": 2},
            "alternateAddresses": {"external": {"hostname": "x", "ports": {"kv": 3}}},
        }
    ],
    "vBucketServerMap": {"hashAlgorithm": "CRC", "vBucketMap": [[0], [-1]], "serverList": ["a:1"]},
}
ODD = st.sampled_from(
    [None, True, -1, 0, 65_536, 10**30, 1.5, float("inf"), "", "b", "[", "\0", [], [[]], {}, {"kv": 4}]
)


def changed(value: Any, data: st.DataObject) -> Any:
    """Put something else in one place of it."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        copy = value.copy()
        copy[place] = changed(value[place], data)
        return copy
    return data.draw(ODD)


@given(data=st.data(), network=st.sampled_from(["default", "external", "auto"]))
def test_whatever_a_map_says_it_is_refused_or_leads_to_places_that_can_be(data: st.DataObject, network: str) -> None:
    address = parse_connection_string(f"couchbase://h?network={network}")
    try:
        found = parse_cluster_map(json.dumps(changed(MAP, data)).encode(), Node("h", 1), address)
    except ProtocolError:
        return
    for node in found.nodes:
        assert isinstance(node.host, str)
        assert 0 < node.port < 65_536
    assert all(isinstance(part, int) for part in found.revision)


@pytest.mark.parametrize(
    ("where", "what", "message"),
    [
        (("nodesExt", 0, "services", "kv"), "{}", "server 0 of the bucket's map is not among"),
        (("vBucketServerMap", "serverList", 0), "{}:1", "server 0 of the bucket's map is not among"),
        (("nodesExt", 0, "alternateAddresses", "external", "hostname"), ["{}"], "host name that is no text"),
        (("nodesExt", 0, "alternateAddresses", "external", "ports"), {"{}": 1}, "offers no key-value port"),
        (("nodesExt", 0, "alternateAddresses", "external", "ports", "kv"), 70_707, "port that cannot be"),
    ],
)
def test_why_a_map_is_refused_quotes_nothing_of_it(where: tuple[str | int, ...], what: Any, message: str) -> None:
    """It gets into logs and the status."""
    document = json.loads(json.dumps(MAP))
    place: Any = document
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = json.loads(json.dumps(what).replace("{}", "secret" * 100))
    with pytest.raises(ProtocolError, match=message) as refusal:
        parse_cluster_map(
            json.dumps(document).encode(), Node("h", 1), parse_connection_string("couchbase://h?network=external")
        )
    assert not re.search("secret|70707", str(refusal.value))


def test_connection_strings() -> None:
    several = parse_connection_string("couchbases://a,b:1234,[::1]:5?network=external&x=y")
    assert several.seeds() == [Node("a", 11207), Node("b", 1234), Node("::1", 5)]
    assert (several.uses_tls, several.network) == (True, "external")
    for wrong in ("couchbase://", "couchbase://a:x", "couchbase://a?network=moon"):
        with pytest.raises(ConnectError):
            parse_connection_string(wrong)
