"""Keeps the shared pool in memory: for the host CPU, pinning means that the kernel may not swap a page out."""

from __future__ import annotations

import ctypes
import errno
import os

from lmcache.logging import init_logger
from lmcache.v1.platform.base.pin_memory import PinMemoryBackend

logger = init_logger(__name__)

# linux/mman.h: lock pages when they are first used. Locking all at once would fill a pool that is mostly empty.
_MLOCK_ONFAULT = 1
_libc = ctypes.CDLL(None, use_errno=True)


class PageLockBackend(PinMemoryBackend):  # type: ignore[misc]  # LMCache is not typed
    """Locks pages with ``mlock2``; allowed within RLIMIT_MEMLOCK or with CAP_IPC_LOCK."""

    def __init__(self) -> None:
        self._sizes_bytes: dict[int, int] = {}

    def pin_memory(self, ptr: int, size: int, flags: int = 0) -> bool:  # noqa: ARG002
        """Lock ``size`` bytes at ``ptr``; return whether the kernel agreed."""
        if _libc.mlock2(ctypes.c_void_p(ptr), ctypes.c_size_t(size), _MLOCK_ONFAULT) != 0:
            code = ctypes.get_errno()
            logger.debug("mlock2 of %d bytes: %s", size, errno.errorcode.get(code, os.strerror(code)))
            return False
        self._sizes_bytes[ptr] = size
        return True

    def unpin_memory(self, ptr: int) -> bool:
        """Unlock what :meth:`pin_memory` locked at ``ptr``; return whether there was something."""
        size = self._sizes_bytes.pop(ptr, None)
        return size is not None and _libc.munlock(ctypes.c_void_p(ptr), ctypes.c_size_t(size)) == 0

    @property
    def is_pin_supported(self) -> bool:
        """False: LMCache asks this only to choose a pool that grows, and such a pool cannot be shared memory."""
        return False
