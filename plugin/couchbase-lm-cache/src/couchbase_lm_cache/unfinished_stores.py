"""Keeps what a worker had not finished to store, when it went away, out of the cache.

With engine-driven transfer over shared memory a worker reserves room in the LMCache server's L1, writes there, and
commits. LMCache 0.5.6 ends the reservations of a worker that is unregistered or reaped in between as if they had been
committed (``EngineDrivenTransferModule._release_entry``). Whatever lies in that memory becomes the chunks' content: in
L1, and from there, with checksums that are right, in Couchbase.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

# What LMCache's method must use for this to have an effect on it.
_USED = ("_pending_shm_lock", "_pending_shm_writes")
_MARK = "drops_unfinished_stores"
_changing = threading.Lock()


def drop_unfinished_stores() -> bool:
    """Let this process drop reservations that nobody can commit any more; again is harmless.

    LMCache reclaims their room once their time (``--l1-write-ttl-seconds``) is over, not before: a worker that has
    unregistered may still be copying, and one that was reaped may only have been slow. In the room of another chunk
    that would be wrong bytes again.

    Returns:
        Whether it does. A warning has told why if not.
    """
    try:
        from lmcache.v1.multiprocess.modules.engine_driven_transfer import (  # noqa: PLC0415  # may have moved
            EngineDrivenTransferModule,
        )
    except ImportError:
        return _cannot("module engine_driven_transfer")
    with _changing:
        release = getattr(EngineDrivenTransferModule, "_release_entry", None)
        if release is None:
            return _cannot("EngineDrivenTransferModule._release_entry")
        if hasattr(release, _MARK):
            return True
        used = getattr(getattr(inspect.unwrap(release), "__code__", None), "co_names", ())
        for name in _USED:
            if name not in used:
                return _cannot(f"use of {name} in EngineDrivenTransferModule._release_entry")
        EngineDrivenTransferModule._release_entry = _dropping(release)
    return True


def _cannot(what: str) -> bool:
    logger.warning(
        "This LMCache has no %s, so chunks that a worker had half written when it was unregistered or reaped cannot be "
        "kept out of the cache if it takes them for complete, as LMCache 0.5.6 does. Use 0.5.6, or start "
        '`lmcache server` with --shm-name "", which stores a chunk only when it has all of it',
        what,
    )
    return False


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

    setattr(dropping, _MARK, True)
    return dropping
