"""CUDA's attention backends with kernels taken out: what is left decides block sizes and page layouts."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm.v1.attention.backend import AttentionImpl, MLAAttentionImpl
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
from vllm.v1.attention.backends.mla.flashmla import FlashMLABackend
from vllm.v1.attention.backends.mla.flashmla_sparse import FlashMLASparseBackend


class _NoAttention(AttentionImpl):
    def __init__(self, *arguments: Any, **_more: Any) -> None:
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = arguments[:4]
        self.kv_cache_dtype = arguments[6]

    def forward(self, *_arguments: Any, **_more: Any) -> Any:
        raise NotImplementedError


class _NoLatentAttention(MLAAttentionImpl):
    def __init__(self, *, num_heads: int, head_size: int, scale: float, kv_cache_dtype: str, **_more: Any) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale
        self.kv_cache_dtype = kv_cache_dtype

    def forward_mqa(self, *_arguments: Any, **_more: Any) -> Any:
        raise NotImplementedError


class _NoSparseAttention(_NoLatentAttention):
    is_sparse: ClassVar[bool] = True
    supports_dense_mha_prefill = False


class FlashAttention(FlashAttentionBackend):
    """Blocks of 16, or multiples."""

    @staticmethod
    def get_impl_cls() -> type[_NoAttention]:
        return _NoAttention


class FlashMla(FlashMLABackend):
    """Blocks of 64."""

    @staticmethod
    def get_impl_cls() -> type[_NoLatentAttention]:
        return _NoLatentAttention


class SparseFlashMla(FlashMLASparseBackend):
    """Blocks of 64 for latent attention with an indexer."""

    @staticmethod
    def get_impl_cls() -> type[_NoSparseAttention]:
        return _NoSparseAttention
