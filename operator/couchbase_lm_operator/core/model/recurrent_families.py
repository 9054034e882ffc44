"""Hybrids: some layers attend, the others carry a state from token to token. Pure.

State shapes are those of vLLM's ``model_executor/layers/mamba/mamba_utils.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.model.attention_families import FULL, even_head_size, heads_of, kv_heads, layer_count
from couchbase_lm_operator.core.model.config_fields import MAX_HEAD_SIZE, MAX_HEADS, MAX_LAYERS
from couchbase_lm_operator.core.model.latent_families import latent_of
from couchbase_lm_operator.core.model.layer_cache import Heads, State

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.attention_families import Layers
    from couchbase_lm_operator.core.model.config_fields import ConfigFields
    from couchbase_lm_operator.core.model.layer_cache import LayerCache

_MAX_KERNEL = 64
_MAX_STATE = 1 << 14
_STATE_DTYPES = ("float32", "bfloat16", "float16")
_ATTENDING = frozenset({FULL, "attention"})
_RECURRENT = frozenset({"linear_attention", "mamba", "conv", "short_conv"})
_NEITHER = frozenset({"mlp", "moe"})
_IDLE_FIELDS = (
    "mamba_chunk_size",
    "mamba_conv_bias",
    "mamba_proj_bias",
    "mamba_hidden_act",
    "mamba_dt_rank",
    "mamba_dt_init_floor",
    "mamba_dt_limit",
    "mamba_dt_max",
    "mamba_dt_min",
    "mamba_inner_layernorms",
)
"""What states are computed with, not what is kept."""
_NEMOTRON_LETTERS = {"*": "attention", "M": "mamba", "-": "mlp", "E": "moe"}


def qwen3_next(fields: ConfigFields) -> Layers:
    """Gated delta nets whose states are of the model's own type: vLLM reads no other from this configuration."""
    fields.knows("mamba_ssm_dtype")
    return _gated_delta_net(fields, None)


def qwen3_5(fields: ConfigFields) -> Layers:
    """Gated delta nets whose states may be of another type."""
    return _gated_delta_net(fields, _state_dtype(fields, "mamba_ssm_dtype"))


def _gated_delta_net(fields: ConfigFields, recurrent_dtype: str | None) -> Layers:
    """Every ``full_attention_interval``-th layer attends unless ``layer_types`` says otherwise."""
    layers, interval = layer_count(fields), fields.integer_or_none("full_attention_interval", high=MAX_LAYERS) or 4
    kinds = _layer_kinds(fields, layers) or tuple(
        "linear_attention" if (position + 1) % interval else FULL for position in range(layers)
    )
    key_heads = fields.integer("linear_num_key_heads", high=MAX_HEADS)
    value_heads = fields.integer("linear_num_value_heads", high=MAX_HEADS)
    key_size = fields.integer("linear_key_head_dim", high=MAX_HEAD_SIZE)
    value_size = fields.integer("linear_value_head_dim", high=MAX_HEAD_SIZE)
    state = State(
        conv_rows=fields.integer("linear_conv_kernel_dim", low=2, high=_MAX_KERNEL) - 1,
        conv_channels=2 * key_heads * key_size + value_heads * value_size,
        recurrent_elements=value_heads * value_size * key_size,
        heads=math.gcd(key_heads, value_heads),
        recurrent_dtype=recurrent_dtype,
    )
    return _layers(fields, kinds, heads_of(fields), state)


