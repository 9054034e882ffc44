"""The in-process connector behind LMCache's own remote backend, on an emulated Couchbase."""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from conftest import Place
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObj
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.connector.instrumented_connector import InstrumentedRemoteConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend

from couchbase_lm_cache import connector
from couchbase_lm_cache.connector import CouchbaseConnector, plugin_name
from couchbase_lm_cache.errors import ConnectError, SettingsError
from e2e.couchbase_emulator.running import running_emulator

CHUNK_TOKENS = 256
KV_SHAPE = (8, 2, CHUNK_TOKENS, 4, 128)
WAIT_SECONDS = 30.0


def key(number: int) -> CacheEngineKey:
    return CacheEngineKey("test/model", 1, 0, number, torch.bfloat16)


def engine_config(params: dict[str, Any], **extra: Any) -> LMCacheEngineConfig:
    config = LMCacheEngineConfig.from_defaults()
    config.chunk_size, config.max_local_cpu_size, config.remote_serde = CHUNK_TOKENS, 0.25, "naive"
    config.remote_storage_plugins = ["couchbase"]
    config.extra_config = {
        "remote_storage_plugin.couchbase.module_path": "couchbase_lm_cache.connector",
        "remote_storage_plugin.couchbase.class_name": "CouchbaseConnector",
        **{f"remote_storage_plugin.couchbase.{name}": value for name, value in params.items()},
        **extra,
    }
    return config


@dataclass
class Engine:
    """What LMCache's engine holds in one process."""

    config: LMCacheEngineConfig
    loop: asyncio.AbstractEventLoop
    backend: RemoteBackend = field(init=False)
    memory: LocalCPUBackend = field(init=False)

    def __post_init__(self) -> None:
        metadata = LMCacheMetadata("test/model", 1, 1, 0, 0, torch.bfloat16, KV_SHAPE, chunk_size=CHUNK_TOKENS)
        self.memory = LocalCPUBackend(self.config, metadata, "cpu")
        self.backend = RemoteBackend(self.config, metadata, self.loop, self.memory, "cpu", plugin_name="couchbase")

    @property
    def connector(self) -> CouchbaseConnector:
        assert isinstance(self.backend.connection, InstrumentedRemoteConnector)
        wrapped = self.backend.connection.getWrappedConnector()
        assert isinstance(wrapped, CouchbaseConnector)
        return wrapped

    def chunk(self, seed: int, tokens: int = CHUNK_TOKENS) -> MemoryObj:
        layers, kinds, _, heads, size = KV_SHAPE
        memory = self.memory.allocate(
            torch.Size([kinds, layers, tokens, heads * size]), torch.bfloat16, MemoryFormat.KV_2LTD
        )
        assert memory is not None
        generator = torch.Generator().manual_seed(seed)
        random = torch.randint(0, 256, (memory.get_size(),), dtype=torch.uint8, generator=generator)
        memory.byte_array.cast("B")[:] = random.numpy().tobytes()
        return memory

    def put(self, number: int, memory: MemoryObj) -> None:
        self.backend.submit_put_task(key(number), memory).result(WAIT_SECONDS)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_SECONDS)
    loop.close()


@pytest.fixture
def engine(place: Place, loop: asyncio.AbstractEventLoop) -> Iterator[Engine]:
    engine = Engine(engine_config(place.params), loop)
    yield engine
    engine.run(engine.connector.close())


@pytest.mark.parametrize("tokens", [CHUNK_TOKENS, 48, 1])
def test_a_chunk_comes_back_as_it_was(engine: Engine, place: Place, tokens: int) -> None:
    stored = engine.chunk(1, tokens)
    assert not engine.backend.contains(key(1))
    engine.put(1, stored)
    assert stored.get_ref_count() == 1, "LMCache counts down, the connector does not"
    assert key(1).to_string() in place.documents()
    assert engine.backend.contains(key(1))
    loaded = engine.backend.get_blocking(key(1))
    assert loaded is not None
    assert loaded.get_shape() == stored.get_shape()
    assert bytes(loaded.byte_array) == bytes(stored.byte_array)
    assert loaded.get_ref_count() == 1


@pytest.mark.parametrize("tokens", [CHUNK_TOKENS, 48])
def test_a_chunk_without_header_comes_back(place: Place, loop: asyncio.AbstractEventLoop, tokens: int) -> None:
    engine = Engine(engine_config(place.params, save_chunk_meta=False), loop)
    stored = engine.chunk(1, tokens)
    engine.put(1, stored)
    loaded = engine.backend.get_blocking(key(1))
    assert loaded is not None
    assert bytes(loaded.byte_array) == bytes(stored.byte_array)
    engine.run(engine.connector.close())


def test_batches(engine: Engine) -> None:
    chunks = [engine.chunk(number) for number in range(6)]
    names = [key(number) for number in range(6)]
    engine.run(engine.backend.connection.batched_put(names, chunks))
    asked = [*names, key(99)]
    assert engine.backend.batched_contains(asked) == 6
    assert engine.run(engine.connector.batched_async_contains("lookup", asked)) == 6
    wanted = [bytes(engine.chunk(number).byte_array) for number in range(6)]
    loaded = engine.backend.batched_get_blocking(asked)
    assert [memory and bytes(memory.byte_array) for memory in loaded] == [*wanted, None]
    prefix = engine.run(engine.connector.batched_get_non_blocking("lookup", [names[0], key(99), names[1]]))
    assert [bytes(memory.byte_array) for memory in prefix] == wanted[:1]


