"""Keeps chunks out of the cache whose worker went away before it had written them.

Over shared memory a worker reserves room in the server's pool, writes there, and commits. When a worker is
unregistered or reaped in between, LMCache 0.5.6 ends its reservations as if they had been committed
(``EngineDrivenTransferModule._release_entry``): whatever lies in that memory becomes the content of the chunks, here
and in every second tier. A worker of a tensor-parallel engine that gets SIGTERM in the middle of a store does that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lmcache.logging import init_logger

logger = init_logger(__name__)


def keep_out() -> None:
    """Let this process, a server, drop reservations that nobody can commit any more; again is harmless.

    LMCache reclaims the room once the reservation's time (``--l1-write-ttl-seconds``) is over, as for a worker that
    never comes back.
    """
    from lmcache.v1.multiprocess.modules.engine_driven_transfer import EngineDrivenTransferModule

    release = EngineDrivenTransferModule._release_entry
    if not hasattr(release, "__wrapped__"):
        EngineDrivenTransferModule._release_entry = _dropping(release)


class _WithoutWrites:
    """LMCache's module as its own method may see it: with no store in progress, whatever begins meanwhile."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._pending_shm_writes: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _dropping(release: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(release)
    def dropping(module: Any, instance_id: int, *more: Any) -> None:
        with module._pending_shm_lock:
            unfinished = [key for key in module._pending_shm_writes if key[0] == instance_id]
            chunks = sum(len(module._pending_shm_writes.pop(key)) for key in unfinished)
        if chunks:
            logger.warning(
                "Worker %d left in the middle of a store; %d unfinished chunk(s) dropped", instance_id, chunks
            )
        release(_WithoutWrites(module), instance_id, *more)

    return dropping
