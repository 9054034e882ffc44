"""Bytes of what caches keep, for each type that vLLM 0.32 takes as ``--kv-cache-dtype``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.model.layer_cache import Heads, Indexer, Latent
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.layer_cache import State

AUTO = "auto"
FP8 = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"})
WHOLE_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4} | dict.fromkeys(FP8, 1)
"""Types whose elements stand alone, without scales."""

_PER_HEAD_BITS = {"int8_per_token_head": 8, "fp8_per_token_head": 8, "int4_per_token_head": 4}
_PER_HEAD_SCALES_BYTES = 8
_LATENT_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
_BACKENDS_WITH_SCALES = (None, "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120")
_INDEXER_SCALE_ELEMENTS = 128
_BITS = 8


def resolved_kv_dtype(flag: str, checkpoint: str | None, dtype: str) -> str:
    """Return what the cache is made of: the flag, else what the checkpoint asks for, else the model's type."""
    return (checkpoint or dtype) if flag == AUTO else flag


def resolved_dtype(flag: str | None, checkpoint: str) -> str:
    """Return the type the model runs in: vLLM runs float32 checkpoints as bfloat16 unless told otherwise."""
    if flag is None or flag == AUTO:
        return "bfloat16" if checkpoint == "float32" else checkpoint
    return {"half": "float16", "float": "float32"}.get(flag, flag)


def heads_bytes(cache: Heads, kv_dtype: str, tensor: int, *, has_scales: bool) -> int:
    """Return the bytes of one token in one layer on one rank.

    With fewer KV heads than ranks every rank keeps a copy of one head. ``has_scales`` is False on CPU,
    which keeps none for types with a scale per token and head.

    Raises:
        RefusedError: a type whose layout for heads is not known.
    """
    heads, elements = max(1, cache.kv_heads // tensor), cache.head_size_k + cache.head_size_v
    if kv_dtype in WHOLE_ELEMENT_BYTES:
        return heads * elements * WHOLE_ELEMENT_BYTES[kv_dtype]
    if kv_dtype in _PER_HEAD_BITS:
        return heads * (elements * _PER_HEAD_BITS[kv_dtype] // _BITS + (_PER_HEAD_SCALES_BYTES if has_scales else 0))
    if kv_dtype == "nvfp4":
        return heads * (elements // 2 + elements // 16)
    raise _unknown(kv_dtype, "attention heads")


def latent_bytes(cache: Latent, kv_dtype: str, backend: str | None) -> int:
    """Return the bytes of one token in one layer, on every rank alike.

    Sparse attention in 8 bits has rows with scales on FlashMLA, which vLLM takes unless told otherwise.

    Raises:
        RefusedError: a type whose layout for latent attention is not known.
    """
    if cache.is_sparse and kv_dtype in FP8 and backend in _BACKENDS_WITH_SCALES:
        return _LATENT_BYTES["fp8_ds_mla"]
    if kv_dtype in WHOLE_ELEMENT_BYTES:
        return cache.elements * WHOLE_ELEMENT_BYTES[kv_dtype]
    if cache.is_sparse and kv_dtype in _LATENT_BYTES:
        return _LATENT_BYTES[kv_dtype]
    raise _unknown(kv_dtype, "latent attention")


def indexer_bytes(cache: Indexer) -> int:
    """Return the bytes of one token in one layer: 8-bit keys and their scales, whatever the type of the cache."""
    return cache.head_size + 4 * (cache.head_size // _INDEXER_SCALE_ELEMENTS)


def token_bytes(
    cache: Heads | Latent | Indexer, kv_dtype: str, tensor: int, backend: str | None, *, has_scales: bool
) -> int:
    """Return the bytes of one token in one cache of one rank."""
    if isinstance(cache, Heads):
        return heads_bytes(cache, kv_dtype, tensor, has_scales=has_scales)
    if isinstance(cache, Latent):
        return latent_bytes(cache, kv_dtype, backend)
    return indexer_bytes(cache)


def state_bytes(state: State, dtype: str, tensor: int, conv_flag: str | None, recurrent_flag: str | None) -> int:
    """Return the bytes of one snapshot of one layer on one rank.

    ``dtype`` is the model's; the flags are ``--mamba-cache-dtype`` and ``--mamba-ssm-cache-dtype``.

    Raises:
        RefusedError: a type that states are not kept in.
    """
    groups = state.groups if state.groups % tensor == 0 else tensor
    channels = state.conv_channels + 2 * groups * state.group_channels
    conv_dtype = dtype if conv_flag in (None, AUTO) else conv_flag
    recurrent_dtype = state.recurrent_dtype or conv_dtype
    if recurrent_flag not in (None, AUTO):
        recurrent_dtype = recurrent_flag
    conv = state.conv_rows * (channels // tensor) * _plain_bytes(conv_dtype)
    return conv + state.recurrent_elements // tensor * _plain_bytes(recurrent_dtype)


def _plain_bytes(dtype: str | None) -> int:
    if dtype not in ("bfloat16", "float16", "float32"):
        raise _unknown(str(dtype), "recurrent states")
    return WHOLE_ELEMENT_BYTES[dtype]


def _unknown(kv_dtype: str, what: str) -> RefusedError:
    return RefusedError(
        Reason.MODEL_NOT_SUPPORTED,
        f"spec.engine.kvCacheDtype {kv_dtype[:64]!r}: how it lays out {what} was never compared with an engine. Use "
        "auto or fp8, or set spec.model.override with kvBytesPerToken and blockSize.",
    )
