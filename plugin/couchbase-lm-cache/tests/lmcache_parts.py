"""Real LMCache parts for tests: memory from its L1 allocator, its plugin loader, and waiting on descriptors."""

from __future__ import annotations

import select
import time
from typing import Any

import torch
from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import L1MemoryManagerConfig
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters import plugin_l2_adapter
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import PluginL2AdapterConfig
from lmcache.v1.distributed.memory_manager.l1_memory_manager import L1MemoryManager
from lmcache.v1.memory_management import MemoryObj
from lmcache.v1.platform.event_notifier import consume_fd

from couchbase_lm_cache.l2_adapter import CouchbaseL2Adapter

KIB = 1024
MIB = 1024 * KIB
MODEL = "test/model"
WAIT_SECONDS = 30.0


def create_adapter(params: dict[str, Any], l1_memory_desc: object = None) -> CouchbaseL2Adapter:
    """Create the adapter the way ``lmcache server`` does."""
    config = PluginL2AdapterConfig.from_dict(
        {
            "type": "plugin",
            "module_path": "couchbase_lm_cache.l2_adapter",
            "class_name": "CouchbaseL2Adapter",
            "adapter_params": params,
        }
    )
    adapter = plugin_l2_adapter._create_plugin_adapter(config, l1_memory_desc)
    assert isinstance(adapter, CouchbaseL2Adapter)
    return adapter


class L1Memory:
    """LMCache's own allocator of CPU memory."""

    def __init__(self, size_bytes: int = 256 * MIB) -> None:
        self._manager = L1MemoryManager(L1MemoryManagerConfig(size_in_bytes=size_bytes, use_lazy=False, shm_name=""))
        self._taken: list[MemoryObj] = []

    @property
    def descriptor(self) -> object:
        """What the storage manager hands to adapters."""
        return self._manager.get_l1_memory_desc()

    def take(self, *sizes: int) -> list[MemoryObj]:
        """Allocate one zeroed object per size in bytes."""
        return [self.shaped([torch.Size([size])], [torch.uint8]) for size in sizes]

    def shaped(self, shapes: list[torch.Size], dtypes: list[torch.dtype]) -> MemoryObj:
        """Allocate one zeroed object of several kernel groups."""
        _, objects = self._manager.allocate(MemoryLayoutDesc(shapes, dtypes), 1)
        assert objects, "L1 memory of the test is used up"
        objects[0].byte_array.cast("B")[:] = bytes(objects[0].get_size())
        self._taken.extend(objects)
        return objects[0]

    def filled(self, *sizes: int, seed: int = 0) -> list[MemoryObj]:
        """Allocate objects with random content."""
        generator = torch.Generator().manual_seed(seed)
        objects = self.take(*sizes)
        for item in objects:
            random = torch.randint(0, 256, (item.get_size(),), dtype=torch.uint8, generator=generator)
            item.byte_array.cast("B")[:] = random.numpy().tobytes()
        return objects

    def close(self) -> None:
        """Give everything back."""
        for item in self._taken:
            item.ref_count_down()
        self._manager.close()


def content(item: MemoryObj) -> bytes:
    """Return the bytes of an object."""
    return bytes(item.byte_array)


def key(number: int, *, model: str = MODEL, group: int = 0, salt: str = "", rank: int = 0x01000100) -> ObjectKey:
    """Return the key of the ``number``-th chunk."""
    return ObjectKey(number.to_bytes(32, "big"), model, rank, group, salt)


def keys(count: int, first: int = 0) -> list[ObjectKey]:
    """Return the keys of consecutive chunks."""
    return [key(number) for number in range(first, first + count)]


def bits(bitmap: Bitmap | None, count: int) -> list[bool]:
    """Return a bitmap as booleans, after checking its length."""
    assert bitmap is not None
    assert len(str(bitmap)) == count
    return [bitmap.test(index) for index in range(count)]


class Driver:
    """Calls an adapter the way LMCache's controllers do: submit, wait for the descriptor, ask for the result."""

    def __init__(self, adapter: CouchbaseL2Adapter) -> None:
        self.adapter = adapter
        self._stored: dict[int, L2StoreResult] = {}

    def store(self, names: list[ObjectKey], objects: list[MemoryObj]) -> L2StoreResult:
        return self.stored(self.adapter.submit_store_task(names, objects))

    def lookup(self, names: list[ObjectKey]) -> list[bool]:
        return self.looked_up(self.adapter.submit_lookup_and_lock_task(names, {}), len(names))

    def load(self, names: list[ObjectKey], objects: list[MemoryObj]) -> list[bool]:
        return self.loaded(self.adapter.submit_load_task(names, objects), len(names))

    def stored(self, task_id: int) -> L2StoreResult:
        def poll() -> L2StoreResult | None:
            self._stored.update(self.adapter.pop_completed_store_tasks())
            return self._stored.pop(task_id, None)

        return _await(self.adapter.get_store_event_fd(), poll)

    def looked_up(self, task_id: int, count: int) -> list[bool]:
        fd = self.adapter.get_lookup_and_lock_event_fd()
        return bits(_await(fd, lambda: self.adapter.query_lookup_and_lock_result(task_id)), count)

    def loaded(self, task_id: int, count: int) -> list[bool]:
        fd = self.adapter.get_load_event_fd()
        return bits(_await(fd, lambda: self.adapter.query_load_result(task_id)), count)


def _await(fd: int, poll: Any) -> Any:
    """Return the first result that is not None; asks only after the descriptor was readable."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    deadline = time.monotonic() + WAIT_SECONDS
    while (result := poll()) is None:
        left = deadline - time.monotonic()
        assert left > 0, "the task did not end"
        if poller.poll(left * 1000):
            consume_fd(fd)
    return result