def nemotron_h(fields: ConfigFields) -> Layers:
    """A letter for each layer: M Mamba 2, * attention, - and E neither. States are float32 by default."""
    pattern = fields.text_or_none("hybrid_override_pattern")
    stated = layer_count(fields) if fields.has("num_hidden_layers") else None
    kinds = _layer_kinds(fields, stated, neither=_NEITHER)
    if pattern is not None:
        if stated not in (None, len(pattern)):
            raise fields.invalid(f"hybrid_override_pattern has {len(pattern)} letters for {stated} layers.")
        if set(pattern) - set(_NEMOTRON_LETTERS):
            raise fields.unsupported(
                f"hybrid_override_pattern has {min(set(pattern) - set(_NEMOTRON_LETTERS))!r}, which it never had."
            )
        kinds = tuple(_NEMOTRON_LETTERS[letter] for letter in pattern)
    if not kinds:
        raise fields.invalid(f"{'hybrid_override_pattern' if stated else 'num_hidden_layers'} is missing.")
    if len(kinds) > MAX_LAYERS:
        raise fields.invalid(f"hybrid_override_pattern has {len(kinds)} layers; {MAX_LAYERS} at most.")
    fields.knows(*_IDLE_FIELDS, "mamba_expand")
    size = fields.integer_or_none("attention_head_dim", "head_dim", high=MAX_HEAD_SIZE) or even_head_size(fields)
    if (fields.integer_or_none("head_dim", high=MAX_HEAD_SIZE) or size) != size:
        raise fields.unsupported("head_dim differs from attention_head_dim.")
    heads = fields.integer("mamba_num_heads", high=MAX_HEADS)
    state = _mamba2(
        fields,
        heads=heads,
        inner=heads * fields.integer("mamba_head_dim", high=MAX_HEAD_SIZE),
        size=fields.integer("mamba_head_dim", high=MAX_HEAD_SIZE),
        groups=fields.integer("n_groups", high=MAX_HEADS),
        state_size=fields.integer("ssm_state_size", high=_MAX_STATE),
        kernel=fields.integer("conv_kernel", low=2, high=_MAX_KERNEL),
        dtype=_state_dtype(fields, "mamba_ssm_cache_dtype") or "float32",
    )
    return _layers(fields, kinds, Heads(kv_heads(fields), size, size), state)


def mamba2_hybrid(fields: ConfigFields) -> Layers:
    """Granite 4: Mamba 2 but for the layers that ``layer_types`` names."""
    kinds = _layer_kinds(fields, layer_count(fields))
    if kinds is None:
        raise fields.invalid("layer_types is missing.")
    fields.knows(*_IDLE_FIELDS)
    heads = fields.integer("mamba_n_heads", high=MAX_HEADS)
    size = even_head_size(fields)
    state = _mamba2(
        fields,
        heads=heads,
        inner=fields.integer("mamba_expand", high=_MAX_KERNEL) * fields.integer("hidden_size"),
        size=fields.integer("mamba_d_head", high=MAX_HEAD_SIZE),
        groups=fields.integer("mamba_n_groups", high=MAX_HEADS),
        state_size=fields.integer("mamba_d_state", high=_MAX_STATE),
        kernel=fields.integer("mamba_d_conv", low=2, high=_MAX_KERNEL),
        dtype=None,
    )
    return _layers(fields, kinds, Heads(kv_heads(fields), size, size), state)


def jamba(fields: ConfigFields) -> Layers:
    """Mamba 1 but for every ``attn_layer_period``-th layer from ``attn_layer_offset`` on."""
    layers, period = layer_count(fields), fields.integer("attn_layer_period", high=MAX_LAYERS)
    offset = fields.integer("attn_layer_offset", low=0, high=MAX_LAYERS)
    kinds = tuple(FULL if position % period == offset else "mamba" for position in range(layers))
    stated = _layer_kinds(fields, layers)
    if stated is not None and [kind in _ATTENDING for kind in stated] != [kind == FULL for kind in kinds]:
        raise fields.unsupported("layer_types says something else than attn_layer_period and attn_layer_offset.")
    fields.knows(*_IDLE_FIELDS)
    inner = fields.integer("mamba_expand", high=_MAX_KERNEL) * fields.integer("hidden_size")
    size = even_head_size(fields)
    state = State(
        conv_rows=fields.integer("mamba_d_conv", low=2, high=_MAX_KERNEL) - 1,
        conv_channels=inner,
        recurrent_elements=inner * fields.integer("mamba_d_state", high=_MAX_STATE),
        heads=inner,
    )
    return _layers(fields, kinds, Heads(kv_heads(fields), size, size), state)


