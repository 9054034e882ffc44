"""The device's operations as one object: native code laid over LMCache's torch baseline."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, ClassVar

from lmcache.logging import init_logger
from lmcache.v1.platform import torch_ops
from lmcache.v1.platform.base.device_ops import DeviceOps

if TYPE_CHECKING:
    import torch

logger = init_logger(__name__)


class HostCpuDeviceOps(DeviceOps):  # type: ignore[misc]  # LMCache is not typed
    """Operations on tensors in host memory."""

    device_type: ClassVar[str] = "cpu"
    _native_bound: bool

    def ensure_native(self) -> None:
        """Bind the native operations; LMCache calls this once, when it creates the object.

        Without them everything still works, only slower, so the reason is a warning and not an error.
        """
        if self._native_bound:
            return
        try:
            from lmcache_hostcpu import native_ops
        except Exception as error:  # noqa: BLE001  # whatever is wrong with the library, LMCache has to start
            logger.warning(
                "Backend hostcpu: no native operations (%s: %s); transfers use LMCache's slower torch baseline. "
                "Install the wheel of lmcache-hostcpu-device for this machine's platform again.",
                type(error).__name__,
                error,
            )
            return
        self.bind_native(native_ops)
        self._native_bound = True
        bound = sorted(name for name in vars(self) if callable(getattr(torch_ops, name, None)))
        logger.info("Backend hostcpu: native operations bound: %s", ", ".join(bound))

    def tensor_from_ptr(
        self,
        ptr: int,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,  # noqa: ARG002  # host memory has one address space
    ) -> torch.Tensor:
        """Return a dense tensor over memory at ``ptr``, without a copy; the caller keeps the memory alive."""
        import torch

        size_bytes = math.prod(shape) * dtype.itemsize
        memory = (ctypes.c_uint8 * size_bytes).from_address(ptr)
        return torch.frombuffer(memory, dtype=dtype).view(*shape)

    def alloc_shm_pinned_ptr(self, size: int, shm_name: str = "") -> int:
        """Create the server's shared pool of ``size`` bytes and return its address.

        Raises:
            OSError: the folder of shared memory cannot hold it; says what to do.
        """
        from lmcache_hostcpu import kv_segments, unfinished_stores

        unfinished_stores.keep_out()  # only servers come here, and only those whose workers write into a pool
        try:
            return int(torch_ops.alloc_shm_pinned_ptr(size, shm_name))
        except OSError as error:
            raise kv_segments.explained(error, f"L1 pool {shm_name or '(unnamed)'}", size) from error