def test_ping_and_removal(engine: Engine, place: Place) -> None:
    assert engine.run(engine.backend.connection.ping()) == 0
    engine.put(1, engine.chunk(1))
    assert engine.connector.exists_sync(key(1))
    assert engine.backend.connection.remove_sync(key(1))
    assert not engine.connector.exists_sync(key(1))
    assert place.documents() == {}


def test_the_scheduler_has_no_memory_but_looks_up(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    engine.put(1, engine.chunk(1))
    scheduler = RemoteBackend(engine.config, engine.memory.metadata, loop, None, "cpu", plugin_name="couchbase")
    assert scheduler.contains(key(1))
    assert not scheduler.contains(key(2))
    assert scheduler.get_blocking(key(1)) is None
    engine.run(scheduler.connection.close())


def test_everything_ends_when_couchbase_is_gone(loop: asyncio.AbstractEventLoop) -> None:
    from conftest import BUCKET, SCOPE, prepare

    with running_emulator() as emulator:
        prepare(emulator)
        emulator.create_collection(BUCKET, SCOPE, "gone")
        limits = {"task_deadline_seconds": 2.0, "kv_timeout_seconds": 1.0}
        engine = Engine(engine_config(Place(emulator, "gone").params | limits), loop)
        chunk = engine.chunk(1)
        engine.put(1, chunk)
    began = time.monotonic()
    assert not engine.backend.contains(key(1))
    assert engine.backend.get_blocking(key(1)) is None
    assert engine.backend.batched_get_blocking([key(number) for number in range(12)]) == [None] * 12
    with pytest.raises(ConnectError, match="not stored"):
        engine.put(2, chunk)
    assert engine.run(engine.connector.ping()) != 0
    assert chunk.get_ref_count() == 1
    engine.run(engine.connector.close())
    assert time.monotonic() - began < 25


def nobody() -> dict[str, Any]:
    return {
        "connection_string": "couchbase://127.0.0.1:1",
        "bucket_name": "cache",
        "username": "u",
        "password": "p",
        "connect_timeout_seconds": 1.0,
    }


def test_a_strict_start_without_couchbase_leaves_lmcache_without_the_connector(
    loop: asyncio.AbstractEventLoop,
) -> None:
    engine = Engine(engine_config(nobody()), loop)
    assert engine.backend.connection is None
    assert not engine.backend.contains(key(1))


def test_a_degraded_start_without_couchbase_serves_misses(loop: asyncio.AbstractEventLoop) -> None:
    engine = Engine(engine_config(nobody() | {"startup": "degraded"}), loop)
    assert not engine.backend.contains(key(1))
    assert engine.backend.get_blocking(key(1)) is None
    engine.run(engine.connector.close())


def test_another_layout_is_not_taken(engine: Engine, place: Place, loop: asyncio.AbstractEventLoop) -> None:
    engine.put(1, engine.chunk(1))
    other = Engine(engine_config(place.params, save_chunk_meta=False), loop)
    assert other.backend.get_blocking(key(1)) is None
    other.run(other.connector.close())


def test_the_plugin_is_found_by_its_class() -> None:
    extra = engine_config({}).extra_config | {"remote_storage_plugin.other.module_path": "elsewhere"}
    assert plugin_name(["other", "couchbase"], extra) == "couchbase"
    with pytest.raises(SettingsError, match="0 of remote_storage_plugins"):
        plugin_name(["other"], extra)


def test_a_get_cancelled_in_the_middle_gives_everything_back(engine: Engine, place: Place) -> None:
    engine.put(1, engine.chunk(1))
    free = engine.memory.memory_allocator.memcheck
    assert free()
    place.emulator.faults.slow_seconds = 1.0
    before = place.emulator.counters.kv_requests["GET"]
    get = asyncio.run_coroutine_threadsafe(engine.connector.batched_get([key(1)] * 3), engine.loop)
    deadline = time.monotonic() + WAIT_SECONDS
    while place.emulator.counters.kv_requests["GET"] == before:
        assert time.monotonic() < deadline, "nothing was asked for"
        time.sleep(0.01)
    get.cancel()
    began = time.monotonic()
    place.emulator.faults.clear()
    loaded = engine.run(engine.connector.get(key(1)))
    assert loaded is not None, "the next call is not held up by the cancelled ones"
    assert time.monotonic() - began < 5
    assert loaded.get_ref_count() == 1
    loaded.ref_count_down()
    assert free()


@pytest.mark.parametrize(
    ("vllm", "lmcache", "is_affected"),
    [
        ("0.32.0+cpu", "0.5.6", True),
        ("0.26.0", "0.5.5", True),
        ("0.25.9", "0.5.6", False),
        ("0.32.0", "0.5.7", False),
        ("0.32.0", "0.5.7.dev3", False),
        (None, "0.5.6", False),
    ],
)
def test_versions_whose_in_process_mode_may_load_wrongly_are_warned_of(
    vllm: str | None, lmcache: str, is_affected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        found = {"vllm": vllm, "lmcache": lmcache}[package]
        if found is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return found

    told: list[str] = []
    monkeypatch.setattr(connector.importlib.metadata, "version", version)
    monkeypatch.setattr(connector.logger, "warning", told.append)
    connector.warn_of_known_issue.cache_clear()
    try:
        assert connector.warn_of_known_issue() is is_affected
        assert connector.warn_of_known_issue() is is_affected
    finally:
        connector.warn_of_known_issue.cache_clear()
    assert len(told) == int(is_affected)
