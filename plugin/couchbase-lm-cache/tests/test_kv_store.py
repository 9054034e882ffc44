"""The Python API on an emulated Couchbase."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from conftest import BUCKET, SCOPE, Place
from prometheus_client import REGISTRY

from couchbase_lm_cache import CouchbaseKVStore, CouchbaseLMCacheConfig
from couchbase_lm_cache.errors import ConnectError
from e2e.couchbase_emulator.running import running_emulator

MIB = 1024 * 1024


def store_at(place: Place, **overrides: object) -> CouchbaseKVStore:
    return CouchbaseKVStore(CouchbaseLMCacheConfig.from_dict(place.params | overrides, {}))


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that finds the same modules."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("checksum", ["xxh3", "none"])
@pytest.mark.parametrize("size_bytes", [0, 1, MIB, MIB + 1, 5 * MIB + 7])
def test_bytes_of_every_size_come_back(place: Place, size_bytes: int, checksum: str) -> None:
    data = os.urandom(size_bytes)
    with store_at(place, checksum=checksum) as store:
        assert not store.exists("chunk")
        assert store.get_bytes("chunk") is None
        store.put_bytes("chunk", data)
        assert store.exists("chunk")
        assert store.get_bytes("chunk") == data
        assert store.remove("chunk")
        assert not store.remove("chunk")
        assert store.get_bytes("chunk") is None
    assert place.documents() == {}


def test_documents_lie_as_the_format_says(place: Place) -> None:
    with store_at(place, key_prefix="tenant:", ttl_seconds=600) as store:
        store.put_bytes("chunk", bytes(2 * MIB + 1))
    documents = place.documents()
    assert sorted(documents) == ["tenant:chunk", *(f"tenant:chunk::shard::{n}" for n in range(3))]
    assert all(document.expiry for document in documents.values())


def test_a_second_store_reads_what_the_first_wrote_with_another_shard_size(place: Place) -> None:
    data = os.urandom(3 * MIB + 11)
    with store_at(place, shard_size_bytes=256 * 1024) as writer, store_at(place) as reader:
        writer.put_bytes("chunk", data)
        assert reader.get_bytes("chunk") == data


def test_a_missing_shard_makes_the_object_a_miss(place: Place, bucket: object) -> None:
    with store_at(place) as store:
        store.put_bytes("chunk", os.urandom(3 * MIB))
        bucket.remove("chunk::shard::1")  # type: ignore[attr-defined]
        assert store.get_bytes("chunk") is None
        assert not store.exists("chunk"), "the manifest of a broken object is removed"


@pytest.mark.parametrize(
    "manifest",
    [{"lmcache_shards": 1, "bytes": 10**15}, {"lmcache_shards": 1_000_000, "bytes": 10**12}, {"other": 1}],
)
def test_a_manifest_that_cannot_be_true_is_a_miss(place: Place, bucket: object, manifest: dict[str, int]) -> None:
    bucket.upsert("chunk", manifest)  # type: ignore[attr-defined]
    with store_at(place) as store:
        assert store.get_bytes("chunk") is None


def test_ping_tells_whether_couchbase_answers() -> None:
    from conftest import BUCKET, SCOPE, prepare

    with running_emulator() as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "pinged")
        store = store_at(Place(emulator, "pinged"), kv_timeout_seconds=1.0, task_deadline_seconds=2.0)
        assert store.ping()
    began = time.monotonic()
    assert not store.ping()
    with pytest.raises(ConnectError):
        store.get_bytes("chunk")
    with pytest.raises(ConnectError):
        store.put_bytes("chunk", b"bytes")
    with pytest.raises(ConnectError):
        store.exists("chunk")
    with pytest.raises(ConnectError):
        store.remove("chunk")
    assert time.monotonic() - began < 20
    store.close()
    store.close()


def test_nobody_answers_at_the_start() -> None:
    params = {"connection_string": "couchbase://127.0.0.1:1", "bucket_name": "cache", "username": "u", "password": "p"}
    settings = CouchbaseLMCacheConfig.from_dict(params | {"connect_timeout_seconds": 1.0}, {})
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
        CouchbaseKVStore(settings)


def test_the_package_is_importable_without_lmcache() -> None:
    code = (
        "import sys; sys.modules['lmcache'] = None\n"
        "from couchbase_lm_cache import CouchbaseKVStore, CouchbaseLMCacheConfig\n"
        "print(CouchbaseKVStore.__name__, CouchbaseLMCacheConfig.__name__)"
    )
    done = run(code)
    assert done.stdout.split() == ["CouchbaseKVStore", "CouchbaseLMCacheConfig"]


def test_its_calls_are_counted_like_those_of_the_adapter(place: Place) -> None:
    labels = {"bucket": BUCKET, "collection": f"{SCOPE}.{place.collection}"}

    def value(name: str, **more: str) -> float | None:
        return REGISTRY.get_sample_value(f"couchbase_lm_cache_{name}", labels | more)

    with store_at(place) as store:
        store.put_bytes("chunk", bytes(2 * MIB))
        assert store.get_bytes("chunk") == bytes(2 * MIB)
        assert value("healthy") == 1
        assert value("objects_total", event="objects_stored") == 1
        assert value("operations_total", operation="read_into", result="ok") == 2
        assert (value("received_bytes_total") or 0) > 2 * MIB
    assert value("healthy") is None, "what is closed has no state"
    assert value("objects_total", event="objects_loaded") == 1, "and keeps its counts"


def test_it_needs_no_prometheus_library(place: Place) -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from couchbase_lm_cache import CouchbaseKVStore, CouchbaseLMCacheConfig\n"
        f"params = {place.params!r}\n"
        "with CouchbaseKVStore(CouchbaseLMCacheConfig.from_dict(params, {})) as store:\n"
        "    store.put_bytes('chunk', b'x'); print(store.get_bytes('chunk'))\n"
    )
    done = run(program)
    assert done.stdout.strip() == "b'x'", done.stderr
