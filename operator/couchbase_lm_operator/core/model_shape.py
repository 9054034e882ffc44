"""The few numbers of a model's config.json that decide the size of its KV cache."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """A decoder as its KV cache sees it.

    ``head_size_k`` and ``head_size_v`` are elements; ``window_tokens`` is the sliding window that all
    layers share, or None; ``kv_dtype`` is the 8-bit type the checkpoint asks for, or None;
    ``override_bytes_per_token`` is set when a person gave the numbers (then layers and heads are 0).
    """

    model_type: str
    layers: int
    attention_heads: int
    kv_heads: int
    head_size_k: int
    head_size_v: int
    max_model_len: int
    dtype: str
    kv_dtype: str | None
    window_tokens: int | None
    override_bytes_per_token: int | None = None
