"""Both transports on their own: what they make of the answers of the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from conftest import BUCKET, PASSWORD, SCOPE, USERNAME, Place, prepare

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.credentials import Credentials
from couchbase_lm_cache.errors import ConnectError
from couchbase_lm_cache.settings import CouchbaseLMCacheConfig
from couchbase_lm_cache.sharding import checksum
from couchbase_lm_cache.transport import Outcome, ShardRead, ShardWrite, Transport
from couchbase_lm_cache.transports import open_transport as connect
from e2e.couchbase_emulator.running import running_emulator

SECONDS = 5.0


@pytest.fixture
def transport(place: Place) -> Iterator[Transport]:
    transport = open_transport(place)
    yield transport
    transport.close()


def open_transport(place: Place, seconds: float = SECONDS, **changes: object) -> Transport:
    settings = CouchbaseLMCacheConfig.from_dict(place.params | changes, environ={})
    return connect(settings, Credentials(USERNAME, PASSWORD), seconds)


def buffer(content: bytes) -> GuardedBuffer:
    return GuardedBuffer(memoryview(bytearray(content)))


def test_parts_of_memory_go_out_and_come_back(transport: Transport, place: Place) -> None:
    source, target = buffer(b"abcdef"), buffer(bytes(6))
    writes = [ShardWrite("one", source, 0, 2), ShardWrite("two", source, 2, 6)]
    assert transport.write(writes, 0, SECONDS) == [Outcome.OK] * 2
    assert {name: bytes(document.value) for name, document in place.documents().items()} == {
        "one": b"ab",
        "two": b"cdef",
    }
    reads = [
        ShardRead("two", target, 2, 6, checksum(b"cdef")),
        ShardRead("absent", target, 0, 1, None),
        ShardRead("one", target, 0, 1, None),
        ShardRead("one", target, 0, 2, checksum(b"xx")),
    ]
    assert transport.read_into(reads, SECONDS) == [
        Outcome.OK,
        Outcome.MISSING,
        Outcome.WRONG_LENGTH,
        Outcome.CORRUPT,
    ]
    assert target.copy(2, 6) == b"cdef"


def test_revoked_memory_is_neither_sent_nor_filled(transport: Transport, place: Place) -> None:
    transport.write([ShardWrite("one", buffer(b"ab"), 0, 2)], 0, SECONDS)
    gone = buffer(b"zz")
    gone.revoke()
    assert transport.write([ShardWrite("new", gone, 0, 2)], 0, SECONDS) == [Outcome.REVOKED]
    assert transport.read_into([ShardRead("one", gone, 0, 2, None)], SECONDS) == [Outcome.REVOKED]
    assert set(place.documents()) == {"one"}


def test_a_manifest_is_told_from_data_and_removed_only_in_the_version_read(transport: Transport) -> None:
    transport.write_json([("manifest", b'{"a": 1}')], 0, SECONDS)
    transport.write([ShardWrite("data", buffer(b"ab"), 0, 2)], 0, SECONDS)
    manifest, data = transport.read(["manifest", "data"], SECONDS)
    assert (manifest.content, manifest.is_json, data.content, data.is_json) == (b'{"a": 1}', True, b"ab", False)
    transport.write_json([("manifest", b'{"a": 2}')], 0, SECONDS)
    assert transport.remove(["manifest"], SECONDS, manifest.cas) == [Outcome.MISSING]
    assert transport.read(["manifest"], SECONDS)[0].content == b'{"a": 2}'
    assert transport.remove(["manifest", "absent"], SECONDS) == [Outcome.OK, Outcome.MISSING]
    assert transport.exists(["manifest", "data", "data"], SECONDS) == [Outcome.MISSING, Outcome.OK, Outcome.OK]


@pytest.mark.parametrize("ttl_seconds", [0, 100, 40 * 86400])
def test_lifetimes_are_set_read_and_renewed(transport: Transport, ttl_seconds: int) -> None:
    transport.write_json([("d", b"{}")], ttl_seconds, SECONDS)
    remaining = transport.age("d", SECONDS).remaining_seconds
    assert remaining is None if ttl_seconds == 0 else abs((remaining or 0) - ttl_seconds) < 5
    assert transport.touch(["d", "absent"], 1000, SECONDS) == [Outcome.OK, Outcome.MISSING]
    assert 990 < (transport.age("d", SECONDS).remaining_seconds or 0) <= 1001
    assert transport.age("absent", SECONDS).document.outcome is Outcome.MISSING


def test_a_key_named_twice_in_a_call_is_answered_twice(transport: Transport) -> None:
    source, target = buffer(b"abab"), buffer(bytes(4))
    twice = [ShardWrite("one", source, 0, 2), ShardWrite("one", source, 2, 4)]
    assert transport.write(twice, 0, SECONDS) == [Outcome.OK] * 2
    reads = [ShardRead("one", target, 0, 2, checksum(b"ab")), ShardRead("one", target, 2, 4, checksum(b"ab"))]
    assert transport.read_into(reads, SECONDS) == [Outcome.OK] * 2
    assert target.copy(0, 4) == b"abab"
    assert transport.write_json([("two", b"{}"), ("two", b"{}")], 0, SECONDS) == [Outcome.OK] * 2
    assert transport.exists(["two", "two"], SECONDS) == [Outcome.OK] * 2


def test_empty_calls_and_the_largest_document(transport: Transport) -> None:
    assert transport.read([], SECONDS) == []
    assert transport.exists([], SECONDS) == []
    large = buffer(bytes(20 * 1024 * 1024 + 1))
    assert transport.write([ShardWrite("l", large, 0, 20 * 1024 * 1024)], 0, 20) == [Outcome.OK]
    assert transport.write([ShardWrite("l", large, 0, 20 * 1024 * 1024 + 1)], 0, 20) == [Outcome.REFUSED]


def test_busy_silent_and_denying_servers_are_told_apart(transport: Transport, place: Place) -> None:
    faults = place.emulator.faults
    faults.tmpfail = -1
    assert transport.write_json([("d", b"{}")], 0, 0.3)[0] in (Outcome.BUSY, Outcome.TIMEOUT)
    faults.clear()
    faults.drop = -1
    begun = time.monotonic()
    assert transport.read(["d", "e"], 0.3)[1].outcome is Outcome.TIMEOUT
    assert time.monotonic() - begun < 2
    faults.clear()
    with pytest.raises(ConnectError, match="does not exist, or the user lacks the roles"):
        open_transport(place, seconds=1.0, collection_name="nowhere")
    place.emulator.create_user("reader", "reader-password", f"data_reader[{BUCKET}]")
    settings = CouchbaseLMCacheConfig.from_dict(place.params, environ={})
    reader = connect(settings, Credentials("reader", "reader-password"), SECONDS)
    assert reader.write_json([("d", b"{}")], 0, 1.0) == [Outcome.DENIED]
    reader.close()


def test_calls_after_and_during_close_end_as_failures(place: Place) -> None:
    transport = open_transport(place)
    place.emulator.faults.slow_seconds = 1.0
    results: list[Outcome] = []
    thread = threading.Thread(target=lambda: results.extend(transport.exists(["a"], 3.0)))
    thread.start()
    time.sleep(0.1)  # until the request is on its way; if it is not yet, the check below holds as well
    transport.close()
    thread.join(10)
    place.emulator.faults.clear()
    assert len(results) == 1
    assert transport.exists(["a"], 1.0)[0] is not Outcome.OK
    assert transport.read(["a"], 1.0)[0].outcome is not Outcome.OK
    assert transport.age("a", 1.0).document.outcome is not Outcome.OK


@pytest.mark.parametrize("name", ["direct", "sdk", "auto"])
def test_tls_verifies_against_the_given_ca_only(name: str) -> None:
    with running_emulator(tls=True) as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "tls")
        params = {
            "connection_string": emulator.tls_connection_string,
            "username": USERNAME,
            "password": PASSWORD,
            "bucket_name": BUCKET,
            "scope_name": SCOPE,
            "collection_name": "tls",
            "transport": name,
        }
        credentials = Credentials(USERNAME, PASSWORD)
        emulator.counters.kv_requests.clear()
        for trust in ({"tls_ca_file": str(emulator.ca_path)}, {"tls_skip_verify": True}):
            transport = connect(CouchbaseLMCacheConfig.from_dict(params | trust, environ={}), credentials, SECONDS)
            assert transport.write_json([("d", b"{}")], 0, SECONDS) == [Outcome.OK]
            transport.close()
        if name == "direct":
            # One message instead of two, and no slow hashing: nobody else can read the password here.
            assert emulator.counters.kv_requests["SASL_AUTH"] > 0
            assert emulator.counters.kv_requests["SASL_STEP"] == 0
        with pytest.raises(ConnectError, match="certificate"):
            connect(CouchbaseLMCacheConfig.from_dict(params, environ={}), credentials, 1.0)
