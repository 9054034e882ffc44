"""Paged caches as planes: pointers, sizes and strides of every layout that LMCache 0.5 passes.

A plane is what one layer keeps of one kind (K, V, or both in one): blocks x tokens x heads of head bytes each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from lmcache.v1.gpu_connector.kv_format.specs.base import KVFormatSpec
    from lmcache.v1.platform.ops_types import PageBufferShapeDesc

_POINTER_TYPES = (torch.int64, torch.uint64)
_TYPE_OF_SIZE = {1: torch.uint8, 2: torch.float16, 4: torch.float32}


class DeclinedError(Exception):
    """This transfer is left to LMCache's torch baseline; the text says why."""


@dataclass(frozen=True)
class Planes:
    """Planes of one geometry, all K planes before all V planes, each kind in the order of the layers.

    Attributes:
        bases: address of each plane.
        column_bytes: where in a token of an LMCache object this kind of plane begins.
        storages: addresses of the allocations that hold the planes; none if only pointers are known.
        block_stride: bytes from one block to the next; likewise the other strides.
    """

    bases: Sequence[int]
    dtype: torch.dtype
    block_count: int
    block_tokens: int
    heads: int
    head_bytes: int
    block_stride: int
    token_stride: int
    head_stride: int
    column_bytes: int = 0
    storages: frozenset[int] = frozenset()

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in one plane."""
        return self.heads * self.head_bytes


def planes_of(paged: object, spec: type[KVFormatSpec], shape: PageBufferShapeDesc, fallback: object) -> list[Planes]:
    """Describe a paged cache as LMCache passes it: tensors, or an int64 tensor of addresses.

    Args:
        paged: the ``paged_buffer_ptrs_tensor`` of the transfer.
        spec: the facts of its format.
        shape: sizes, for a cache of addresses.
        fallback: the objects of the transfer; their type tells that of a cache of addresses.

    Returns:
        One entry, or one for each plane of a layer where these differ (MLA with separate planes).

    Raises:
        DeclinedError: the cache is nothing that is copied natively.
    """
    if is_pointers(paged):
        return [_planes_at(paged, spec, shape, _pointed_type(shape, fallback))]
    axes = axes_of(spec)
    planes: list[Planes] = []
    column_bytes = 0
    for tensors in _groups(paged, spec):
        merged = [_merge_last_axes(tensor) if spec.is_fused_packed else tensor for tensor in tensors]
        planes.append(_planes_in(merged, axes, int(shape.bs), column_bytes))
        column_bytes += planes[-1].token_bytes
    return planes


def is_pointers(value: object) -> bool:
    """Whether the value is a list of addresses in a tensor."""
    return isinstance(value, torch.Tensor) and value.ndim == 1 and value.dtype in _POINTER_TYPES


def axes_of(spec: type[KVFormatSpec]) -> tuple[str, ...]:
    """Name the dimensions of one tensor of a format (LMCache's ``kv_format/specs``)."""
    inner = ("NH", "BS") if spec.is_hnd else ("BS", "NH")
    if spec.is_cross_layer:
        return ("NB", "NL", "KV", *inner, "HS")
    if spec.is_pbs_fused:
        return ("PBS", "NH", "HS")
    if spec.is_kv_list or spec.is_kv_second_tuple:
        return ("NB", "BS", "NH", "HS")
    if spec.is_mla:
        return ("NB", "BS", "HS")
    if spec.is_fused_packed or spec.is_single_kv:
        return ("NB", *inner, "HS")
    return ("KV", "NB", *inner, "HS") if spec.is_two_major else ("NB", "KV", *inner, "HS")


def check_alike(tensors: Sequence[Any]) -> torch.Tensor:
    """Return the first of tensors that differ in nothing but their address.

    Raises:
        DeclinedError: they differ, or one of them is no plain tensor in this process' memory.
    """
    if not tensors:
        raise DeclinedError("there are no tensors")
    first = tensors[0]
    if type(first) is not torch.Tensor or not first.is_cpu or first.layout is not torch.strided:
        raise DeclinedError("the first tensor is no plain tensor of the CPU")
    if first.is_complex() or first.is_quantized or first.numel() == 0:
        raise DeclinedError(f"tensors of {first.dtype} and shape {tuple(first.shape)}")
    shape, stride, dtype = first.shape, first.stride(), first.dtype
    span_bytes = (1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))) * first.itemsize
    for one in tensors:
        if type(one) is not torch.Tensor or one.dtype is not dtype or one.shape != shape or one.stride() != stride:
            raise DeclinedError("the tensors differ in type, shape or strides")
        if not one.is_cpu or one.requires_grad or one.is_neg():
            raise DeclinedError("a tensor needs gradients, is negated lazily, or is on another device")
        storage = one.untyped_storage()
        if one.data_ptr() == 0 or one.data_ptr() + span_bytes > storage.data_ptr() + storage.nbytes():
            raise DeclinedError("a tensor has no memory, or less than its shape")
    return first


def _groups(paged: object, spec: type[KVFormatSpec]) -> list[list[torch.Tensor]]:
    """Sort the tensors into groups of one geometry."""
    if spec.is_cross_layer:
        if isinstance(paged, torch.Tensor):
            return [[paged]]
        raise DeclinedError("a cache of all layers in one tensor that is no tensor")
    if not isinstance(paged, list) or not paged:
        raise DeclinedError("a cache that is no list of tensors")
    if spec.is_kv_list and len(paged) == 2 and isinstance(paged[0], list) and isinstance(paged[1], list):
        if len(paged[0]) != len(paged[1]):
            raise DeclinedError("not as many K as V tensors")
        return [paged[0] + paged[1]]
    if spec.is_kv_second_tuple:
        if not all(isinstance(layer, (list, tuple)) and len(layer) == len(paged[0]) for layer in paged):
            raise DeclinedError("the layers have different numbers of planes")
        kinds = [list(kind) for kind in zip(*paged, strict=True)]
        if not spec.is_mla and len(kinds) != 2:
            raise DeclinedError("layers that are no pairs of K and V")
        return kinds if spec.is_mla else [list(itertools.chain.from_iterable(kinds))]
    if spec.is_kv_list and len(paged) % 2:
        raise DeclinedError("a flat list of K and V tensors of odd length")
    return [paged]


