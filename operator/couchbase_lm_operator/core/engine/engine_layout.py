"""What of an engine's flags decides about the bytes in its cached objects. Pure."""

from __future__ import annotations

from dataclasses import dataclass

CUDA = "cuda"
DEFAULT_BATCHED_TOKENS = 8192
"""What vLLM computes in one step without a flag."""


@dataclass(frozen=True)
class EngineLayout:
    """Everything about an engine that changes what is stored; the defaults are plain CUDA with one rank.

    ``platform`` is ``cuda`` or ``cpu``. ``dtype`` and ``block_size`` (tokens) are the flags, None without
    one; with numbers that a person gave, ``block_size`` is required. ``separate_object_groups`` None means
    worked out: needed with recurrent states, chosen with sliding windows. ``hybrid_kv_cache`` False is
    ``--disable-hybrid-kv-cache-manager``, ``prefix_caching`` False ``--no-enable-prefix-caching``.
    ``num_speculative_layers`` 0 takes the checkpoint's own.
    ``is_whole_chunk_stored`` None is what LMCache's own transfer does: windows are cut on CUDA only;
    engine-driven transfer never cuts.
    """

    platform: str = CUDA
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    dtype: str | None = None
    block_size: int | None = None
    attention_backend: str | None = None
    separate_object_groups: bool | None = None
    hybrid_kv_cache: bool = True
    speculative_method: str | None = None
    num_speculative_layers: int = 0
    mamba_ssm_cache_dtype: str | None = None
    mamba_cache_dtype: str | None = None
    max_num_batched_tokens: int | None = None
    is_whole_chunk_stored: bool | None = None
    prefix_caching: bool = True
