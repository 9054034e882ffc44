"""Decoders that keep keys and values of heads: all tokens, a sliding window, or a mix of both. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.config_fields import MAX_HEAD_SIZE, MAX_HEADS, MAX_LAYERS, MAX_TOKENS
from couchbase_lm_operator.core.layer_cache import Heads

if TYPE_CHECKING:
    from couchbase_lm_operator.core.config_fields import ConfigFields
    from couchbase_lm_operator.core.layer_cache import Layer

Layers = tuple["Layer", ...]
FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"

_KV_HEAD_FIELDS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")


def layer_count(fields: ConfigFields) -> int:
    """Return the number of decoder layers."""
    return fields.integer("num_hidden_layers", "n_layer", "n_layers", high=MAX_LAYERS)


def attention_heads(fields: ConfigFields) -> int:
    """Return the number of query heads."""
    return fields.integer("num_attention_heads", "n_head", "n_heads", high=MAX_HEADS)


def kv_heads(fields: ConfigFields) -> int:
    """Return the number of key and value heads, the first of the names that vLLM looks for."""
    heads = attention_heads(fields)
    present = next((name for name in _KV_HEAD_FIELDS if fields.has(name)), None)
    if present is None:
        return heads
    found = fields.integer(present, high=heads)
    if heads % found:
        raise fields.invalid(f"{present} {found} does not divide the {heads} attention heads.")
    return found


def head_size(fields: ConfigFields) -> int:
    """Return the elements of one head."""
    given = fields.integer_or_none("head_dim", "hidden_size_per_head", high=MAX_HEAD_SIZE)
    if given is not None:
        return given
    heads, hidden = attention_heads(fields), fields.integer("hidden_size", "n_embd", "d_model")
    if hidden % heads:
        raise fields.invalid(
            f"hidden_size {hidden} is not a multiple of the {heads} attention heads; head_dim is missing."
        )
    return hidden // heads


def heads_of(fields: ConfigFields, window_tokens: int | None = None) -> Heads:
    """Return the cache of one ordinary attention layer."""
    size = head_size(fields)
    return Heads(kv_heads(fields), size, size, window_tokens)


def window(fields: ConfigFields) -> int:
    """Return the sliding window in tokens."""
    return fields.integer("sliding_window", high=MAX_TOKENS)


def full(fields: ConfigFields) -> Layers:
    """Every layer attends to everything, whatever else the configuration carries."""
    kinds = fields.texts_or_none("layer_types", layer_count(fields))
    if kinds is not None and set(kinds) != {FULL}:
        raise unknown_kind(fields, kinds, (FULL,))
    return ((heads_of(fields),),) * layer_count(fields)


def windowed(fields: ConfigFields) -> Layers:
    """``layer_types`` where given; else every layer slides when ``sliding_window`` is set."""
    if fields.has("layer_types"):
        return by_layer_types(fields)
    cache = heads_of(fields, window(fields) if fields.has("sliding_window") else None)
    return ((cache,),) * layer_count(fields)


def by_layer_types(fields: ConfigFields) -> Layers:
    """``layer_types`` says for each layer whether it slides."""
    return tuple((heads_of(fields, window(fields) if kind == SLIDING else None),) for kind in kinds_of(fields))


def kinds_of(fields: ConfigFields, known: tuple[str, ...] = (FULL, SLIDING)) -> tuple[str, ...]:
    """Return ``layer_types``, which must be there and of known kinds."""
    kinds = fields.texts_or_none("layer_types", layer_count(fields))
    if kinds is None:
        raise fields.invalid("layer_types is missing.")
    if not set(kinds) <= set(known):
        raise unknown_kind(fields, kinds, known)
    return kinds


def qwen(fields: ConfigFields) -> Layers:
    """A window counts only with ``use_sliding_window``, from ``max_window_layers`` on."""
    if fields.has("layer_types"):
        return by_layer_types(fields)
    layers = layer_count(fields)
    first_sliding = layers
    if fields.flag("use_sliding_window") and fields.has("sliding_window"):
        first_sliding = fields.integer_or_none("max_window_layers", low=0, high=MAX_LAYERS) or 0
    plain = (heads_of(fields),)
    if first_sliding >= layers:
        return (plain,) * layers
    if first_sliding:
        raise fields.unsupported(
            f"use_sliding_window with max_window_layers {first_sliding} mixes full and sliding-window layers without "
            "layer_types, a shape that was never compared with an engine."
        )
    return ((heads_of(fields, window(fields)),),) * layers


def falcon(fields: ConfigFields) -> Layers:
    """One KV head with ``multi_query``, except in the new architecture."""
    size = head_size(fields)
    is_single = fields.flag("multi_query") and not fields.flag("new_decoder_architecture")
    heads = 1 if is_single else kv_heads(fields)
    return ((Heads(heads, size, size),),) * layer_count(fields)


def unknown_kind(fields: ConfigFields, kinds: tuple[str, ...], known: tuple[str, ...]) -> Exception:
    """Return the refusal of ``layer_types`` with a value that this family never had."""
    new = min(set(kinds) - set(known))[:64]
    return fields.unsupported(f"layer_types has {new!r}, which this model_type never had ({', '.join(known)}).")
