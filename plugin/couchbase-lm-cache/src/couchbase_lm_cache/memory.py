"""From LMCache's memory objects to guarded buffers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.sharding import layout_hash

if TYPE_CHECKING:
    from lmcache.v1.memory_management import MemoryObj

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GuardedMemory:
    """The memory of one object, and the hash of its shapes and dtypes."""

    buffer: GuardedBuffer
    layout: str


def guard(memory: MemoryObj) -> GuardedMemory | None:
    """Wrap a memory object; None for memory a CPU cannot address (GPUDirect Storage), which is logged."""
    try:
        view = memory.byte_array
    except NotImplementedError:
        logger.warning(
            "An object in %s cannot be cached in Couchbase: its memory has no address for the CPU",
            type(memory).__name__,
        )
        return None
    meta = memory.metadata
    shapes = meta.shapes if meta.shapes is not None else [meta.shape]
    dtypes = meta.dtypes if meta.dtypes is not None else [meta.dtype]
    return GuardedMemory(GuardedBuffer(view), layout_hash(shapes, map(str, dtypes)))
