"""What one layer of a model keeps for a token or for a whole context. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Heads:
    """Keys and values of attention heads. Sizes are elements of one head.

    ``window_tokens`` is the sliding window, None for attention to everything. ``is_chunked_local`` marks
    layers that attend within fixed stretches: their cache is stored whole, but in a block table of its own.
    """

    kv_heads: int
    head_size_k: int
    head_size_v: int
    window_tokens: int | None = None
    is_chunked_local: bool = False


@dataclass(frozen=True)
class Latent:
    """One compressed vector per token that all heads, and so all tensor-parallel ranks, share (MLA).

    ``is_sparse`` says that an indexer picks the tokens: other kernels, other 8-bit layouts.
    """

    elements: int
    is_sparse: bool = False


@dataclass(frozen=True)
class Indexer:
    """The keys that pick tokens for sparse attention: 8-bit elements and one 4-byte scale per 128 of them."""

    head_size: int


@dataclass(frozen=True)
class State:
    """One snapshot per context: a convolution's tail and a recurrent state. Counts are elements at TP 1.

    ``conv_rows`` x (``conv_channels`` + 2 x ``groups`` x ``group_channels``) elements of convolution, where
    groups are padded to the ranks when these do not divide them; ``recurrent_elements`` in
    ``recurrent_dtype``, None for the convolution's. ``heads`` must be divisible by the ranks.
    ``recurrent_dtype_flag`` says whether the engine's flag for it counts.
    """

    conv_rows: int
    conv_channels: int
    recurrent_elements: int
    heads: int
    groups: int = 0
    group_channels: int = 0
    recurrent_dtype: str | None = None


LayerCache = Heads | Latent | Indexer | State
Layer = tuple[LayerCache, ...]
"""Everything that one decoder layer keeps; empty for layers that keep nothing or share another's cache."""
