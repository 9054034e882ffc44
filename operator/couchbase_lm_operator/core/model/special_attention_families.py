"""Decoders whose attention layers differ among themselves: heads, head sizes, shared caches. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.model.attention_families import (
    FULL,
    SLIDING,
    attention_heads,
    dividing_heads,
    head_size,
    heads_of,
    kinds_of,
    layer_count,
    mixed,
    pattern_kinds,
    window,
)
from couchbase_lm_operator.core.model.config_fields import MAX_HEAD_SIZE, MAX_HEADS, MAX_LAYERS, MAX_TOKENS
from couchbase_lm_operator.core.model.layer_cache import Heads

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.attention_families import Layers
    from couchbase_lm_operator.core.model.config_fields import ConfigFields

_CHUNKED = "chunked_attention"


def gemma3n(fields: ConfigFields) -> Layers:
    """The last ``num_kv_shared_layers`` read the caches of earlier layers and keep nothing."""
    return _without_shared(fields, mixed(fields, pattern_kinds(fields, 5)))


def gemma4(fields: ConfigFields) -> Layers:
    """Full layers have heads of their own size, and of their own number where keys are values.

    Both planes are kept even then.
    """
    kinds = pattern_kinds(fields, 6)
    # the library makes the last layer a full one
    kinds = (*kinds[:-1], FULL)
    sliding = heads_of(fields, window(fields))
    size = fields.integer("global_head_dim", high=MAX_HEAD_SIZE)
    heads = sliding.kv_heads
    fields.knows("num_global_key_value_heads")
    if fields.flag("attention_k_eq_v") and fields.has("num_global_key_value_heads"):
        heads = dividing_heads(fields, "num_global_key_value_heads", attention_heads(fields))
    full = Heads(heads, size, size)
    _check_layers_of_their_own(fields, kinds, sliding, full)
    return _without_shared(fields, tuple((sliding if kind == SLIDING else full,) for kind in kinds))


def _check_layers_of_their_own(fields: ConfigFields, kinds: tuple[str, ...], sliding: Heads, full: Heads) -> None:
    """Refuse a ``per_layer_config`` that says of full layers something else than the fields for all of them.

    The library writes one, and vLLM takes it before ``global_head_dim``; it names what differs from the sliding layers.
    """
    if not fields.has("per_layer_config"):
        return
    per_layer = fields.raw("per_layer_config")
    both = {
        "head_dim": (full.head_size_k, sliding.head_size_k),
        "num_key_value_heads": (full.kv_heads, sliding.kv_heads),
    }
    own = {name: mine for name, (mine, theirs) in both.items() if mine != theirs}
    expected = {index: own for index, kind in enumerate(kinds) if own and kind == FULL}
    told = per_layer.items() if isinstance(per_layer, dict) else ()
    if {int(index) if str(index).isdecimal() else index: changes for index, changes in told} != expected:
        raise fields.unsupported("per_layer_config does not say the same of all full layers as global_head_dim.")


def llama4(fields: ConfigFields) -> Layers:
    """Layers with rotary positions attend within chunks; their caches are kept whole."""
    layers = layer_count(fields)
    interval = fields.integer_or_none("no_rope_layer_interval", high=MAX_LAYERS) or 4
    rope = fields.integers_or_none("no_rope_layers", 1) or tuple(
        int((each + 1) % interval != 0) for each in range(layers)
    )
    if len(rope) != layers:
        raise fields.invalid(f"no_rope_layers has {len(rope)} entries for {layers} layers.")
    is_chunked = fields.integer_or_none("attention_chunk_size", low=0, high=MAX_TOKENS)
    if fields.has("layer_types"):
        kinds = kinds_of(fields, (FULL, _CHUNKED))
        if fields.has("no_rope_layers") and kinds != tuple(_CHUNKED if each else FULL for each in rope):
            raise fields.unsupported("layer_types says something else than no_rope_layers.")
        rope = tuple(int(kind == _CHUNKED) for kind in kinds)
    plain = heads_of(fields)
    local = Heads(plain.kv_heads, plain.head_size_k, plain.head_size_v, is_chunked_local=True)
    return tuple((local if each and is_chunked else plain,) for each in rope)


def mimo_v2(fields: ConfigFields) -> Layers:
    """Sliding layers have heads and sizes of their own, and values are smaller than keys."""
    layers = layer_count(fields)
    pattern = fields.integers_or_none("hybrid_layer_pattern", 1)
    if pattern is None or len(pattern) != layers:
        raise fields.invalid(f"hybrid_layer_pattern must have one 0 or 1 for each of the {layers} layers.")
    fields.knows("layer_types", "swa_rope_theta", "swa_num_attention_heads", "add_swa_attention_sink_bias")
    # a leftover that vLLM's model does not read
    fields.knows("attention_chunk_size", "hybrid_block_size")
    size = head_size(fields)
    full = Heads(
        dividing_heads(fields, "num_key_value_heads", attention_heads(fields)),
        size,
        fields.integer_or_none("v_head_dim", high=MAX_HEAD_SIZE) or size,
    )
    swa_size = fields.integer("swa_head_dim", high=MAX_HEAD_SIZE)
    sliding = Heads(
        fields.integer("swa_num_key_value_heads", high=MAX_HEADS),
        swa_size,
        fields.integer_or_none("swa_v_head_dim", high=MAX_HEAD_SIZE) or swa_size,
        fields.integer("sliding_window_size", "sliding_window", high=MAX_TOKENS),
    )
    return tuple((sliding if each else full,) for each in pattern)


def _without_shared(fields: ConfigFields, layers: Layers) -> Layers:
    shared = fields.integer_or_none("num_kv_shared_layers", low=0, high=MAX_LAYERS) or 0
    if shared >= len(layers):
        raise fields.invalid(f"num_kv_shared_layers {shared} leaves none of the {len(layers)} layers with a cache.")
    return (*layers[: len(layers) - shared], *(((),) * shared))
