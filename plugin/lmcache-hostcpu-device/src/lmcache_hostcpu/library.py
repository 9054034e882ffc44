"""The C library: where it is, what it exports, and how many threads it may use."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path

from lmcache_hostcpu.cores import available_cores, thread_count

ABI = 1
PATH = Path(__file__).parent / "native" / "libhostcpu.so"

OK, BAD_GEOMETRY, BAD_BLOCK, ALIASED, NO_MEMORY = range(5)


class Transfer(ctypes.Structure):
    """``struct hostcpu_transfer`` of ``native/hostcpu.h``: sizes, strides and offsets in bytes."""

    _fields_ = [
        ("to_objects", ctypes.c_int64),
        ("planes", ctypes.c_int64),
        ("plane_bases", ctypes.c_void_p),
        ("block_count", ctypes.c_int64),
        ("block_tokens", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("head_bytes", ctypes.c_int64),
        ("block_stride", ctypes.c_int64),
        ("token_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("objects", ctypes.c_int64),
        ("object_bases", ctypes.c_void_p),
        ("object_bytes", ctypes.c_int64),
        ("object_plane_stride", ctypes.c_int64),
        ("object_token_stride", ctypes.c_int64),
        ("object_column", ctypes.c_int64),
        ("ids", ctypes.c_int64),
        ("block_ids", ctypes.c_void_p),
        ("blocks_per_object", ctypes.c_int64),
        ("first_block", ctypes.c_int64),
    ]


class Library:
    """The loaded library.

    Calls release the interpreter's lock. The number of threads is settled with the first one: by then the engine has
    bound its own threads to cores.
    """

    def __init__(self, loaded: ctypes.CDLL) -> None:
        loaded.hostcpu_transfer.argtypes = (ctypes.POINTER(Transfer), ctypes.POINTER(ctypes.c_int64))
        loaded.hostcpu_transfer.restype = ctypes.c_int64
        loaded.hostcpu_copy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
        loaded.hostcpu_copy.restype = ctypes.c_int64
        loaded.hostcpu_configure.argtypes = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        loaded.hostcpu_configure.restype = None
        loaded.hostcpu_copied_bytes.restype = ctypes.c_int64
        self._loaded = loaded
        self._configured_process = 0

    def transfer(self, transfer: Transfer) -> tuple[int, int]:
        """Run a transfer; returns the status, and the position of the block id that is to blame for ``BAD_BLOCK``."""
        self._configure()
        fault = ctypes.c_int64(-1)
        status: int = self._loaded.hostcpu_transfer(transfer, fault)
        return status, fault.value

    def copy(self, destination: int, source: int, size_bytes: int) -> int:
        """Copy memory; returns the status."""
        self._configure()
        status: int = self._loaded.hostcpu_copy(destination, source, size_bytes)
        return status

    def copied_bytes(self) -> int:
        """Return how many bytes this process has copied so far."""
        copied: int = self._loaded.hostcpu_copied_bytes()
        return copied

    def _configure(self) -> None:
        if self._configured_process == os.getpid():
            return
        cores = available_cores()
        self._loaded.hostcpu_configure(thread_count(cores), (ctypes.c_int64 * len(cores))(*cores), len(cores))
        self._configured_process = os.getpid()


@lru_cache(maxsize=1)
def load() -> Library:
    """Return the library, loaded once.

    Raises:
        ImportError: it is not there, not for this machine, or not the one that belongs to this Python code.
    """
    try:
        loaded = ctypes.CDLL(str(PATH))
        abi = loaded.hostcpu_abi
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"the native library {PATH} cannot be used ({error}): install the wheel of lmcache-hostcpu-device for "
            "this machine, or build it with `python -m build --wheel`"
        ) from error
    abi.restype = ctypes.c_int64
    if abi() != ABI:
        raise ImportError(
            f"the native library {PATH} has interface {abi()}, not {ABI}: it comes from another version of "
            "lmcache-hostcpu-device; install the wheel again"
        )
    return Library(loaded)
