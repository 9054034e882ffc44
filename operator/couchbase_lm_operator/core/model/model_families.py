"""The model types that are sized, how each is read, and what says that the numbers are right. Pure.

Only types whose numbers were compared with vLLM 0.32 and LMCache 0.5.6 are listed (``tests/vllm_specs`` compares
all of them): a formula that guesses is wrong in silence. ``defaults`` are what the library
(transformers 5.19) takes for fields that a configuration leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.model import attention_families as attention
from couchbase_lm_operator.core.model import latent_families as latent
from couchbase_lm_operator.core.model import recurrent_families as recurrent
from couchbase_lm_operator.core.model import special_attention_families as special

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.attention_families import Reader

REAL_RUN = "real run"
"""Objects that a real engine and server stored had the predicted bytes."""
SPEC_LEVEL = "spec level"
"""vLLM's own model class and LMCache's own size code gave the predicted bytes, without serving."""
FORMULA = "formula"
"""Flags of the engine whose layout was never compared: only the formula stands behind the numbers."""


@dataclass(frozen=True)
class Family:
    """How one model type is read; ``evidence`` is one of the three above.

    ``read_next`` reads the checkpoint's own layers for multi-token prediction, where they were compared.
    ``ignores_kv_dtype`` marks types whose class in vLLM does not tell its attention of ``--kv-cache-dtype``.
    """

    read: Reader
    evidence: str
    defaults: dict[str, Any] = field(default_factory=dict)
    read_next: Reader | None = None
    ignores_kv_dtype: bool = False


def _kv(heads: int, size: int | None = None, **more: Any) -> dict[str, Any]:
    return {"num_key_value_heads": heads, **({} if size is None else {"head_dim": size}), **more}


_GEMMA3 = _kv(4, 256, num_attention_heads=8, sliding_window=4096, max_position_embeddings=131_072)
_GEMMA3N = _kv(
    2, 256, num_attention_heads=8, sliding_window=512, max_position_embeddings=32_768, num_kv_shared_layers=15
)
_GEMMA4 = _kv(4, 256, num_attention_heads=8, sliding_window=512, max_position_embeddings=131_072, global_head_dim=512)
_LLAMA4 = _kv(8, 128, num_attention_heads=40, attention_chunk_size=8192, max_position_embeddings=131_072)
_LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
_SPARSE = {**_LATENT, "index_head_dim": 128, "index_topk": 2048}
_GATED = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_MAMBA2 = {"mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1}

FAMILIES: dict[str, Family] = {
    # every layer attends to everything
    "cohere": Family(attention.full, SPEC_LEVEL),
    "ernie4_5": Family(attention.full, SPEC_LEVEL, _kv(2, 128)),
    "ernie4_5_moe": Family(attention.full, SPEC_LEVEL, _kv(4)),
    "falcon": Family(
        attention.falcon, REAL_RUN, {"multi_query": True, "max_position_embeddings": 2048}, ignores_kv_dtype=True
    ),
    "gemma": Family(attention.full, SPEC_LEVEL, _kv(16, 256)),
    "glm4": Family(attention.full, SPEC_LEVEL, _kv(2, 128)),
    "glm4_moe": Family(attention.full, SPEC_LEVEL, _kv(8), latent.next_heads),
    "gpt2": Family(attention.full, SPEC_LEVEL),
    "gptj": Family(attention.full, SPEC_LEVEL),
    "granite": Family(attention.full, SPEC_LEVEL),
    "llama": Family(attention.full, REAL_RUN),
    "minimax_m2": Family(attention.minimax_m2, SPEC_LEVEL, _kv(8, 128)),
    "nemotron": Family(attention.full, SPEC_LEVEL),
    "olmoe": Family(attention.full, SPEC_LEVEL),
    "opt": Family(attention.full, SPEC_LEVEL),
    "seed_oss": Family(attention.full, SPEC_LEVEL, _kv(8, 128)),
    "stablelm": Family(attention.full, SPEC_LEVEL, _kv(32)),
    # all or none of the layers slide
    "mistral": Family(attention.windowed, REAL_RUN, _kv(8, sliding_window=4096)),
    "mixtral": Family(attention.windowed, SPEC_LEVEL, _kv(8)),
    "phi3": Family(attention.windowed, SPEC_LEVEL),
    "phimoe": Family(attention.windowed, SPEC_LEVEL, _kv(8)),
    "starcoder2": Family(attention.windowed, SPEC_LEVEL, _kv(2)),
    "qwen2": Family(attention.qwen, SPEC_LEVEL, _kv(32)),
    "qwen2_moe": Family(attention.qwen, SPEC_LEVEL, _kv(16)),
    "qwen3": Family(attention.qwen, REAL_RUN, _kv(32, 128)),
    "qwen3_moe": Family(attention.qwen, SPEC_LEVEL, _kv(4)),
    "smollm3": Family(attention.qwen, SPEC_LEVEL, _kv(4)),
    # decoders of models that also see
    "qwen2_5_vl_text": Family(attention.qwen, SPEC_LEVEL, _kv(8)),
    "qwen3_vl_text": Family(attention.full, SPEC_LEVEL, _kv(32, 128)),
    "qwen3_vl_moe_text": Family(attention.full, SPEC_LEVEL, _kv(16, 128)),
    # some layers slide
    "afmoe": Family(attention.patterned(4), SPEC_LEVEL, {"head_dim": 128, "sliding_window": 1024}),
    "cohere2": Family(attention.patterned(4, window_extra=1), SPEC_LEVEL, {"sliding_window": 4096}),
    "exaone4": Family(attention.patterned(4), SPEC_LEVEL, _kv(32, sliding_window=4096)),
    "gemma2": Family(attention.patterned(2), REAL_RUN, _kv(4, 256, sliding_window=4096)),
    "gemma3_text": Family(attention.patterned(6), REAL_RUN, _GEMMA3),
    "gemma3n_text": Family(special.gemma3n, REAL_RUN, _GEMMA3N),
    "gemma4_text": Family(special.gemma4, REAL_RUN, _GEMMA4),
    "gpt_oss": Family(attention.alternating, REAL_RUN, _kv(8, 64, sliding_window=128)),
    "llama4_text": Family(special.llama4, REAL_RUN, _LLAMA4),
    "mimo_v2_flash": Family(special.mimo_v2, SPEC_LEVEL, _kv(4, 192, v_head_dim=128, sliding_window=128)),
    "olmo3": Family(attention.patterned(4), SPEC_LEVEL, {"sliding_window": 4096}),
    # latent attention
    "deepseek_v2": Family(latent.latent, REAL_RUN, _LATENT),
    "deepseek_v3": Family(latent.latent, REAL_RUN, {**_LATENT, "num_nextn_predict_layers": 1}, latent.next_latent),
    "deepseek_v32": Family(latent.sparse, SPEC_LEVEL, _SPARSE, latent.next_sparse),
    "glm4_moe_lite": Family(latent.latent, SPEC_LEVEL, _LATENT, latent.next_latent),
    "glm_moe_dsa": Family(latent.sparse, SPEC_LEVEL, _SPARSE, latent.next_sparse),
    "kimi_k2": Family(latent.latent, SPEC_LEVEL, _LATENT, latent.next_latent),
    "longcat_flash": Family(latent.latent_twice, SPEC_LEVEL, _LATENT),
    # states beside attention
    "granitemoehybrid": Family(recurrent.mamba2_hybrid, SPEC_LEVEL, _MAMBA2),
    "jamba": Family(recurrent.jamba, SPEC_LEVEL, _kv(8, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2)),
    "kimi_linear": Family(recurrent.kimi_linear, SPEC_LEVEL, _LATENT),
    "lfm2": Family(recurrent.short_conv, SPEC_LEVEL, _kv(8, conv_L_cache=3)),
    "lfm2_moe": Family(recurrent.short_conv, SPEC_LEVEL, _kv(8, conv_L_cache=3)),
    "nemotron_h": Family(recurrent.nemotron_h, SPEC_LEVEL, _kv(8)),
    "qwen3_5_moe_text": Family(recurrent.qwen3_5, SPEC_LEVEL, {**_kv(2, 256), **_GATED}),
    "qwen3_5_text": Family(recurrent.qwen3_5, SPEC_LEVEL, {**_kv(4, 256), **_GATED}),
    "qwen3_next": Family(recurrent.qwen3_next, REAL_RUN, {**_kv(2, 256), **_GATED}),
}

WRAPPERS: dict[str, frozenset[str]] = {
    "gemma3": frozenset({"gemma3_text"}),
    "gemma3n": frozenset({"gemma3n_text"}),
    "gemma4": frozenset({"gemma4_text"}),
    "kimi_k25": frozenset({"kimi_k2", "deepseek_v3"}),
    "llama4": frozenset({"llama4_text"}),
    "mistral3": frozenset({"mistral"}),
    "qwen2_5_vl": frozenset({"qwen2_5_vl_text"}),
    "qwen3_5": frozenset({"qwen3_5_text"}),
    "qwen3_5_moe": frozenset({"qwen3_5_moe_text"}),
    "qwen3_vl": frozenset({"qwen3_vl_text"}),
    "qwen3_vl_moe": frozenset({"qwen3_vl_moe_text"}),
}
"""Models with a decoder inside, and the types that decoder may have. What they see or hear keeps no cache of its own;
only text was ever compared."""
