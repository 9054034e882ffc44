"""Which attention kernels vLLM runs with when the spec leaves it open. Pure.

They are pinned by a flag: vLLM's own choice depends on the GPU and may shape the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from couchbase_lm_operator.core.model.layer_cache import Latent

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.model_shape import ModelShape


class Kernels(NamedTuple):
    """The backend by vLLM's name, and why it."""

    backend: str
    reason: str


def default_kernels(shape: ModelShape, *, is_cpu: bool, has_8_bit_cache: bool) -> Kernels:
    """Return the kernels for a model; each takes its kind of attention and its data type."""
    if is_cpu:
        # vLLM would take others on CPUs with AMX, with other blocks
        return Kernels("CPU_MLA" if is_latent(shape) else "CPU_ATTN", "runs on every CPU")
    if is_latent(shape):
        backend = "FLASHMLA_SPARSE" if is_sparse(shape) else "FLASHMLA"
        return Kernels(backend, "latent attention on Hopper and Blackwell GPUs; others take TRITON_MLA")
    if has_8_bit_cache:
        return Kernels("FLASHINFER", "takes an 8-bit KV cache on all supported GPUs")
    return Kernels("FLASH_ATTN", "pinned, as vLLM's own choice depends on the GPU and may shape the cache")


def is_latent(shape: ModelShape) -> bool:
    """Say whether attention works on one compressed vector per token."""
    return bool(_latents(shape))


def is_sparse(shape: ModelShape) -> bool:
    """Say whether an indexer picks the tokens that latent attention looks at."""
    return any(cache.is_sparse for cache in _latents(shape))


def _latents(shape: ModelShape) -> list[Latent]:
    return [cache for layer in shape.layers for cache in layer if isinstance(cache, Latent)]
