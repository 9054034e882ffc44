"""Decoders that keep keys and values of heads: all tokens, a sliding window, or a mix of both. Pure.

Read as vLLM 0.32 reads them: ``sliding_window`` without ``layer_types`` holds for every layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.model.config_fields import MAX_HEAD_SIZE, MAX_HEADS, MAX_LAYERS, MAX_TOKENS
from couchbase_lm_operator.core.model.layer_cache import Heads

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_operator.core.model.config_fields import ConfigFields
    from couchbase_lm_operator.core.model.layer_cache import Layer

    Reader = Callable[[ConfigFields], "Layers"]

Layers = tuple["Layer", ...]
FULL = "full_attention"
SLIDING = "sliding_attention"

_KV_HEAD_FIELDS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")


def layer_count(fields: ConfigFields) -> int:
    """Return the number of decoder layers."""
    return fields.integer("num_hidden_layers", "n_layer", "n_layers", high=MAX_LAYERS)


def attention_heads(fields: ConfigFields) -> int:
    """Return the number of query heads."""
    return fields.integer("num_attention_heads", "n_head", "n_heads", "num_heads", high=MAX_HEADS)


def kv_heads(fields: ConfigFields) -> int:
    """Return the number of key and value heads, the first of the names that vLLM looks for."""
    present = next((name for name in _KV_HEAD_FIELDS if fields.has(name)), None)
    heads = attention_heads(fields)
    return heads if present is None else dividing_heads(fields, present, heads)


def dividing_heads(fields: ConfigFields, name: str, heads: int) -> int:
    """Return a number of KV heads that divides the attention heads."""
    found = fields.integer(name, high=heads)
    if heads % found:
        raise fields.invalid(f"{name} {found} does not divide the {heads} attention heads.")
    return found


def head_size(fields: ConfigFields) -> int:
    """Return the elements of one head."""
    given = fields.integer_or_none("head_dim", "hidden_size_per_head", high=MAX_HEAD_SIZE)
    return even_head_size(fields) if given is None else given


def even_head_size(fields: ConfigFields) -> int:
    """Return the hidden size shared among the heads."""
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


def window_or_none(fields: ConfigFields) -> int | None:
    """Return the sliding window in tokens; vLLM takes 0 for none."""
    return fields.integer_or_none("sliding_window", low=0, high=MAX_TOKENS) or None


def window(fields: ConfigFields) -> int:
    """Return the sliding window in tokens, which must be there."""
    if fields.raw("use_bidirectional_attention") in (True, "all"):
        raise fields.unsupported("use_bidirectional_attention changes the sliding window, which was never compared.")
    return fields.integer("sliding_window", high=MAX_TOKENS)


def full(fields: ConfigFields) -> Layers:
    """Every layer attends to everything."""
    layers = layer_count(fields)
    kinds = fields.texts_or_none("layer_types", layers)
    if kinds is not None and set(kinds) != {FULL}:
        raise unknown_kind(fields, kinds, (FULL,))
    if kinds is None and window_or_none(fields):
        raise fields.unsupported("sliding_window is set, which this model_type never had.")
    return ((heads_of(fields),),) * layers


def windowed(fields: ConfigFields) -> Layers:
    """``layer_types`` where given; else every layer slides when ``sliding_window`` is set."""
    if fields.has("layer_types"):
        return mixed(fields, kinds_of(fields))
    return ((heads_of(fields, window_or_none(fields)),),) * layer_count(fields)


def qwen(fields: ConfigFields) -> Layers:
    """A window counts only with ``use_sliding_window``, from ``max_window_layers`` on."""
    layers = layer_count(fields)
    is_sliding = fields.flag("use_sliding_window") and window_or_none(fields) is not None
    first = fields.integer_or_none("max_window_layers", low=0, high=MAX_LAYERS) or 0
    expected = tuple(SLIDING if is_sliding and position >= first else FULL for position in range(layers))
    kinds = kinds_of(fields) if fields.has("layer_types") else expected
    if kinds != expected:
        raise fields.unsupported("layer_types says something else than use_sliding_window and max_window_layers.")
    if len(set(kinds)) > 1:
        raise fields.unsupported(f"use_sliding_window with max_window_layers {first} mixes layers: vLLM refuses it.")
    return mixed(fields, kinds)


def patterned(every: int, *, window_extra: int = 0) -> Reader:
    """Return a reader for types whose layers slide but each ``every``-th, unless ``layer_types`` says otherwise.

    ``window_extra`` tokens are added to the window by vLLM's model.
    """

    def read(fields: ConfigFields) -> Layers:
        if window_or_none(fields) is None:
            return mixed(fields, (FULL,) * layer_count(fields))
        return mixed(fields, pattern_kinds(fields, every), window_extra)

    return read


def pattern_kinds(fields: ConfigFields, every: int) -> tuple[str, ...]:
    """Return ``layer_types``, or what the library makes of its absence and of an older pattern."""
    if fields.has("layer_types"):
        return kinds_of(fields)
    step = fields.integer_or_none("sliding_window_pattern", "global_attn_every_n_layers", high=MAX_LAYERS) or every
    return tuple(FULL if (position + 1) % step == 0 else SLIDING for position in range(layer_count(fields)))


def alternating(fields: ConfigFields) -> Layers:
    """Every other layer slides, the first one does; ``layer_types`` may only repeat that."""
    expected = tuple(FULL if position % 2 else SLIDING for position in range(layer_count(fields)))
    kinds = kinds_of(fields) if fields.has("layer_types") else expected
    if kinds != expected:
        raise fields.unsupported("layer_types is not every other layer, which the engine's model expects.")
    return mixed(fields, kinds)


def minimax_m2(fields: ConfigFields) -> Layers:
    """``attn_type_list`` has a 1 for each layer; the linear layers (0) of its predecessor are gone."""
    kinds = fields.integers_or_none("attn_type_list", MAX_HEADS)
    if kinds is not None and set(kinds) != {1}:
        raise fields.unsupported("attn_type_list has other entries than 1, which this model_type never had.")
    return full(fields)


def falcon(fields: ConfigFields) -> Layers:
    """The new architecture has KV heads of its own number; the old one has one with ``multi_query``, else all."""
    size = head_size(fields)
    heads = 1 if fields.flag("multi_query") else attention_heads(fields)
    if fields.flag("new_decoder_architecture"):
        heads = kv_heads(fields)
    return ((Heads(heads, size, size),),) * layer_count(fields)


def mixed(fields: ConfigFields, kinds: tuple[str, ...], window_extra: int = 0) -> Layers:
    """Return ordinary layers, each of its kind."""
    caches = {kind: heads_of(fields, window(fields) + window_extra if kind == SLIDING else None) for kind in set(kinds)}
    return tuple((caches[kind],) for kind in kinds)


def kinds_of(fields: ConfigFields, known: tuple[str, ...] = (FULL, SLIDING)) -> tuple[str, ...]:
    """Return ``layer_types``, which must be there and of known kinds."""
    kinds = fields.texts_or_none("layer_types", layer_count(fields))
    if kinds is None:
        raise fields.invalid("layer_types is missing.")
    if not set(kinds) <= set(known):
        raise unknown_kind(fields, kinds, known)
    return kinds


def unknown_kind(fields: ConfigFields, kinds: tuple[str, ...], known: tuple[str, ...]) -> Exception:
    """Return the refusal of ``layer_types`` with a value that this family never had."""
    new = min(set(kinds) - set(known))[:64]
    return fields.unsupported(f"layer_types has {new!r}, which this model_type never had ({', '.join(known)}).")
