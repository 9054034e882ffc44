"""Hands a worker's KV cache to the server: moves it into shared memory and describes where it is.

The server maps the same pages, so an LMCache-driven transfer copies between them and LMCache's pool without the worker.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from lmcache.logging import init_logger
from lmcache.v1.gpu_connector.kv_format.contiguity import attempt_permute_to_contiguous_view
from lmcache.v1.platform.devices.cpu.shm import CpuShmTensorWrapper

from lmcache_hostcpu import kv_segments

if TYPE_CHECKING:
    from collections.abc import Callable

logger = init_logger(__name__)


class HostCpuIPCWrapper(CpuShmTensorWrapper):  # type: ignore[misc]  # LMCache is not typed
    """Describes a tensor in shared memory.

    :meth:`wrap` returns LMCache's own class: since 0.5.6 only the classes that LMCache lists may cross the wire, and
    its description of CPU memory says all that is needed. What is ours is where the memory comes from: it has its room
    from the start, a name that no other container can have taken, and goes with the worker that made it.
    """

    @classmethod
    def wrap(cls, tensor: torch.Tensor) -> CpuShmTensorWrapper:
        """Move ``tensor`` into shared memory, in place, and describe it.

        All views of one storage move together, each keeps its offset and strides. A tensor that has been moved is only
        described again, as after a restart of the server.

        Raises:
            ValueError: the tensor is not in host memory, or its memory has gaps.
            OSError: ``/dev/shm`` is too small or cannot be written to.
        """
        dense = attempt_permute_to_contiguous_view(tensor)
        if tensor.device.type != "cpu" or not dense.is_contiguous():
            raise ValueError(
                f"KV cache tensor on {tensor.device}, shape {tuple(tensor.shape)}, strides {tensor.stride()}: "
                f"backend 'hostcpu' shares dense tensors in host memory; use mp_transfer_mode engine_driven"
            )
        if tensor.numel() == 0:
            return CpuShmTensorWrapper(tensor, "")
        memory, segment = _storages.shared(tensor.untyped_storage())
        tensor.set_(memory, dense.storage_offset(), dense.shape, dense.stride())
        return CpuShmTensorWrapper(tensor, segment.name, segment_nbytes=segment.size_bytes)


@dataclass(frozen=True)
class _Segment:
    """A segment with the storage that lies in it, and the one that it replaced."""

    name: str
    size_bytes: int
    memory: Callable[[], torch.UntypedStorage | None]
    origin: Callable[[], torch.UntypedStorage | None]


class _SharedStorages:
    """The storages that this process has moved.

    A storage is known by its identity and a weak reference, because its number may be used again after its end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[int, _Segment] = {}
        self._owner: kv_segments.SegmentOwner | None = None

    def shared(self, storage: torch.UntypedStorage) -> tuple[torch.UntypedStorage, _Segment]:
        """Return what replaces ``storage`` and where it lies; moves the content when that was not done before."""
        with self._lock:
            known = self._by_id.get(id(storage))
            if known is not None and (known.origin() is storage or known.memory() is storage):
                memory = known.memory()
                if memory is not None:
                    return memory, known
            return self._move(storage)

    def _move(self, storage: torch.UntypedStorage) -> tuple[torch.UntypedStorage, _Segment]:
        size_bytes = storage.nbytes()
        name, mapping = self._living_owner().create(size_bytes)
        flat = torch.frombuffer(mapping, dtype=torch.uint8)  # holds the mapping for as long as the storage lives
        flat.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
        memory = flat.untyped_storage()
        segment = _Segment(name, size_bytes, weakref.ref(memory), weakref.ref(storage))
        self._by_id[id(storage)] = self._by_id[id(memory)] = segment
        weakref.finalize(memory, self._forget, (id(storage), id(memory)), name)
        logger.info("KV cache memory of %d bytes moved to shared memory %s", size_bytes, name)
        return memory, segment

    def _forget(self, numbers: tuple[int, int], name: str) -> None:
        kv_segments.remove(name)
        for number in numbers:
            known = self._by_id.get(number)
            if known is not None and known.name == name:
                del self._by_id[number]

    def _living_owner(self) -> kv_segments.SegmentOwner:
        if self._owner is None or self._owner.process_id != os.getpid():
            kv_segments.reclaim_abandoned()  # a predecessor may hold the room that is needed now
            self._owner = kv_segments.SegmentOwner()
        return self._owner


_storages = _SharedStorages()
