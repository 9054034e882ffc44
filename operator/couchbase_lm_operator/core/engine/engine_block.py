"""How many tokens one KV block of the engine holds. Pure.

Follows vLLM 0.32: a default for each platform and attention backend; models with recurrent states get the
smallest block whose attention page is not below a state's page, which is an odd number for most of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout

CPU = "cpu"

_CPU_BLOCK_TOKENS = 128
_CPU_STEP_TOKENS = 32
_CPU_LATENT_BLOCK_TOKENS = 16
_CUDA_BLOCK_TOKENS = 16
_LATENT_FLOOR_TOKENS = 128
"""Decode kernels for latent attention need whole groups of 128 tokens in models with states."""

# backend -> (block without a flag, a block must be a multiple of)
_LATENT_BLOCKS = {
    "CUTLASS_MLA": (128, 128),
    "FLASH_ATTN_MLA": (16, 16),
    "FLASHMLA": (64, 64),
    "FLASHMLA_SPARSE": (64, 64),
    "FLASHINFER_MLA": (32, 32),
    "FLASHINFER_MLA_SPARSE": (64, 64),
    "TRITON_MLA": (16, 16),
}
_ANY_LATENT_BLOCK = (64, 64)


def engine_block_tokens(engine: EngineLayout, *, is_latent: bool) -> int:
    """Return the block before it is fitted to recurrent states.

    Raises:
        RefusedError: a block size that the platform or the backend does not take.
    """
    default, step = _default_and_step(engine, is_latent)
    if engine.block_size is None:
        return default
    if engine.block_size <= 0 or engine.block_size % step:
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.engine.blockSize {engine.block_size}: on {engine.platform} this model takes multiples of {step}.",
        )
    if engine.platform == CPU and is_latent:
        # vLLM overrides the flag
        return default
    return engine.block_size


def unified_block_tokens(
    engine: EngineLayout, block_tokens: int, state_page_bytes: int, token_bytes: int, *, is_latent: bool
) -> int:
    """Return the block of a model with recurrent states.

    ``state_page_bytes`` is the largest snapshot of one layer, ``token_bytes`` one token of one attention
    layer. Source: ``_align_hybrid_block_size`` of vLLM's ``platforms/interface.py``.
    """
    kernel = _default_and_step(engine, is_latent)[1]
    step = max(kernel, block_tokens, _LATENT_FLOOR_TOKENS if is_latent else 0)
    aligned = step * -(-state_page_bytes // (step * token_bytes))
    return max(block_tokens, kernel * -(-aligned // kernel))


def stretched_block_tokens(block_tokens: int, page_bytes: int, largest_page_bytes: int) -> int:
    """Return the block of layers with smaller pages than the largest: longer where it divides, else padded."""
    ratio, rest = divmod(largest_page_bytes, page_bytes)
    return block_tokens if rest else block_tokens * ratio


def chunk_step_tokens(blocks: set[int], context_parallel: int) -> int:
    """Return what every chunk must be a multiple of."""
    return math.lcm(*blocks) * context_parallel


def _default_and_step(engine: EngineLayout, is_latent: bool) -> tuple[int, int]:
    if engine.platform == CPU:
        if is_latent:
            return _CPU_LATENT_BLOCK_TOKENS, _CPU_LATENT_BLOCK_TOKENS
        return _CPU_BLOCK_TOKENS, _CPU_STEP_TOKENS
    if is_latent:
        return _LATENT_BLOCKS.get(engine.attention_backend or "", _ANY_LATENT_BLOCK)
    return _CUDA_BLOCK_TOKENS, _CUDA_BLOCK_TOKENS
