"""Flags of an engine that cannot work, or whose layout was never compared, before anything is computed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.model.layer_cache import Heads, Latent, State
from couchbase_lm_operator.core.quantity import round_up
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
    from couchbase_lm_operator.core.model.model_shape import ModelShape

DEFAULT_CHUNK_TOKENS = 256
"""LMCache's own; chunks start from its next multiple of the block."""

_PLATFORMS = ("cuda", "cpu")
_MAX_RANKS = 4096
MTP_METHODS = frozenset({"mtp", "deepseek_mtp", "glm4_moe_mtp", "ernie_mtp", "qwen3_next_mtp", "mimo_mtp"})
"""Speculation with the checkpoint's own extra layers; vLLM takes the old names too."""
_CACHELESS_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})


def check(shape: ModelShape, engine: EngineLayout) -> None:
    """Refuse flags that do not fit the model or each other.

    Raises:
        RefusedError: naming the field.
    """
    if engine.platform not in _PLATFORMS:
        raise _invalid(f"Platform {engine.platform[:64]!r} is not one of {', '.join(_PLATFORMS)}.")
    sizes = {
        "tensorParallelSize": engine.tensor_parallel_size,
        "pipelineParallelSize": engine.pipeline_parallel_size,
        "decodeContextParallelSize": engine.decode_context_parallel_size,
    }
    for name, value in sizes.items():
        if not 1 <= value <= _MAX_RANKS:
            raise _invalid(f"spec.engine.{name} {value} must be from 1 to {_MAX_RANKS}.")
    if engine.block_size is not None and not 1 <= engine.block_size <= 1 << 20:
        raise _invalid(f"spec.engine.blockSize {engine.block_size} must be from 1 to {1 << 20}.")
    if shape.override_bytes_per_token is None:
        _check_parallelism(shape, engine)
        _check_context_parallelism(shape, engine)
        _check_platform(shape, engine)
        _check_speculation(shape, engine)
    elif engine.block_size is None:
        raise _invalid("spec.model.override needs blockSize beside kvBytesPerToken.")


def batched_tokens(engine: EngineLayout, block_tokens: int) -> int:
    """Return ``--max-num-batched-tokens`` of a model with states: by default every usual chunk gets a snapshot.

    Raises:
        RefusedError: the given value is below one block, which the engine refuses.
    """
    given = engine.max_num_batched_tokens
    usual = round_up(DEFAULT_CHUNK_TOKENS, block_tokens) + block_tokens - 1
    if given is None:
        return usual
    if given < block_tokens:
        raise _invalid(
            f"spec.engine.extraArgs: --max-num-batched-tokens {given} is below the KV block of {block_tokens} tokens "
            f"that this model's states need: use {usual}, or remove it."
        )
    return given


def _check_parallelism(shape: ModelShape, engine: EngineLayout) -> None:
    tensor, pipeline = engine.tensor_parallel_size, engine.pipeline_parallel_size
    caches = {cache for layer in shape.layers for cache in layer}
    kv_heads = sorted({cache.kv_heads for cache in caches if isinstance(cache, Heads)})
    state_heads = sorted({cache.heads for cache in caches if isinstance(cache, State)})
    bad = [heads for heads in kv_heads if max(heads, tensor) % min(heads, tensor)]
    if (shape.attention_heads and shape.attention_heads % tensor) or bad or any(each % tensor for each in state_heads):
        raise _invalid(
            f"spec.engine.tensorParallelSize {tensor} does not fit {shape.attention_heads} attention heads"
            + "".join(f" and {heads} KV heads" for heads in kv_heads)
            + "".join(f" and {heads} heads with states" for heads in state_heads)
            + ": it must divide the attention heads and those with states, and divide the KV heads or be a multiple of "
            "them."
        )
    if pipeline > len(shape.layers):
        raise _invalid(
            f"spec.engine.pipelineParallelSize {pipeline} is more than the model's {len(shape.layers)} layers."
        )


def _check_context_parallelism(shape: ModelShape, engine: EngineLayout) -> None:
    context = engine.decode_context_parallel_size
    if context == 1:
        return
    if engine.tensor_parallel_size % context:
        raise _invalid(
            f"spec.engine.decodeContextParallelSize {context} must divide tensorParallelSize "
            f"{engine.tensor_parallel_size}."
        )
    caches = {cache for layer in shape.layers for cache in layer}
    if any(isinstance(cache, State) or (isinstance(cache, Heads) and cache.window_tokens) for cache in caches):
        raise _unsupported(
            f"spec.engine.decodeContextParallelSize {context} beside sliding windows or states was never compared."
        )


def _check_platform(shape: ModelShape, engine: EngineLayout) -> None:
    is_sparse = any(isinstance(cache, Latent) and cache.is_sparse for layer in shape.layers for cache in layer)
    if engine.platform == "cpu" and is_sparse:
        raise RefusedError(
            Reason.MODEL_NOT_SUPPORTED,
            f"vLLM on cpu cannot run the sparse attention of {shape.model_type}: it needs an NVIDIA accelerator.",
        )
    if engine.platform == "cpu" and engine.mamba_ssm_cache_dtype not in (None, "auto", "float32"):
        raise _invalid("--mamba-ssm-cache-dtype: on cpu states are float32; whether others work depends on the host.")
    if not engine.prefix_caching and _has_states(shape):
        raise _invalid(f"The states of {shape.model_type} are only kept with prefix caching: do not disable it.")


def _check_speculation(shape: ModelShape, engine: EngineLayout) -> None:
    method = engine.speculative_method
    if method is None:
        return
    if _has_states(shape):
        raise _unsupported(f"Speculative method {method[:64]!r} widens the states of {shape.model_type}.")
    if method in _CACHELESS_METHODS:
        return
    if method not in MTP_METHODS:
        raise _unsupported(
            f"Speculative method {method[:64]!r} keeps a cache of a draft model, whose layers nobody knows here."
        )
    if not shape.speculative_layers:
        raise _invalid(f"Speculative method {method!r}: config.json has no layers for it (num_nextn_predict_layers).")


def _has_states(shape: ModelShape) -> bool:
    return any(isinstance(cache, State) for layer in shape.layers for cache in layer)


def _invalid(told: str) -> RefusedError:
    return RefusedError(Reason.INVALID_SPEC, told)


def _unsupported(told: str) -> RefusedError:
    return RefusedError(
        Reason.MODEL_NOT_SUPPORTED,
        f"{told} Set spec.model.override with kvBytesPerToken and blockSize, or do without it.",
    )
