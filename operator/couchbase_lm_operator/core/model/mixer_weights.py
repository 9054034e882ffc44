"""Weights that one token passes in the attention, or what takes its place, of a layer. Pure.

The counts are those of the projections in transformers' model classes: queries, keys, values, output and, where a
family has them, gates and low-rank steps. Convolutions, norms and biases are left out: they are below one per cent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.model.config_numbers import UnknownNumberError, first_count

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.layer_cache import Heads

Config = dict[str, Any]


def attention_weights(config: Config, hidden: int, heads: int, cache: Heads, *, is_shared: bool) -> int:
    """Return the weights of ordinary attention: queries and output, and keys and values unless they are another's."""
    size = cache.head_size_k + cache.head_size_v
    gate = heads * cache.head_size_v if _has_gate(config) else 0
    return hidden * (heads * size + (0 if is_shared else cache.kv_heads * size) + gate)


def latent_weights(config: Config, hidden: int, heads: int) -> int:
    """Return the weights of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    rope = first_count(config, ("qk_rope_head_dim",))
    head_k = first_count(config, ("qk_nope_head_dim",)) + rope
    head_v = first_count(config, ("v_head_dim",))
    latent = first_count(config, ("kv_lora_rank",))
    rank = first_count(config, ("q_lora_rank",), default=0)
    queries = rank * (hidden + heads * head_k) if rank else hidden * heads * head_k
    keys_and_values = hidden * (latent + rope) + latent * heads * (head_k - rope + head_v)
    return queries + keys_and_values + heads * head_v * hidden


def indexer_weights(config: Config, hidden: int) -> int:
    """Return the weights of what picks the tokens of sparse attention (DeepSeek-V3.2)."""
    heads, size = first_count(config, ("index_n_heads",)), first_count(config, ("index_head_dim",))
    return first_count(config, ("q_lora_rank",), default=hidden) * heads * size + hidden * (size + heads)


def recurrent_weights(config: Config, hidden: int) -> tuple[int, int]:
    """Return weights and state elements of a layer with a state, told apart by the fields that it needs.

    Raises:
        UnknownNumberError: the configuration does not tell.
    """
    for field, weights in (
        ("linear_num_key_heads", delta_rule_weights),
        ("linear_attn_config", kimi_delta_weights),
        ("mamba_num_heads", mamba2_weights),
        ("mamba_n_heads", mamba2_weights),
        ("mamba_d_state", mamba1_weights),
    ):
        if config.get(field) is not None:
            return weights(config, hidden)
    if config.get("conv_L_cache") is not None:
        return short_convolution_weights(hidden)
    raise UnknownNumberError("no field of a known kind of recurrent layer is there")


def delta_rule_weights(config: Config, hidden: int) -> tuple[int, int]:
    """Return weights and state elements of a gated DeltaNet layer (Qwen3-Next, Qwen3.5)."""
    keys = first_count(config, ("linear_num_key_heads",)) * first_count(config, ("linear_key_head_dim",))
    value_heads = first_count(config, ("linear_num_value_heads",))
    values = value_heads * first_count(config, ("linear_value_head_dim",))
    inward = hidden * (2 * keys + 2 * values + 2 * value_heads)
    return inward + values * hidden, values * first_count(config, ("linear_key_head_dim",))


def kimi_delta_weights(config: Config, hidden: int) -> tuple[int, int]:
    """Return weights and state elements of a Kimi delta attention layer: gate and decay are of low rank."""
    linear = config.get("linear_attn_config")
    fields = linear if isinstance(linear, dict) else {}
    heads, size = first_count(fields, ("num_heads",)), first_count(fields, ("head_dim",))
    width = heads * size
    low_rank = 2 * (hidden * size + size * width)
    return 4 * hidden * width + low_rank + hidden * heads, width * size


def mamba2_weights(config: Config, hidden: int) -> tuple[int, int]:
    """Return weights and state elements of a Mamba 2 layer (arXiv 2405.21060): inputs, gate, B, C and steps."""
    heads = first_count(config, ("mamba_num_heads", "mamba_n_heads"))
    inner = heads * first_count(config, ("mamba_head_dim", "mamba_d_head"))
    groups = first_count(config, ("n_groups", "mamba_n_groups"))
    state = first_count(config, ("ssm_state_size", "mamba_d_state"))
    return hidden * (2 * inner + 2 * groups * state + heads) + inner * hidden, inner * state


def mamba1_weights(config: Config, hidden: int) -> tuple[int, int]:
    """Return weights and state elements of a Mamba 1 layer (arXiv 2312.00752)."""
    inner = hidden * first_count(config, ("mamba_expand", "expand"))
    state = first_count(config, ("mamba_d_state", "state_size"))
    rank = config.get("mamba_dt_rank")
    steps = rank if isinstance(rank, int) and 0 < rank <= hidden else -(-hidden // 16)
    return hidden * 2 * inner + inner * (steps + 2 * state) + steps * inner + inner * hidden, inner * state


def short_convolution_weights(hidden: int) -> tuple[int, int]:
    """Return weights of a gated short convolution (LFM2): three inward and one outward; it keeps no matrix."""
    return 4 * hidden * hidden, 0


def _has_gate(config: Config) -> bool:
    # Qwen3-Next always gates the output of its attention and says so nowhere
    return bool(config.get("attn_output_gate")) or config.get("model_type") == "qwen3_next"