def _merge_last_axes(tensor: object) -> torch.Tensor:
    """Drop the axis of two between heads and content: K and V lie next to each other."""
    if not isinstance(tensor, torch.Tensor) or tensor.dim() == 4:
        return tensor  # what is no tensor is declined with the others
    if tensor.dim() != 5 or tensor.stride(3) != tensor.shape[4] * tensor.stride(4):
        raise DeclinedError("K and V of a head do not lie next to each other")
    return tensor.view(*tensor.shape[:3], -1)


def _planes_in(tensors: list[torch.Tensor], axes: tuple[str, ...], block_tokens: int, column_bytes: int) -> Planes:
    first = check_alike(tensors)
    if first.dim() != len(axes):
        raise DeclinedError(f"tensors of {first.dim()} dimensions instead of {len(axes)} ({' '.join(axes)})")
    storages = frozenset(one.untyped_storage().data_ptr() for one in tensors)
    addresses = [one.data_ptr() for one in tensors]
    sizes = dict(zip(axes, first.shape, strict=True))
    steps = {axis: step * first.itemsize for axis, step in zip(axes, first.stride(), strict=True)}
    return _planes(
        addresses,
        sizes,
        steps,
        dtype=first.dtype,
        block_tokens=block_tokens,
        column_bytes=column_bytes,
        storages=storages,
    )


def _planes_at(pointers: Any, spec: type[KVFormatSpec], shape: PageBufferShapeDesc, dtype: torch.dtype) -> Planes:
    """Planes of dense tensors of which only the addresses are known."""
    if spec.is_kv_second_tuple or not pointers.is_cpu:
        raise DeclinedError("a cache of pairs, or of another device, by address")
    nb, nl, bs, nh, hs = (int(size) for size in (shape.nb, shape.nl, shape.bs, shape.nh, shape.hs))
    is_per_layer = not spec.is_cross_layer and not spec.is_kv_list
    if is_per_layer and int(shape.block_stride_elems or 0) not in {0, bs * nh * hs}:
        raise DeclinedError("blocks with gaps between them, by address")
    heads = 1 if spec.is_mla else nh
    all_sizes = {"NB": nb, "NL": nl, "KV": 2, "BS": bs, "NH": heads, "HS": hs, "PBS": nb * bs}
    sizes = {axis: all_sizes[axis] for axis in axes_of(spec)}
    steps: dict[str, int] = {}
    step = dtype.itemsize
    for axis in reversed(sizes):
        steps[axis] = step
        step *= sizes[axis]
    addresses: list[int] = pointers.tolist()
    wanted = 1 if spec.is_cross_layer else 2 * nl if spec.is_kv_list else nl
    if len(addresses) != wanted or min(addresses) <= 0 or min(sizes.values()) <= 0:
        raise DeclinedError(f"{len(addresses)} addresses for {nl} layers, or an address or a size that is 0")
    return _planes(addresses, sizes, steps, dtype=dtype, block_tokens=bs)


def _planes(
    addresses: list[int],
    sizes: dict[str, int],
    steps: dict[str, int],
    *,
    dtype: torch.dtype,
    block_tokens: int,
    column_bytes: int = 0,
    storages: frozenset[int] = frozenset(),
) -> Planes:
    """Put sizes and byte strides by name of the axis into one form."""
    if sizes["HS"] > 1 and steps["HS"] != dtype.itemsize:
        raise DeclinedError("the elements of a head do not lie next to each other")
    if sizes.get("BS", block_tokens) != block_tokens:
        raise DeclinedError(f"blocks of {sizes['BS']} tokens where {block_tokens} are announced")
    if "KV" in sizes:
        if sizes["KV"] != 2:
            raise DeclinedError(f"{sizes['KV']} planes instead of K and V")
        layers = range(sizes.get("NL", 1))
        addresses = [
            address + kind * steps["KV"] + layer * steps.get("NL", 0)
            for kind in (0, 1)
            for address in addresses
            for layer in layers
        ]
    token_axis = "BS" if "BS" in sizes else "PBS"
    return Planes(
        bases=addresses,
        dtype=dtype,
        block_count=sizes["NB"] if "NB" in sizes else sizes["PBS"] // block_tokens,
        block_tokens=block_tokens,
        heads=sizes.get("NH", 1),
        head_bytes=sizes["HS"] * dtype.itemsize,
        block_stride=steps["NB"] if "NB" in steps else steps["PBS"] * block_tokens,
        token_stride=steps[token_axis],
        head_stride=steps.get("NH", 0),
        column_bytes=column_bytes,
        storages=storages,
    )


def _pointed_type(shape: PageBufferShapeDesc, objects: object) -> torch.dtype:
    """Type of what addresses point to, found as the baseline finds it."""
    declared = getattr(shape, "dtype", None)
    if isinstance(declared, torch.dtype):
        return declared
    if isinstance(objects, list) and objects and isinstance(objects[0], torch.Tensor):
        return objects[0].dtype
    dtype = _TYPE_OF_SIZE.get(int(shape.element_size))
    if dtype is None:
        raise DeclinedError(f"elements of {shape.element_size} bytes, by address")
    return dtype
