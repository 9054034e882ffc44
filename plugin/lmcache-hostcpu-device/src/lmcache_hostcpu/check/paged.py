"""Paged KV caches of the layouts that serving engines use, for comparisons of operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from lmcache import lmcache_native

BLOCK_TOKENS = 16


@dataclass(frozen=True)
class Layout:
    """A per-layer cache: its name in LMCache, and its shape for blocks, heads and head size."""

    name: str
    shape: tuple[str, ...]
    planes: int = 2

    def dimensions(self, blocks: int, heads: int, head_size: int) -> tuple[int, ...]:
        """Return the shape of one layer's tensor."""
        sizes = {"2": 2, "NB": blocks, "BS": BLOCK_TOKENS, "NH": heads, "HS": head_size, "CS": 2 * head_size}
        return tuple(sizes[axis] for axis in self.shape)

    @property
    def engine_format(self) -> Any:
        """Return LMCache's constant for the layout."""
        return getattr(lmcache_native.EngineKVFormat, self.name)


LAYOUTS = (
    Layout("NL_X_TWO_NB_BS_NH_HS", ("2", "NB", "BS", "NH", "HS")),
    Layout("NL_X_TWO_NB_NH_BS_HS", ("2", "NB", "NH", "BS", "HS")),
    Layout("NL_X_NB_TWO_BS_NH_HS", ("NB", "2", "BS", "NH", "HS")),
    Layout("NL_X_NB_NH_BS_CS", ("NB", "NH", "BS", "CS"), planes=1),
    Layout("NL_X_NB_BS_NH_CS", ("NB", "BS", "NH", "CS"), planes=1),
    Layout("NL_X_NB_BS_HS", ("NB", "BS", "HS"), planes=1),
)


@dataclass(frozen=True)
class Cache:
    """The cache of one worker, and what the transfer operation wants to know about it."""

    layout: Layout
    layers: list[torch.Tensor]
    shape: Any
    content_size: int

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one token over all layers."""
        return int(self.layout.planes * len(self.layers) * self.content_size * self.layers[0].element_size())

    def chunk(self, tokens: int, *, seed: int | None = None) -> torch.Tensor:
        """Return LMCache's tensor for ``tokens`` tokens: random with a seed, else zeros."""
        plane = (len(self.layers), tokens, self.content_size)
        shape: tuple[int, ...] = plane if self.layout.planes == 1 else (2, *plane)
        return (
            noise(shape, self.layers[0].dtype, seed)
            if seed is not None
            else torch.zeros(shape, dtype=self.layers[0].dtype)
        )

    def clone(self, device: str) -> Cache:
        """Return a copy on ``device``."""
        return Cache(self.layout, [layer.clone().to(device) for layer in self.layers], self.shape, self.content_size)


def noise(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return random bytes as a tensor; every bit pattern may occur, also those that are no numbers."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator).view(dtype).view(shape)


def cache(
    layout: Layout, dtype: torch.dtype, *, layers: int, blocks: int, heads: int, head_size: int, seed: int
) -> Cache:
    """Create a random cache in host memory."""
    from lmcache.v1.gpu_connector.utils import get_head_size, get_num_heads, make_page_buffer_shape_desc

    dimensions = layout.dimensions(blocks, heads, head_size)
    tensors = [noise(dimensions, dtype, seed + number) for number in range(layers)]
    description = make_page_buffer_shape_desc(
        tensors,
        layout.engine_format,
        layer_idx=0,
        num_layers_in_group=layers,
        num_blocks=blocks,
        block_size=BLOCK_TOKENS,
    )
    per_token = get_num_heads(tensors, layout.engine_format) * get_head_size(tensors, layout.engine_format)
    return Cache(layout, tensors, description, int(per_token))


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors have the same bytes; a comparison of numbers takes NaN for different."""
    return bool(torch.equal(left.cpu().contiguous().view(torch.uint8), right.cpu().contiguous().view(torch.uint8)))
