"""LMCache's own storage manager with our adapter in it, driven as its server drives it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lmcache.v1.distributed.api import GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchResult, PrefetchTaskSpec
from lmcache.v1.distributed.config import EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig
from lmcache.v1.distributed.l2_adapters.config import (
    L2AdaptersConfig,
    add_l2_adapters_args,
    parse_args_to_l2_adapters_config,
)
from lmcache.v1.distributed.storage_manager import StorageManager

from couchbase_lm_cache.l2_adapter import CouchbaseL2Adapter

# Keys and values of 4 layers, 64 tokens, 2 heads of 64, in bfloat16: 256 KiB.
LAYOUT = MemoryLayoutDesc([torch.Size([2, 4, 64, 128])], [torch.bfloat16])
OBJECT_BYTES = 2 * 4 * 64 * 128 * 2


def l2_adapters(params: dict[str, Any], **extra: Any) -> L2AdaptersConfig:
    """Name the adapter as on the command line of ``lmcache server``.

    Args:
        params: adapter_params.
        extra: top-level keys of the adapter's JSON, such as ``serde``.
    """
    document = {
        "type": "plugin",
        "module_path": "couchbase_lm_cache.l2_adapter",
        "class_name": "CouchbaseL2Adapter",
        "adapter_params": params,
        **extra,
    }
    parser = add_l2_adapters_args(argparse.ArgumentParser())
    return parse_args_to_l2_adapters_config(parser.parse_args(["--l2-adapter", json.dumps(document)]))


class Manager:
    """A storage manager under test.

    Args:
        params: adapter_params.
        extra: top-level keys of the adapter's JSON, such as ``serde``.
    """

    def __init__(self, params: dict[str, Any], **extra: Any) -> None:
        memory = L1MemoryManagerConfig(size_in_bytes=64 << 20, use_lazy=False, shm_name="")
        self.storage = StorageManager(
            StorageManagerConfig(L1ManagerConfig(memory), EvictionConfig("LRU"), l2_adapters(params, **extra))
        )

    @property
    def adapter(self) -> CouchbaseL2Adapter:
        adapter = self.storage.l2_adapters()[0][1]
        adapter = getattr(adapter, "_inner", adapter)
        assert isinstance(adapter, CouchbaseL2Adapter)
        return adapter

    def put(self, keys: list[ObjectKey], seed: int = 0) -> list[bytes]:
        """Write chunks as vLLM would, and return their content."""
        generator = torch.Generator().manual_seed(seed)
        objects = self.storage.reserve_write(keys, LAYOUT)
        assert len(objects) == len(keys)
        written = []
        for name in keys:
            item = objects[name]
            values = torch.randn(OBJECT_BYTES // 2, generator=generator).to(torch.bfloat16)
            item.byte_array.cast("B")[:] = values.view(torch.uint8).numpy().tobytes()
            written.append(bytes(item.byte_array))
        self.storage.finish_write(keys)
        return written

    def await_stored(self, objects: int) -> None:
        """Wait until so many objects are in Couchbase."""
        deadline = time.monotonic() + 30
        while self.counts().get("objects_stored", 0) < objects:
            assert time.monotonic() < deadline, "the store did not happen"
            time.sleep(0.02)

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.adapter.report_status()["counts"]
        return counts

    def forget(self) -> None:
        """Empty L1."""
        self.storage.clear(force=True)

    def ask(self, keys: list[ObjectKey], layout: MemoryLayoutDesc = LAYOUT) -> Any:
        """Submit a request's lookup; ``keys`` are new objects, as every request has its own."""
        row = GroupedObjectKeys(keys, 0, layout)
        return self.storage.submit_prefetch_task(PrefetchTaskSpec([row]))

    def answer(self, handle: Any, timeout_seconds: float = 30) -> PrefetchResult:
        assert self.storage.wait_prefetch_status(handle, timeout_seconds), "the request hangs"
        result = self.storage.query_prefetch_status(handle)
        assert result is not None
        return result

    def read(self, keys: list[ObjectKey]) -> list[bytes]:
        """Read prefetched chunks as vLLM would, and release them."""
        with self.storage.read_prefetched_results(keys) as objects:
            assert objects is not None
            content = [bytes(item.byte_array) for item in objects]
        self.storage.finish_read_prefetched(keys)
        return content


@contextmanager
def manager(params: dict[str, Any], **extra: Any) -> Iterator[Manager]:
    """Run a storage manager until the block ends."""
    running = Manager(params, **extra)
    try:
        yield running
    finally:
        running.storage.close()
