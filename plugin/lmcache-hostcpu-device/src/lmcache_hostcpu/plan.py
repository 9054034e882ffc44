"""From the arguments of LMCache's block transfer to what the C library is asked to do."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from lmcache_hostcpu.library import Transfer
from lmcache_hostcpu.planes import DeclinedError, Planes, check_alike, planes_of

if TYPE_CHECKING:
    from lmcache.v1.gpu_connector.kv_format.specs.base import KVFormatSpec
    from lmcache.v1.platform.ops_types import PageBufferShapeDesc

_D2H, _H2D = 1, 0


@dataclass(frozen=True)
class Request:
    """The arguments of ``multi_layer_block_kv_transfer``, the directions and the format resolved."""

    paged: Any
    objects: Any
    block_ids: Any
    device: Any
    is_store: bool
    shape: PageBufferShapeDesc
    chunk_tokens: int
    spec: type[KVFormatSpec]
    skip_blocks: int


@dataclass(frozen=True)
class _Objects:
    """LMCache's objects: for each plane its tokens, in bytes."""

    bases: Sequence[int]
    size_bytes: int
    plane_stride: int
    token_stride: int


@dataclass(frozen=True)
class Plan:
    """Transfers, and the block ids that they share: also what their addresses point into."""

    transfers: list[Transfer]
    block_ids: array[int]
    block_count: int
    _kept: tuple[array[int], ...]


def plan(request: Request) -> Plan:
    """Describe a transfer by addresses.

    Raises:
        DeclinedError: it is left to the baseline, which also tells what is wrong with it if something is.
    """
    block_tokens = int(request.shape.bs)
    if request.chunk_tokens <= 0 or block_tokens <= 0 or request.chunk_tokens % block_tokens or request.skip_blocks < 0:
        raise DeclinedError("a chunk that is not made of whole blocks, or a negative prefix")
    if not isinstance(request.objects, list) or not request.objects:
        raise DeclinedError("no objects")
    kinds = planes_of(request.paged, request.spec, request.shape, request.objects)
    objects = _objects(request, kinds)
    block_ids = _block_ids(request.block_ids)
    blocks_per_object = request.chunk_tokens // block_tokens
    if request.skip_blocks >= min(len(block_ids), len(objects.bases) * blocks_per_object):
        raise DeclinedError("nothing to copy")
    if not request.is_store and _may_overlap(kinds):
        raise DeclinedError("planes of different width in one allocation")
    object_bases = array("Q", objects.bases)
    all_plane_bases = [array("Q", kind.bases) for kind in kinds]
    transfers = [
        Transfer(
            to_objects=request.is_store,
            planes=len(plane_bases),
            plane_bases=plane_bases.buffer_info()[0],
            block_count=kind.block_count,
            block_tokens=kind.block_tokens,
            heads=kind.heads,
            head_bytes=kind.head_bytes,
            block_stride=kind.block_stride,
            token_stride=kind.token_stride,
            head_stride=kind.head_stride,
            objects=len(object_bases),
            object_bases=object_bases.buffer_info()[0],
            object_bytes=objects.size_bytes,
            object_plane_stride=objects.plane_stride,
            object_token_stride=objects.token_stride,
            object_column=kind.column_bytes,
            ids=len(block_ids),
            block_ids=block_ids.buffer_info()[0],
            blocks_per_object=blocks_per_object,
            first_block=request.skip_blocks,
        )
        for kind, plane_bases in zip(kinds, all_plane_bases, strict=True)
    ]
    return Plan(transfers, block_ids, min(kind.block_count for kind in kinds), (object_bases, *all_plane_bases))


def _may_overlap(kinds: list[Planes]) -> bool:
    return len(kinds) > 1 and sum(len(kind.storages) for kind in kinds) > len(
        frozenset().union(*(kind.storages for kind in kinds))
    )


def _block_ids(block_ids: Any) -> array[int]:
    if isinstance(block_ids, torch.Tensor):
        if block_ids.dim() != 1 or not block_ids.is_cpu or block_ids.is_floating_point() or block_ids.is_complex():
            raise DeclinedError("block ids that are no list of whole numbers on the CPU")
        block_ids = block_ids.tolist()
    try:
        return array("q", block_ids)
    except (TypeError, OverflowError) as error:
        raise DeclinedError(f"block ids that are no list of whole numbers ({error})") from error


def _objects(request: Request, kinds: list[Planes]) -> _Objects:
    """Describe the objects, and check that they are made for these planes."""
    first = request.objects[0]
    if isinstance(first, torch.Tensor):
        objects = _tensor_objects(request, kinds)
    elif isinstance(first, int):
        objects = _pointed_objects(request, kinds)
    else:
        raise DeclinedError("objects that are neither tensors nor addresses")
    if objects.plane_stride < request.chunk_tokens * objects.token_stride:
        raise DeclinedError("objects that are shorter than a chunk")
    return objects


def _tensor_objects(request: Request, kinds: list[Planes]) -> _Objects:
    first = check_alike(request.objects)
    spec, planes = request.spec, len(kinds[0].bases)
    is_tuple_of_planes = spec.is_kv_second_tuple and spec.is_mla
    token_bytes = sum(kind.token_bytes for kind in kinds)
    if not first.is_contiguous() or (first.dtype is not kinds[0].dtype and not is_tuple_of_planes):
        raise DeclinedError("objects that are not contiguous, or of another type than the cache")
    plane_bytes, rest = divmod(first.nbytes, planes)
    if is_tuple_of_planes or spec.is_mla:
        is_fitting = first.dim() == 3 and first.shape[0] == planes
        row_bytes = first.shape[-1] * first.itemsize
        is_fitting &= row_bytes == token_bytes or (is_tuple_of_planes and row_bytes > token_bytes)
    elif spec.is_fused_packed or spec.is_single_kv:
        row_bytes = token_bytes
        is_fitting = not rest and plane_bytes % row_bytes == 0
    else:
        row_bytes = first.shape[-1] * first.itemsize
        is_fitting = first.dim() == 4 and tuple(first.shape[:2]) == (2, planes // 2) and row_bytes == token_bytes
    if not is_fitting:
        raise DeclinedError(f"objects of shape {tuple(first.shape)} for {planes} planes of {token_bytes} bytes a token")
    return _Objects([one.data_ptr() for one in request.objects], first.nbytes, plane_bytes, row_bytes)


def _pointed_objects(request: Request, kinds: list[Planes]) -> _Objects:
    """Objects by address have the size that the cache's shape and the length of a chunk give."""
    if not all(type(one) is int and one > 0 for one in request.objects):
        raise DeclinedError("an object without an address")
    spec, shape = request.spec, request.shape
    if spec.is_kv_second_tuple and spec.is_mla:
        raise DeclinedError("objects by address for planes of different width")
    planes = int(shape.nl) * (1 if spec.is_mla or spec.is_fused_packed or spec.is_single_kv else 2)
    elements = int(shape.hs) * (1 if spec.is_mla else int(shape.nh))
    token_bytes = elements * kinds[0].dtype.itemsize
    declared = getattr(shape, "dtype", None)
    if declared not in {None, kinds[0].dtype} or (planes, token_bytes) != (len(kinds[0].bases), kinds[0].token_bytes):
        raise DeclinedError("objects by address whose announced shape is not that of the cache")
    plane_bytes = request.chunk_tokens * token_bytes
    return _Objects(request.objects, planes * plane_bytes, plane_bytes, token_bytes)
