"""From LMCache's memory objects to guarded buffers."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from couchbase_lm_cache.buffers import GuardedBuffer
from couchbase_lm_cache.observation import ObjectLayout
from couchbase_lm_cache.sharding import layout_hash

if TYPE_CHECKING:
    import torch
    from lmcache.v1.memory_management import MemoryObj

logger = logging.getLogger(__name__)


class GuardedMemory(NamedTuple):
    """The memory of one object, and what its bytes are."""

    buffer: GuardedBuffer
    layout: ObjectLayout


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
    shapes = (meta.shape,) if meta.shapes is None else tuple(meta.shapes)
    dtypes = (meta.dtype,) if meta.dtypes is None else tuple(meta.dtypes)
    buffer = GuardedBuffer(view)
    return GuardedMemory(buffer, _layout(buffer.size_bytes, shapes, dtypes))


# Of many objects, few layouts: working one out takes as long as loading 64 KiB.
@functools.lru_cache(maxsize=1024)
def _layout(size_bytes: int, shapes: tuple[torch.Size, ...], dtypes: tuple[torch.dtype, ...]) -> ObjectLayout:
    plain_shapes = tuple(tuple(map(int, shape)) for shape in shapes)
    names = tuple(map(str, dtypes))
    return ObjectLayout(size_bytes, plain_shapes, names, layout_hash(plain_shapes, names))
