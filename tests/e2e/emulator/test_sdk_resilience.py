"""The official SDK rides out what the emulator can do to it, as it does with a real cluster."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.collection import Collection
from couchbase.diagnostics import ServiceType
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException, TemporaryFailException
from couchbase.options import ClusterOptions, WaitUntilReadyOptions
from couchbase.transcoder import RawBinaryTranscoder

from e2e.conformance.world import eventually
from e2e.couchbase_emulator import FOREVER, RunningEmulator
from tests.e2e.emulator.conftest import Start

SHORT = timedelta(seconds=1)


@pytest.fixture
def emulator(start: Start) -> RunningEmulator:
    return start(nodes=3, buckets=(("cache", 200),))


@pytest.fixture
def documents(emulator: RunningEmulator) -> Iterator[Collection]:
    authenticator = PasswordAuthenticator(emulator.admin_username, emulator.admin_password)
    cluster = Cluster(emulator.connection_string, ClusterOptions(authenticator, transcoder=RawBinaryTranscoder()))
    cluster.wait_until_ready(timedelta(seconds=10), WaitUntilReadyOptions(service_types=[ServiceType.KeyValue]))
    yield cluster.bucket("cache").default_collection()
    cluster.close()


def _succeeds(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except CouchbaseException:
        return False
    return True


def test_rebalance_goes_unnoticed(emulator: RunningEmulator, documents: Collection) -> None:
    values = {f"key-{number}": os.urandom(100) for number in range(100)}
    assert documents.upsert_multi(values).all_ok
    for _ in range(2):
        emulator.move_vbuckets()
        found = documents.get_multi(list(values))
        assert {key: result.content_as[bytes] for key, result in found.results.items()} == values


def test_passing_statuses_are_retried(emulator: RunningEmulator, documents: Collection) -> None:
    emulator.faults.not_my_vbucket = 3
    documents.upsert("key", b"one")
    emulator.faults.tmpfail = 3
    documents.upsert("key", b"two")
    assert documents.get("key").content_as[bytes] == b"two"


def test_lasting_temporary_failure_ends_in_one(emulator: RunningEmulator, documents: Collection) -> None:
    emulator.faults.tmpfail = FOREVER
    with pytest.raises(TemporaryFailException):
        documents.upsert("key", b"value", timeout=SHORT)


def test_unanswered_operation_times_out(emulator: RunningEmulator, documents: Collection) -> None:
    emulator.faults.drop = FOREVER
    begin = time.monotonic()
    with pytest.raises(CouchbaseException):
        documents.get("key", timeout=SHORT)
    assert 0.9 <= time.monotonic() - begin < 3


def test_dead_node_comes_back(emulator: RunningEmulator, documents: Collection) -> None:
    keys = [f"key-{number}" for number in range(60)]
    assert documents.upsert_multi(dict.fromkeys(keys, b"value")).all_ok
    emulator.faults.kill_node(2)
    partly = documents.get_multi(keys, timeout=SHORT)
    assert 0 < len(partly.results) < len(keys)
    emulator.faults.revive_node(2)
    eventually(
        lambda: _succeeds(lambda: [documents.upsert(key, b"again", timeout=SHORT) for key in keys]),
        "every key can be written again",
        20,
    )


def test_dropped_bucket_and_namesake(emulator: RunningEmulator, documents: Collection) -> None:
    documents.upsert("key", b"value")
    emulator.call(lambda running: running.cluster.remove_bucket("cache"))
    assert not _succeeds(lambda: documents.get("key", timeout=SHORT))
    emulator.create_bucket("cache")

    def missing() -> bool:
        try:
            documents.get("key", timeout=SHORT)
        except DocumentNotFoundException:
            return True
        except CouchbaseException:
            return False
        return False

    eventually(missing, "the client works with the new, empty bucket", 20)
