"""Workers that leave LMCache's server in the middle of a store: what they had written is the content of nothing."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import OpenAdapter, Place
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig
from lmcache.v1.mp_observability.config import ObservabilityConfig
from lmcache.v1.multiprocess.config import MPServerConfig
from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey, RegisterEngineDrivenContextPayload
from lmcache.v1.multiprocess.modules.engine_driven_transfer import EngineDrivenTransferModule
from lmcache.v1.multiprocess.server import MPCacheServer, run_cache_server
from lmcache.v1.multiprocess.transfer_context.base import EngineDrivenContextMetadata
from lmcache.v1.multiprocess.transfer_context.shm import EngineDrivenContextShm
from lmcache.v1.multiprocess.transport.factory import RequestClientFactory
from observing import wait_until
from storage_managers import l2_adapters

from couchbase_lm_cache import unfinished_stores

pytestmark = pytest.mark.parametrize("place", ["direct"], indirect=True)

DEVICE_BACKEND = Path(__file__).parents[2] / "lmcache-hostcpu-device" / "src"
MODEL, LAYERS, WIDTH, CHUNK_TOKENS, BLOCK_TOKENS = "test/model", 4, 128, 64, 16
LAYOUT = MemoryLayoutDesc([torch.Size([2, LAYERS, CHUNK_TOKENS, WIDTH])], [torch.bfloat16])
RESERVATION_SECONDS = 3
SECONDS = 30.0
_numbers = itertools.count(1)


def chunk(number: int) -> IPCCacheServerKey:
    """Name a prompt of one chunk, in a request of its own."""
    tokens = tuple(range(number * CHUNK_TOKENS, (number + 1) * CHUNK_TOKENS))
    return IPCCacheServerKey(MODEL, 1, 0, tokens, 0, CHUNK_TOKENS, f"request-{next(_numbers)}", num_kv_readers=1)


def content(value: float) -> bytes:
    """Return the bytes of a chunk that :meth:`Worker.store` has filled."""
    return torch.full(LAYOUT.shapes[0], value, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()


def stored(place: Place) -> list[bytes]:
    """Return the chunks in Couchbase."""
    return sorted(bytes(document.value) for name, document in place.documents().items() if "::shard::" in name)


class Worker:
    """What a worker of vLLM does with LMCache's server when it stores."""

    def __init__(self, url: str) -> None:
        self.instance = uuid.uuid4().int >> 65
        self.client = RequestClientFactory.create(url)
        payload = RegisterEngineDrivenContextPayload(
            self.instance, MODEL, 1, BLOCK_TOKENS, LAYERS, WIDTH, "bfloat16", False, CHUNK_TOKENS
        )
        pool = self.client.register_kv_cache_engine_driven_context(payload).result(timeout=SECONDS)
        metadata = EngineDrivenContextMetadata(LAYOUT, BLOCK_TOKENS, False)
        self.memory = EngineDrivenContextShm(metadata, self.client, SECONDS, pool.shm_name, pool.pool_size)

    def reserve(self, key: IPCCacheServerKey) -> list[torch.Tensor]:
        """Return the server's memory for a chunk; none when the server needs nothing."""
        reserved = self.memory.prepare_store(key, self.instance)
        assert reserved is not None
        return reserved[0]

    def store(self, key: IPCCacheServerKey, value: float) -> bool:
        """Store a whole chunk; tells whether there was room for it."""
        room = self.reserve(key)
        for tensor in room:
            tensor.fill_(value)
        return bool(room) and self.memory.commit_store(key, self.instance, [])

    def found(self, key: IPCCacheServerKey) -> int:
        """Return how many chunks of the prompt the server has, in its memory or in Couchbase."""
        self.client.lookup(key.no_worker_id_version(), 1).result(timeout=SECONDS)
        found = self.client.wait_prefetch_status(key.request_id, SECONDS).result(timeout=SECONDS)
        self.client.free_lookup_locks(key.no_worker_id_version(), 1).result(timeout=SECONDS)
        return int(found or 0)

    def close(self) -> None:
        self.memory.close()
        self.client.close()


class Server:
    """LMCache's server with our adapter, and its workers."""

    def __init__(self, engine: MPCacheServer, url: str, open_until: ExitStack) -> None:
        self._engine, self._url, self._open_until = engine, url, open_until

    def worker(self) -> Worker:
        worker = Worker(self._url)
        self._open_until.callback(worker.close)
        return worker

    @property
    def transfers(self) -> EngineDrivenTransferModule:
        """The part of the server that holds the reservations."""
        (module,) = [each for each in self._engine._modules if isinstance(each, EngineDrivenTransferModule)]
        return module

    def reap(self, _worker: Worker) -> None:
        """Take all workers for dead, as the server does with those it has not heard of for long."""
        self.transfers.reap_stale_instances(0.0, 0.0)

    def unregister(self, worker: Worker) -> None:
        """Let a worker leave in order, as it does when its process is told to end."""
        worker.client.unregister_kv_cache_engine_driven_context(worker.instance).result(timeout=SECONDS)


