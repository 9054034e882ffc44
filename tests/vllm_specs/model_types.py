"""Every model type that the installed transformers library and the installed vLLM both know, with a config.json.

Configurations are the library's defaults; ``CHANGES`` names what vLLM needs beyond them. Engine environment.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

# Types whose configuration is vLLM's own, or whose class has another name there: model type -> architecture.
_OTHER_ARCHITECTURES = {
    "chatglm": "ChatGLMModel",
    "deepseek_v41": "DeepseekV41ForCausalLM",
    "dots3_note": "Dots3NoteForCausalLM",
    "hyperclovax": "HyperCLOVAXForCausalLM",
    "gemma3n": "Gemma3nForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k3": "KimiK3ForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "muse_glimmer_text": "MuseGlimmerForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
    "RefinedWeb": "FalconForCausalLM",
    "RefinedWebModel": "FalconForCausalLM",
    "step3_text": "Step3TextForCausalLM",
    "step3p5": "Step3p5ForCausalLM",
}

_LFM2 = {"block_ff_dim": 12288, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256}
_GRANITE_LAYERS = ["mamba", "mamba", "attention", "mamba", "mamba", "attention"]
_LFM2_LAYERS = ["conv", "conv", "full_attention", "conv", "full_attention", "conv"]
_GEMMA_VOCABULARIES = ("vocab_size", "vocab_size_per_layer_input")
_KDA = {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7], "head_dim": 128, "num_heads": 32}
CHANGES: dict[str, dict[str, Any]] = {
    "afmoe": {"score_func": "sigmoid", "route_norm": True, "route_scale": 1.0, "n_group": 1, "topk_group": 1},
    "deepseek_v2": {"moe_intermediate_size": 1408},
    "deepseek_v32": {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64},
    "gemma3n_text": {
        "hidden_size": 256,
        "intermediate_size": 256,
        "vocab_size": 512,
        "vocab_size_per_layer_input": 512,
    },
    "gemma4": {"vision_config": {"model_type": "gemma4_vision"}},
    "glm4_moe": {"head_dim": 128},
    "glm4_moe_lite": {"first_k_dense_replace": 1},
    "granitemoehybrid": {"num_hidden_layers": 6, "layer_types": _GRANITE_LAYERS},
    "kimi_linear": {
        "num_hidden_layers": 8,
        "max_position_embeddings": 131072,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "mla_use_nope": True,
        "linear_attn_config": {**_KDA, "short_conv_kernel_size": 4},
    },
    "lfm2": {
        **_LFM2,
        "block_dim": 2560,
        "conv_dim": 2560,
        "block_ffn_dim_multiplier": 1.0,
        "num_hidden_layers": 6,
        "layer_types": _LFM2_LAYERS,
    },
    "lfm2_moe": {"num_hidden_layers": 6, "layer_types": _LFM2_LAYERS},
    "longcat_flash": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True, "zero_expert_type": "identity"},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [0, 1, 1, 1] * 12,
        "layernorm_epsilon": 1e-6,
        "sliding_window_size": 128,
        "swa_num_attention_heads": 64,
        "swa_num_key_value_heads": 8,
        "swa_head_dim": 192,
        "swa_v_head_dim": 128,
    },
    "minimax_m2": {"rotary_dim": 64, "scoring_func": "sigmoid"},
    "nemotron": {"num_key_value_heads": 8},
    "nemotron_h": {"layers_block_type": ["mamba", "moe", "mamba", "attention", "mamba", "moe", "attention", "moe"]},
    "qwen3_vl_moe": {"text_config": {"norm_topk_prob": True}},
}
"""What vLLM reads and the library's defaults leave out, and smaller sizes for what is built with real tensors."""

BUILT_ON_CPU = ("gemma3n_text",)
"""Model classes that compute while they are built."""


@cache
def architectures() -> dict[str, str]:
    """Return the architecture of each model type that vLLM can serve as a generator of text."""
    from transformers.models.auto import modeling_auto
    from vllm.model_executor.models import ModelRegistry

    known = {
        **modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        **_OTHER_ARCHITECTURES,
    }
    return {kind: name for kind, name in known.items() if name in ModelRegistry.get_supported_archs()}


def config_of(model_type: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the library's default config.json of a type, with ``CHANGES`` and ``changes`` made to it.

    Raises:
        Exception: whatever the library says of fields that it checks.
    """
    from transformers import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    # the class that vLLM reads a config.json of this type with
    library = _CONFIG_REGISTRY if model_type in _CONFIG_REGISTRY else CONFIG_MAPPING
    changes = {**CHANGES.get(model_type, {}), **changes}
    written = json.loads(json.dumps(library[model_type](**changes).to_dict(), default=str))
    written.pop("transformers_version", None)
    for name, value in changes.items():
        written[name] = {**written[name], **value} if isinstance(value, dict) and written.get(name) else value
    architecture = architectures().get(model_type, "UnknownForCausalLM")
    return {**written, "model_type": model_type, "architectures": [architecture], "dtype": "bfloat16"}
