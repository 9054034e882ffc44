"""Paged caches and LMCache objects of every format, in every memory arrangement, for tests of transfers."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from lmcache import lmcache_native
from lmcache.v1.gpu_connector.kv_format.specs.registry import SPECS
from lmcache.v1.platform import torch_ops
from lmcache.v1.platform.ops_types import PageBufferShapeDesc

from lmcache_hostcpu.planes import axes_of

FORMATS = {spec.engine_kv_format.name: spec for spec in SPECS.values()}
GUARD = 192
"""Bytes before and after each allocation that nobody may touch."""


@dataclass
class Memory:
    """One allocation, filled with bytes that tell where they come from."""

    content: torch.Tensor

    @classmethod
    def filled(cls, size_bytes: int, seed: int) -> "Memory":
        generator = torch.Generator().manual_seed(seed)
        return cls(torch.randint(0, 256, (size_bytes + 2 * GUARD,), dtype=torch.uint8, generator=generator))

    def view(self, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype):
        """A tensor in it; strides in elements, the offset a multiple of the element's size."""
        typed = self.content[: len(self.content) // dtype.itemsize * dtype.itemsize].view(dtype)
        return torch.as_strided(typed, shape, strides, (GUARD + offset_bytes) // dtype.itemsize)


@dataclass(frozen=True)
class Case:
    """Everything that decides a transfer."""

    format: str
    layers: int = 2
    blocks: int = 5
    block_tokens: int = 4
    heads: int = 2
    head_elements: int = 8
    dtype: torch.dtype = torch.bfloat16
    is_store: bool = True
    blocks_per_object: int = 2
    objects: int = 2
    block_ids: tuple[int, ...] = (3, 0, 4, 1)
    skip_blocks: int = 0
    arrangement: str = "dense"
    shift_bytes: int = 0
    has_pointers: bool = False
    object_pointers: bool = False
    ids_as_tensor: bool = False
    plane_widths: tuple[int, ...] = (8, 3)

    @property
    def spec(self) -> Any:
        return FORMATS[self.format]

    @property
    def has_plane_widths(self) -> bool:
        return self.spec.is_kv_second_tuple and self.spec.is_mla

    @property
    def chunk_tokens(self) -> int:
        return self.blocks_per_object * self.block_tokens

    @property
    def used_ids(self) -> tuple[int, ...]:
        return self.block_ids[self.skip_blocks : self.objects * self.blocks_per_object]

    @property
    def moved_bytes(self) -> int:
        """Bytes that a native transfer copies: to the cache each block once."""
        if self.has_plane_widths and len(self.plane_widths) > 1 and self.arrangement == "pool" and not self.is_store:
            return 0  # planes of several widths in one allocation might overlap: the baseline writes them in its order
        blocks = len(self.used_ids) if self.is_store else len(set(self.used_ids))
        return blocks * self.block_tokens * self.layers * self.token_bytes

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in one layer."""
        if self.has_plane_widths:
            return sum(self.plane_widths) * self.dtype.itemsize
        heads = 1 if self.spec.is_mla else self.heads
        kinds = 1 if self.spec.is_mla or self.spec.is_fused_packed or self.spec.is_single_kv else 2
        return kinds * heads * self.head_elements * self.dtype.itemsize


@dataclass
class Run:
    """The memory of a case, and the arguments that pass it to a transfer."""

    case: Case
    paged: list[Memory] = field(default_factory=list)
    objects: list[Memory] = field(default_factory=list)
    _paged_tensors: list[torch.Tensor] = field(default_factory=list)
    _object_tensors: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lay_out_cache()
        self._lay_out_objects()

    @property
    def bytes(self) -> list[torch.Tensor]:
        """Every byte that belongs to the case, and those around it."""
        return [memory.content for memory in (*self.paged, *self.objects)]

    def arguments(self) -> list[Any]:
        """The arguments of ``multi_layer_block_kv_transfer``, in order."""
        case = self.case
        ids: Any = list(case.block_ids)
        return [
            self._paged_argument(),
            [one.data_ptr() for one in self._object_tensors] if case.object_pointers else list(self._object_tensors),
            torch.tensor(ids, dtype=torch.int64) if case.ids_as_tensor else ids,
            torch.device("cpu"),
            lmcache_native.TransferDirection.D2H if case.is_store else lmcache_native.TransferDirection.H2D,
            self.shape_desc(),
            case.chunk_tokens,
            case.spec.engine_kv_format,
            case.skip_blocks,
        ]

    def run_baseline(self) -> None:
        torch_ops.multi_layer_block_kv_transfer(*self.arguments())

    def shape_desc(self) -> PageBufferShapeDesc:
        case = self.case
        shape = PageBufferShapeDesc()
        shape.kv_size = 1 if case.spec.is_mla or case.spec.is_fused_packed or case.spec.is_single_kv else 2
        shape.nl, shape.nb, shape.bs = case.layers, case.blocks, case.block_tokens
        shape.nh = 1 if case.spec.is_mla else case.heads
        shape.hs = sum(case.plane_widths) if case.has_plane_widths else case.head_elements
        shape.element_size = case.dtype.itemsize
        shape.block_stride_elems = 0
        shape.dtype = case.dtype
        return shape

    def _paged_argument(self) -> Any:
        tensors, spec = self._paged_tensors, self.case.spec
        if self.case.has_pointers:
            return torch.tensor([one.data_ptr() for one in tensors], dtype=torch.int64)
        if spec.is_cross_layer:
            return tensors[0]
        if spec.is_kv_list:
            return [tensors[: self.case.layers], tensors[self.case.layers :]]
        if spec.is_kv_second_tuple:
            planes = len(tensors) // self.case.layers
            return [tuple(tensors[layer * planes : (layer + 1) * planes]) for layer in range(self.case.layers)]
        return list(tensors)

    def _tensor_shapes(self) -> list[tuple[int, ...]]:
        case, spec = self.case, self.case.spec
        sizes = {
            "NB": case.blocks,
            "NL": case.layers,
            "KV": 2,
            "BS": case.block_tokens,
            "NH": 1 if spec.is_mla else case.heads,
            "HS": case.head_elements,
            "PBS": case.blocks * case.block_tokens,
        }
        axes = axes_of(spec)
        if case.has_plane_widths:
            one = [tuple({**sizes, "HS": width}[axis] for axis in axes) for width in case.plane_widths]
            return one * case.layers
        shape = tuple(sizes[axis] for axis in axes)
        if case.format.endswith("TWO_HS"):  # the deprecated five-dimensional form of fused K and V
            shape = (*shape[:-1], 2, shape[-1] // 2)
        count = 1 if spec.is_cross_layer else case.layers * (2 if spec.is_kv_list or spec.is_kv_second_tuple else 1)
        return [shape] * count

    def _lay_out_cache(self) -> None:
        case, item = self.case, self.case.dtype.itemsize
        shapes = self._tensor_shapes()
        if case.arrangement == "pool":  # all tensors in one allocation, block by block next to each other
            sizes = [math.prod(shape[1:]) for shape in shapes]
            pool = Memory.filled(case.shift_bytes + sum(sizes) * shapes[0][0] * item, seed=1)
            self.paged.append(pool)
            for number, shape in enumerate(shapes):
                strides = (sum(sizes), *_dense(shape)[1:])
                offset = case.shift_bytes + sum(sizes[:number]) * item
                self._paged_tensors.append(pool.view(offset, shape, strides, case.dtype))
            return
        for number, shape in enumerate(shapes):
            padding = 3 if case.arrangement == "padded" else 0
            dense = _dense(shape)
            strides = tuple(step + (padding if axis == 0 else 0) for axis, step in enumerate(dense))
            span = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
            memory = Memory.filled(case.shift_bytes + span * item, seed=10 + number)
            self.paged.append(memory)
            self._paged_tensors.append(memory.view(case.shift_bytes, shape, strides, case.dtype))

    def _lay_out_objects(self) -> None:
        case = self.case
        row = case.token_bytes // case.dtype.itemsize
        if case.spec.is_mla or case.spec.is_fused_packed or case.spec.is_single_kv:
            shape: tuple[int, ...] = (case.layers, case.chunk_tokens, row)
        else:
            shape = (2, case.layers, case.chunk_tokens, row // 2)
        for number in range(case.objects):
            memory = Memory.filled(case.shift_bytes + math.prod(shape) * case.dtype.itemsize, seed=100 + number)
            self.objects.append(memory)
            self._object_tensors.append(memory.view(case.shift_bytes, shape, _dense(shape), case.dtype))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
