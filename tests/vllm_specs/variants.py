"""Shapes beyond the library's defaults, for what each family's numbers depend on. Standard library only."""

from __future__ import annotations

from typing import Any

from tests.vllm_specs.cases import Case

_HALF_SLIDING = ["sliding_attention", "full_attention"]
_STATES = {"mamba_ssm_cache_dtype": "float32"}


def _case(model_type: str, chunks: tuple[int, ...] = (), engine: dict[str, Any] | None = None, **changes: Any) -> Case:
    return Case(model_type, changes, engine or {}, chunks)


VARIANTS = (
    # heads, with and without a size of their own
    _case("llama", num_key_value_heads=8, num_hidden_layers=5),
    _case("llama", head_dim=96, num_key_value_heads=2),
    _case("llama", engine={"tensor_parallel_size": 8}, num_key_value_heads=2),
    _case("llama", engine={"block_size": 64}, num_key_value_heads=8),
    _case("llama", engine={"dtype": "float32"}, num_key_value_heads=8),
    _case("qwen3", num_key_value_heads=4, head_dim=64),
    _case("falcon", multi_query=False, num_attention_heads=8, hidden_size=512),
    _case("falcon", new_decoder_architecture=True, num_kv_heads=8, num_attention_heads=64, hidden_size=4096),
    # windows: all layers, some, narrower than a chunk, and not a multiple of the block
    _case("mistral", sliding_window=None),
    _case("mistral", (16, 32, 64, 128, 256), sliding_window=40),
    _case("mistral", (512,), engine={"hybrid_kv_cache": False}, sliding_window=128),
    _case("qwen2", use_sliding_window=True, max_window_layers=0, sliding_window=2048),
    _case("phi3", sliding_window=2047),
    _case("gemma2", (128,), sliding_window=64, num_hidden_layers=7),
    _case("gemma3_text", (16, 48, 64), sliding_window=40),
    _case("gemma3_text", (512,), engine={"hybrid_kv_cache": False}, sliding_window=512),
    _case("gemma3_text", num_hidden_layers=4, layer_types=_HALF_SLIDING * 2, sliding_window=512),
    _case("gemma4_text", num_hidden_layers=4, layer_types=_HALF_SLIDING * 2, num_kv_shared_layers=2),
    _case("gemma4_text", engine={"tensor_parallel_size": 4}, num_global_key_value_heads=2, attention_k_eq_v=True),
    _case("gemma4_text", num_global_key_value_heads=2, attention_k_eq_v=True, global_head_dim=256),
    _case("gpt_oss", (64, 96, 128), engine={"tensor_parallel_size": 2}, num_hidden_layers=6),
    _case("cohere2", (8192,), sliding_window=1024),
    _case("olmo3", num_key_value_heads=8, sliding_window=256),
    _case("llama4_text", engine={"hybrid_kv_cache": False}, num_hidden_layers=8),
    _case("mimo_v2_flash", engine={"tensor_parallel_size": 4}),
    # latent attention
    _case("deepseek_v3", kv_lora_rank=256, qk_rope_head_dim=32, num_hidden_layers=6),
    _case("deepseek_v3", engine={"tensor_parallel_size": 8, "kv_cache_dtype": "fp8"}),
    _case("deepseek_v32", engine={"tensor_parallel_size": 4}, index_head_dim=64, num_hidden_layers=6),
    _case("longcat_flash", num_layers=3, num_hidden_layers=6),
    # states: heads, sizes, types, and how many layers have them
    _case("qwen3_next", linear_num_value_heads=16, linear_num_key_heads=8, linear_conv_kernel_dim=5),
    _case("qwen3_next", engine=_STATES, num_key_value_heads=4, head_dim=128),
    _case("qwen3_next", engine={"tensor_parallel_size": 4}, mamba_ssm_dtype="float32"),
    _case("qwen3_5_text", engine={"kv_cache_dtype": "fp8", "tensor_parallel_size": 2}, mamba_ssm_dtype="float32"),
    _case("qwen3_5_text", linear_value_head_dim=64, linear_key_head_dim=64),
    _case("qwen3_5_text", (272, 1024, 2720)),
    _case("granitemoehybrid", engine={"tensor_parallel_size": 2}, mamba_n_heads=64, mamba_n_groups=2),
    _case("granitemoehybrid", engine={"mamba_cache_dtype": "float32"}),
    _case("jamba", mamba_d_state=32, mamba_d_conv=5, attn_layer_period=4, attn_layer_offset=1),
    _case("jamba", engine={"tensor_parallel_size": 2, "mamba_ssm_cache_dtype": "float32"}),
    _case("kimi_linear", engine={"tensor_parallel_size": 2}),
    _case("lfm2_moe", conv_L_cache=4, num_key_value_heads=4),
    _case("nemotron_h", engine={"tensor_parallel_size": 2}, mamba_num_heads=64, n_groups=4),
    _case("nemotron_h", engine={"mamba_ssm_cache_dtype": "bfloat16"}, ssm_state_size=256),
)
