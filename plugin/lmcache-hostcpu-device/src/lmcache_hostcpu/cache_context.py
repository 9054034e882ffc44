"""A worker's KV cache as the server sees it."""

from __future__ import annotations

from typing import Any

from lmcache.v1.platform.devices.cpu import shm
from lmcache.v1.platform.devices.cpu.cache_context import CPUCacheContext

from lmcache_hostcpu import kv_segments

_owners = kv_segments.OwnerWatch()


class HostCpuCacheContext(CPUCacheContext):  # type: ignore[misc]  # LMCache is not typed
    """LMCache's context of a cache in shared memory, which also cleans up after workers that were killed.

    Raises:
        ValueError: there is no tensor, or their layouts are not known to LMCache.
        FileNotFoundError: the memory is not there: the worker has ended, or does not share ``/dev/shm``.
    """

    def __init__(self, kv_caches: list[Any], *args: Any, **kwargs: Any) -> None:
        names = sorted({wrapper.shm_name for wrapper in kv_caches if wrapper.shm_name})
        try:
            super().__init__(kv_caches, *args, **kwargs)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                error.errno,
                f"a worker registered a KV cache in shared memory that this server does not see (first: {names[:1]}); "
                f"worker and server must mount the same /dev/shm",
            ) from error
        for name in names:
            _owners.follow(name)

    def close(self) -> None:
        """Release the worker's cache and remove what dead workers have left.

        Memory is unmapped with the last tensor over it. LMCache 0.5.6 keeps one of them for ever, and with it the whole
        memory of every worker that there ever was, also of those that have ended in order.
        """
        super().close()
        kept = getattr(shm, "_CPU_SHM_KEEP_ALIVE", {})
        for tensor in self.kv_caches_:
            kept.pop(id(tensor.untyped_storage()), None)
        kv_segments.reclaim_abandoned()
