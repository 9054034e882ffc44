"""A small valid config.json of every model type that is sized."""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.model.model_families import FAMILIES


def plain(model_type: str, layers: int, heads: int, kv_heads: int, head_size: int, **more: Any) -> dict[str, Any]:
    """Return a decoder with ordinary attention; ``more`` are further fields."""
    return {
        "model_type": model_type,
        "hidden_size": heads * head_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
        **more,
    }


def latent(model_type: str, layers: int, **more: Any) -> dict[str, Any]:
    """Return a decoder with latent attention."""
    return plain(model_type, layers, 16, 16, 128, kv_lora_rank=512, qk_rope_head_dim=64, **more)


_SLIDING = {"sliding_window": 1024}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 64, "mamba_d_state": 64, "mamba_d_conv": 4, "mamba_n_groups": 1}
_KIMI = {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 64, "num_heads": 4, "short_conv_kernel_size": 4}
_MIMO = {"swa_num_key_value_heads": 4, "swa_head_dim": 64, "hybrid_layer_pattern": [1, 0, 1, 0]}
_NEMOTRON = {
    "hybrid_override_pattern": "M-E*",
    "mamba_num_heads": 4,
    "mamba_head_dim": 64,
    "n_groups": 1,
    "ssm_state_size": 64,
    "conv_kernel": 4,
}
_SPECIAL: dict[str, dict[str, Any]] = {
    "afmoe": _SLIDING,
    "cohere2": _SLIDING,
    "exaone4": _SLIDING,
    "falcon": {"multi_query": True, "new_decoder_architecture": False},
    "gemma2": _SLIDING,
    "gemma3_text": _SLIDING,
    "gemma3n_text": {**_SLIDING, "num_kv_shared_layers": 1},
    "gemma4_text": {**_SLIDING, "global_head_dim": 128},
    "gpt_oss": _SLIDING,
    "granitemoehybrid": {**_MAMBA2, "layer_types": ["mamba", "attention", "mamba", "mamba"], "mamba_expand": 2},
    "jamba": {
        "attn_layer_period": 4,
        "attn_layer_offset": 2,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "kimi_linear": {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "linear_attn_config": _KIMI},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "conv"], "conv_L_cache": 3},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "conv"], "conv_L_cache": 3},
    "llama4_text": {"attention_chunk_size": 8192},
    "longcat_flash": {"num_layers": 4},
    "mimo_v2_flash": {**_SLIDING, **_MIMO},
    "mistral": {"sliding_window": None},
    "nemotron_h": _NEMOTRON,
    "olmo3": _SLIDING,
}
VALID: dict[str, dict[str, Any]] = {
    model_type: plain(model_type, 4, 4, 2, 64, **_SPECIAL.get(model_type, {})) for model_type in FAMILIES
}
