"""What LMCache asks about the host CPU: the target of the entry point ``hostcpu``.

LMCache imports this module while it builds its registry, in every process and whichever backend is chosen. Everything
that costs something is therefore imported by the property that needs it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lmcache.v1.multiprocess.transfer_mode import MPTransferMode
from lmcache.v1.platform.base.device_spec import DeviceSpec

from lmcache_hostcpu import BACKEND_NAME

if TYPE_CHECKING:
    from lmcache.v1.platform.base.cache_context import BaseCacheContext
    from lmcache.v1.platform.base.device_ops import DeviceOps
    from lmcache.v1.platform.base.event_ipc import EventIPCBackend
    from lmcache.v1.platform.base.ipc_wrapper import DeviceIPCWrapper
    from lmcache.v1.platform.base.pin_memory import PinMemoryBackend

BACKEND_VARIABLE = "LMCACHE_DEVICE_BACKEND"


class HostCpuDeviceSpec(DeviceSpec):  # type: ignore[misc]  # LMCache is not typed
    """The host CPU as a device of its own.

    It shares the device type ``cpu`` with LMCache's built-in backend and is told from it by its backend name.
    """

    _event_backend: EventIPCBackend | None = None

    @property
    def device_type(self) -> str:
        """The type of the tensors that this backend moves, as torch names it."""
        return "cpu"

    @property
    def backend_name(self) -> str:
        """The name of the entry point, and the value of ``LMCACHE_DEVICE_BACKEND`` that chooses this backend."""
        return BACKEND_NAME

    @property
    def torch_module_name(self) -> str:
        """The attribute of ``torch`` with the device's functions.

        Not ``cpu``: ``torch.cpu`` has neither ``device()`` nor ``empty_cache()``, which LMCache's server calls on
        every LMCache-driven transfer. :meth:`is_available` puts ours there.
        """
        return BACKEND_NAME

    def is_available(self) -> bool:
        """Tell whether the environment names this backend.

        Every machine has a CPU, and LMCache takes an available ``cpu`` backend before it looks for accelerators: the
        wheel would take over each GPU host on which it is installed.
        """
        if os.environ.get(BACKEND_VARIABLE, "").strip().lower() != BACKEND_NAME:
            return False
        from lmcache_hostcpu import torch_module

        torch_module.install()
        return True

    @property
    def ops_cls(self) -> type[DeviceOps]:
        """The operations: native where the library has them, else LMCache's torch baseline."""
        from lmcache_hostcpu.device_ops import HostCpuDeviceOps

        return HostCpuDeviceOps

    def is_lmcache_driven_available(self) -> bool:
        """Tell whether a server may map the caches of workers; over shared memory it always may."""
        return True

    def default_mp_transfer_mode(self) -> MPTransferMode:
        """The mode that ``auto`` means.

        Engine-driven, as for LMCache's own ``cpu``: it leaves the engine's tensors where they are. LMCache-driven
        moves them into ``/dev/shm``, which has to be large enough, and is for those who ask for it.
        """
        return MPTransferMode.ENGINE_DRIVEN

    @property
    def event_ipc_backend(self) -> EventIPCBackend:
        """The events that order LMCache-driven transfers; one for the process, because futures ask often."""
        if self._event_backend is None:
            from lmcache_hostcpu.event_ipc import HostEventIPCBackend

            self._event_backend = HostEventIPCBackend()
        return self._event_backend

    @property
    def ipc_wrapper_cls(self) -> type[DeviceIPCWrapper]:
        """How a worker hands its cache to the server: as named shared memory."""
        from lmcache_hostcpu.ipc_wrapper import HostCpuIPCWrapper

        return HostCpuIPCWrapper

    @property
    def pin_memory_backend(self) -> type[PinMemoryBackend]:
        """Locks the pool's pages in memory where the process may."""
        from lmcache_hostcpu.page_lock import PageLockBackend

        return PageLockBackend

    def create_cache_context(self, *args: Any, **kwargs: Any) -> BaseCacheContext:
        """Map a worker's cache into the server; arguments and errors as of :class:`CPUCacheContext`."""
        from lmcache_hostcpu.cache_context import HostCpuCacheContext

        return HostCpuCacheContext(*args, **kwargs)

    def get_stream_handle(self, stream: object) -> int:  # noqa: ARG002
        """Return 0: work of the host runs in the thread that asks for it, there is no native stream."""
        return 0
