"""The operations that ``DeviceOps.bind_native`` puts in the place of LMCache's torch baseline.

``bind_native`` takes every public function and class of this module: there are only the two that it should take. Their
names, signatures and annotations are those of the baseline; that ``Tensor`` is among the annotations of
``lmcache_objects_ptrs`` makes LMCache pass tensors instead of pointers into page-locked memory.

What the library cannot copy is left to the baseline, with the same result, and so is everything that is wrong with a
call but a block id outside the cache: the baseline may have written a part when it finds that, this module has not.
"""

from __future__ import annotations

import lmcache.lmcache_native as _lmcache_native
import torch
from lmcache.logging import init_logger as _init_logger
from lmcache.v1.platform import torch_ops as _torch_ops
from lmcache.v1.platform.ops_types import PageBufferShapeDesc as _PageBufferShapeDesc

from lmcache_hostcpu import library as _library
from lmcache_hostcpu import plan as _plan
from lmcache_hostcpu import planes as _planes

_LOGGER = _init_logger(__name__)
_LIBRARY = _library.load()
_D2H = int(_lmcache_native.TransferDirection.D2H)
_H2D = int(_lmcache_native.TransferDirection.H2D)
_reasons_told: set[str] = set()


def multi_layer_block_kv_transfer(  # noqa: PLR0917  # LMCache's signature
    paged_buffer_ptrs_tensor: torch.Tensor | list,  # type: ignore[type-arg]  # as in LMCache
    lmcache_objects_ptrs: list[int] | list[torch.Tensor],
    block_ids: torch.Tensor | list[int],
    device: torch.device | str,
    direction: _lmcache_native.TransferDirection,
    shape_desc: _PageBufferShapeDesc,
    lmcache_chunk_size: int,
    engine_kv_format: _lmcache_native.EngineKVFormat,
    skip_prefix_n_blocks: int,
) -> None:
    """Copy blocks of a paged cache to LMCache's objects (D2H) or back (H2D).

    Raises:
        IndexError: a block id is outside the cache; nothing was written.
        MemoryError: there is no memory for a copy of the block ids; nothing was written.
        TypeError, ValueError: as the baseline raises them.
    """
    try:
        _transfer(
            _plan.Request(
                paged=paged_buffer_ptrs_tensor,
                objects=lmcache_objects_ptrs,
                block_ids=block_ids,
                device=device,
                is_store=_is_store(direction),
                shape=shape_desc,
                chunk_tokens=lmcache_chunk_size,
                spec=_torch_ops._format_spec(engine_kv_format),
                skip_blocks=skip_prefix_n_blocks,
            )
        )
    except _planes.DeclinedError as reason:
        _tell(reason)
        _torch_ops.multi_layer_block_kv_transfer(
            paged_buffer_ptrs_tensor,
            lmcache_objects_ptrs,
            block_ids,
            device,
            direction,
            shape_desc,
            lmcache_chunk_size,
            engine_kv_format,
            skip_prefix_n_blocks,
        )


def lmcache_memcpy_async(  # noqa: PLR0917  # LMCache's signature
    dest: int | torch.Tensor,
    src: int | torch.Tensor,
    nbytes: int,
    direction: _lmcache_native.TransferDirection,
    host_buffer_offset: int,
    host_buffer_alignments: int,
) -> None:
    """Copy ``nbytes`` bytes between two addresses or two tensors; they are there when it returns.

    Raises:
        TypeError, ValueError: as the baseline raises them; ValueError also for a null pointer.
    """
    try:
        _copy(dest, src, nbytes, direction, host_buffer_alignments)
    except _planes.DeclinedError as reason:
        _tell(reason)
        _torch_ops.lmcache_memcpy_async(dest, src, nbytes, direction, host_buffer_offset, host_buffer_alignments)


def _transfer(request: _plan.Request) -> None:
    plan = _plan.plan(request)
    for transfer in plan.transfers:
        status, position = _LIBRARY.transfer(transfer)
        if status == _library.BAD_BLOCK:
            raise IndexError(
                f"block id {plan.block_ids[position]} at position {position} of block_ids is outside the paged cache "
                f"of {plan.block_count} blocks; nothing was copied"
            )
        _require(status)


def _copy(dest: object, src: object, nbytes: int, direction: object, alignment: int) -> None:
    if alignment <= 0 or alignment & (alignment - 1) or int(direction) not in {_H2D, _D2H}:  # type: ignore[call-overload]
        raise _planes.DeclinedError("an alignment or a direction that there is not")
    if isinstance(dest, torch.Tensor) and isinstance(src, torch.Tensor):
        for one in (dest, src):
            if not _planes.check_alike([one]).is_contiguous() or one.nbytes < nbytes or nbytes % one.itemsize:
                raise _planes.DeclinedError("tensors that are not contiguous, or shorter than the copy")
        if dest.dtype is not src.dtype:
            raise _planes.DeclinedError("tensors of two types")
        dest, src = dest.data_ptr(), src.data_ptr()
    if type(dest) is not int or type(src) is not int or nbytes <= 0:
        raise _planes.DeclinedError("neither two addresses nor two tensors, or nothing to copy")
    if dest <= 0 or src <= 0:
        raise ValueError(f"lmcache_memcpy_async: {'dest' if dest <= 0 else 'src'} is a null pointer, {nbytes} bytes")
    _require(_LIBRARY.copy(dest, src, nbytes))


def _is_store(direction: object) -> bool:
    number = int(direction)  # type: ignore[call-overload]  # LMCache's enumeration comes without types
    if number not in {_H2D, _D2H}:
        raise _planes.DeclinedError("a direction that there is not")
    return bool(number == _D2H)


def _require(status: int) -> None:
    if status == _library.NO_MEMORY:
        raise MemoryError("no memory for the block ids of a KV cache transfer; nothing was copied")
    if status == _library.ALIASED:
        raise _planes.DeclinedError("source and destination overlap, or the destination overlaps itself")
    if status != _library.OK:
        raise _planes.DeclinedError("strides that do not keep the elements apart")


def _tell(reason: Exception) -> None:
    text = str(reason)
    if text not in _reasons_told and len(_reasons_told) < 32:
        _reasons_told.add(text)
        _LOGGER.info("hostcpu: a transfer is left to the torch baseline: %s", text)
