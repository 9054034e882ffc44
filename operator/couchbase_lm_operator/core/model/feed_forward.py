"""Weights that one token passes in the feed-forward part of each layer, from a model's config.json. Pure.

A gated network (SwiGLU, GeGLU) has three matrices of hidden x intermediate, a plain one two. Of a mixture of
experts only the chosen and the shared ones count, and the router. Fields are those of Hugging Face
configurations; a field that several families name differently is looked up under all its names.
"""

from __future__ import annotations

from typing import Any

from couchbase_lm_operator.core.model.config_numbers import first_count

Config = dict[str, Any]

_EXPERT_COUNT = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "experts_per_token", "top_k_experts", "num_experts_per_token", "moe_k")
_DENSE_WIDTH = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
# plain networks of two matrices; everything else that is served today is gated
_PLAIN = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "nemotron", "nemotron_h", "opt", "phi", "starcoder2"}
)


def feed_forward_weights(config: Config, layer: int, hidden: int) -> int:
    """Return the weights that a token passes in the feed-forward part of ``layer``, counted from 0.

    Raises:
        UnknownNumberError: the configuration does not tell.
    """
    if not _has_experts(config, layer):
        return matrices(config) * hidden * _dense_width(config, layer, hidden)
    experts = first_count(config, _EXPERT_COUNT)
    width = first_count(config, ("moe_intermediate_size", *_DENSE_WIDTH))
    chosen = first_count(config, _EXPERTS_PER_TOKEN) * width
    return hidden * (matrices(config) * (chosen + _always_width(config, layer, width, hidden)) + experts)


def matrices(config: Config) -> int:
    """Return how many matrices of hidden x intermediate one feed-forward network has."""
    return 2 if _model_type(config) in _PLAIN else 3


def _dense_width(config: Config, layer: int, hidden: int) -> int:
    width = config.get("intermediate_size")
    if isinstance(width, list):
        return first_count({"intermediate_size": width[layer] if layer < len(width) else None}, _DENSE_WIDTH)
    if _model_type(config) == "llama4_text":
        return first_count(config, ("intermediate_size_mlp", "intermediate_size"))
    if _model_type(config) == "granitemoehybrid":
        return first_count(config, ("shared_intermediate_size",))
    # GPT-2 and Falcon leave the usual width of four times the hidden size out
    return first_count(config, _DENSE_WIDTH, default=4 * hidden if _model_type(config) in _PLAIN else None)


def _always_width(config: Config, layer: int, expert_width: int, hidden: int) -> int:
    """Return the width of what every token passes beside the chosen experts."""
    if _model_type(config) == "llama4_text":
        return expert_width
    if config.get("enable_moe_block"):
        return _dense_width(config, layer, hidden)
    for name in _SHARED_WIDTH:
        if config.get(name) is not None:
            return first_count(config, (name,), least=0)
    return (
        first_count(config, ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"), least=0, default=0)
        * expert_width
    )


def _has_experts(config: Config, layer: int) -> bool:
    """Say whether a layer is a mixture of experts, by the rules of the families that mix both kinds."""
    if first_count(config, _EXPERT_COUNT, least=0, default=0) <= 1:
        return False
    for name, dense in (("mlp_layer_types", "dense"), ("moe_layer_freq", 0)):
        listed = config.get(name)
        if isinstance(listed, list):
            return layer < len(listed) and listed[layer] != dense
    if layer < first_count(config, ("first_k_dense_replace",), least=0, default=0):
        return False
    dense_layers = config.get("mlp_only_layers")
    if isinstance(dense_layers, list) and layer in dense_layers:
        return False
    step = first_count(config, ("decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period"), default=1)
    offset = first_count(config, ("expert_layer_offset",), least=0, default=step - 1)
    return layer % step == offset % step


def _model_type(config: Config) -> str:
    return str(config.get("model_type", ""))