@pytest.fixture(autouse=True)
def _as_lmcache_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what adapters of earlier tests have done to LMCache, for the time of a test."""
    release = inspect.unwrap(EngineDrivenTransferModule._release_entry)
    monkeypatch.setattr(EngineDrivenTransferModule, "_release_entry", release)


class Told(logging.Handler):
    """What the module logs, whether or not LMCache lets its loggers pass anything on."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    unfinished_stores.logger.addHandler(handler)
    yield handler
    unfinished_stores.logger.removeHandler(handler)


@contextmanager
def lmcache_server(params: dict[str, Any]) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    pool = f"lmcache_l1_pool_unfinished_{os.getpid()}_{port}"
    memory = L1MemoryManagerConfig(size_in_bytes=16 << 20, use_lazy=False, shm_name=pool)
    l1 = L1ManagerConfig(memory, write_ttl_seconds=RESERVATION_SECONDS)
    running = run_cache_server(
        MPServerConfig(
            host="127.0.0.1",
            port=port,
            chunk_size=CHUNK_TOKENS,
            supported_transfer_mode="engine_driven",
            shm_name=pool,
            worker_reap_timeout_seconds=0,
        ),
        StorageManagerConfig(l1, EvictionConfig("LRU"), l2_adapters(params)),
        ObservabilityConfig(enabled=False, metrics_enabled=False, logging_enabled=False),
        return_engine=True,
        start_prometheus_http_server=False,
    )
    assert running is not None
    requests, engine = running
    try:
        with ExitStack() as open_until:
            yield Server(engine, f"tcp://127.0.0.1:{port}", open_until)
    finally:
        requests.close()
        engine.close()


@pytest.mark.parametrize("leave", [Server.unregister, Server.reap])
def test_what_a_worker_has_half_written_is_never_cached(place: Place, leave: Callable[[Server, Worker], None]) -> None:
    with lmcache_server(place.params) as server:
        leaving = server.worker()
        (room,) = leaving.reserve(chunk(1))
        room[0].fill_(1.0)
        leave(server, leaving)
        leaving.client.commit_store(chunk(1), leaving.instance, b"")  # too late, and never answered

        staying = server.worker()
        assert staying.found(chunk(1)) == 0
        assert staying.store(chunk(2), 2.0)
        wait_until(lambda: stored(place) == [content(2.0)], "the store of a whole chunk")
        # Not before the room's time is over: the worker that left might still write there.
        wait_until(lambda: staying.store(chunk(1), 3.0), "the store of the same chunk")
        wait_until(lambda: stored(place) == [content(2.0), content(3.0)], "the store of the same chunk in Couchbase")
        assert staying.found(chunk(1)) == 1


class Late:
    """A lock of reservations; once it has been released, a request that was on its way brings one more."""

    def __init__(self, reservations: dict[Any, Any]) -> None:
        self._reservations, self._late = reservations, dict(reservations)
        reservations.clear()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._reservations.update(self._late)
        self._late.clear()


def test_a_reservation_that_comes_while_its_worker_leaves_is_not_cached(place: Place) -> None:
    with lmcache_server(place.params) as server:
        leaving, staying = server.worker(), server.worker()
        assert leaving.reserve(chunk(1))
        server.transfers._pending_shm_lock = Late(server.transfers._pending_shm_writes)
        server.unregister(leaving)
        assert staying.found(chunk(1)) == 0


@pytest.mark.parametrize("is_ours_first", [True, False])
def test_it_works_next_to_the_device_backends_own(
    place: Place, is_ours_first: bool, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    monkeypatch.syspath_prepend(str(DEVICE_BACKEND))
    from lmcache_hostcpu.unfinished_stores import keep_out

    if not is_ours_first:
        keep_out()
    with lmcache_server(place.params) as server:
        keep_out()
        leaving, staying = server.worker(), server.worker()
        assert leaving.reserve(chunk(1))
        server.unregister(leaving)
        assert staying.found(chunk(1)) == 0
        assert ["1 unfinished chunk(s) dropped" in record.getMessage() for record in told.records] == [True]


def test_a_second_adapter_adds_nothing(open_adapter: OpenAdapter) -> None:
    open_adapter()
    release = EngineDrivenTransferModule._release_entry
    open_adapter()
    assert EngineDrivenTransferModule._release_entry is release


@pytest.mark.parametrize("has_another", [True, False])
def test_an_lmcache_without_what_it_needs_is_warned_about(
    open_adapter: OpenAdapter, has_another: bool, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    assert open_adapter().adapter.report_status()["drops_unfinished_stores"] is True
    assert not told.records
    monkeypatch.delattr(EngineDrivenTransferModule, "_release_entry")
    if has_another:
        monkeypatch.setattr(EngineDrivenTransferModule, "_release_entry", lambda *_: None, raising=False)
    assert open_adapter().adapter.report_status()["drops_unfinished_stores"] is False
    (record,) = told.records
    assert record.levelno == logging.WARNING
    assert "EngineDrivenTransferModule._release_entry" in record.getMessage()