def short_conv(fields: ConfigFields) -> Layers:
    """LFM2: a short convolution but for the layers that ``layer_types`` or ``full_attn_idxs`` names."""
    kinds = _layer_kinds(fields, layer_count(fields))
    attending = fields.integers_or_none("full_attn_idxs", layer_count(fields) - 1)
    if kinds is None:
        if attending is None:
            raise fields.invalid("layer_types is missing.")
        kinds = tuple(FULL if position in attending else "conv" for position in range(layer_count(fields)))
    channels = fields.integer("hidden_size")
    if (fields.integer_or_none("conv_dim") or channels) != channels:
        raise fields.unsupported(f"conv_dim differs from hidden_size {channels}, which was never compared.")
    fields.knows("conv_dim_out")
    state = State(
        conv_rows=fields.integer("conv_L_cache", low=2, high=_MAX_KERNEL) - 1,
        conv_channels=channels,
        recurrent_elements=0,
        heads=channels,
    )
    return _layers(fields, kinds, heads_of(fields), state)


def kimi_linear(fields: ConfigFields) -> Layers:
    """Kimi Delta Attention but for the layers, counted from 1, that attend through a latent vector."""
    layers, linear = layer_count(fields), fields.nested("linear_attn_config")
    full = linear.integers_or_none("full_attn_layers", layers) or ()
    delta = linear.integers_or_none("kda_layers", layers) or ()
    if sorted((*full, *delta)) != list(range(1, layers + 1)):
        raise fields.invalid(
            f"linear_attn_config: full_attn_layers and kda_layers must name each of the {layers} layers once."
        )
    fields.knows("layer_types")
    heads, size = linear.integer("num_heads", high=MAX_HEADS), linear.integer("head_dim", high=MAX_HEAD_SIZE)
    kernel = linear.integer("short_conv_kernel_size", low=2, high=_MAX_KERNEL)
    for name, value in (("linear_num_heads", heads), ("linear_head_dim", size), ("linear_conv_kernel_dim", kernel)):
        if fields.integer_or_none(name) not in (None, value):
            raise fields.unsupported(f"{name} says something else than linear_attn_config.")
    state = State(
        conv_rows=kernel - 1,
        conv_channels=3 * heads * size,
        recurrent_elements=heads * size * size,
        heads=heads,
        recurrent_dtype="float32",
    )
    own = latent_of(fields)
    return tuple((own if position in full else state,) for position in range(1, layers + 1))


def _mamba2(
    fields: ConfigFields,
    *,
    heads: int,
    inner: int,
    size: int,
    groups: int,
    state_size: int,
    kernel: int,
    dtype: str | None,
) -> State:
    if inner != heads * size:
        raise fields.unsupported(f"{heads} heads of {size} for states do not make up the inner size {inner}.")
    return State(
        conv_rows=kernel - 1,
        conv_channels=inner,
        recurrent_elements=inner * state_size,
        heads=heads,
        groups=groups,
        group_channels=state_size,
        recurrent_dtype=dtype,
    )


def _layer_kinds(
    fields: ConfigFields, count: int | None, neither: frozenset[str] = frozenset()
) -> tuple[str, ...] | None:
    """Return what each of ``count`` layers is, by whichever of the two names the configuration has.

    ``neither`` are kinds of layers that keep nothing.
    """
    kinds = fields.texts_or_none("layers_block_type", count)
    named = fields.texts_or_none("layer_types", count)
    kinds = named if kinds is None else kinds
    strange = set(kinds or ()) - _ATTENDING - _RECURRENT - neither
    if strange:
        raise fields.unsupported(f"layer_types has {min(strange)[:64]!r}, which this model_type never had.")
    return kinds


def _layers(fields: ConfigFields, kinds: tuple[str, ...], attention: Heads, state: State) -> Layers:
    if not _ATTENDING & set(kinds) or not _RECURRENT & set(kinds):
        raise fields.unsupported("all layers are of one kind, which was never compared for this model_type.")

    def caches(kind: str) -> tuple[LayerCache, ...]:
        if kind in _ATTENDING:
            return (attention,)
        return (state,) if kind in _RECURRENT else ()

    return tuple(caches(kind) for kind in kinds)


def _state_dtype(fields: ConfigFields, name: str) -> str | None:
    value = fields.text_or_none(name)
    if value is None or value == "auto":
        return None
    if value.removeprefix("torch.") not in _STATE_DTYPES:
        raise fields.unsupported(f"{name} is {value[:64]!r}; known are {', '.join(_STATE_DTYPES)}.")
    return value.removeprefix("torch.")
