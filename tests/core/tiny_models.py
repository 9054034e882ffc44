"""config.json of small models, one of each way to cache layers; the sizes of real runs are known for most."""

from __future__ import annotations

from typing import Any

DENSE: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
SLIDING: dict[str, Any] = {
    **DENSE,
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 6,
    "sliding_window": 64,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
}
"""Five layers with a window of 64 tokens and one without."""
ALL_SLIDING: dict[str, Any] = {
    **DENSE,
    "model_type": "mistral",
    "architectures": ["MistralForCausalLM"],
    "sliding_window": 128,
}
"""Windows of 128 tokens in all layers."""
CHUNKED_LOCAL: dict[str, Any] = {
    **DENSE,
    "model_type": "llama4_text",
    "architectures": ["Llama4ForCausalLM"],
    "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
    "attention_chunk_size": 128,
}
"""Three layers that attend within stretches of 128 tokens, and one to everything."""
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
"""Latent attention, with one layer more for multi-token prediction."""
SPARSE: dict[str, Any] = {
    **LATENT,
    "model_type": "deepseek_v32",
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_topk": 64,
    "index_head_dim": 128,
    "index_n_heads": 4,
}
"""Latent attention with an indexer."""
RECURRENT: dict[str, Any] = {
    **DENSE,
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 96,
    "full_attention_interval": 4,
}
"""Three layers with recurrent states to one of attention."""
