"""Decoders with latent attention (MLA): one vector per token that all heads share, some with an indexer. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.core.model.attention_families import FULL, heads_of, layer_count, unknown_kind
from couchbase_lm_operator.core.model.config_fields import MAX_HEAD_SIZE, MAX_LAYERS
from couchbase_lm_operator.core.model.layer_cache import Indexer, Latent

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.attention_families import Layers
    from couchbase_lm_operator.core.model.config_fields import ConfigFields

_MAX_RANK = 1 << 16


def latent_of(fields: ConfigFields, *, is_sparse: bool = False) -> Latent:
    """Return the cache of one latent attention layer."""
    fields.knows("q_lora_rank", "head_dim", "v_head_dim", "qk_nope_head_dim")
    rank = fields.integer("kv_lora_rank", high=_MAX_RANK)
    return Latent(rank + fields.integer("qk_rope_head_dim", high=MAX_HEAD_SIZE), is_sparse)


def latent(fields: ConfigFields) -> Layers:
    """Every layer keeps one vector per token."""
    if fields.has("index_topk"):
        raise fields.unsupported("index_topk is set, which this model_type never had.")
    kinds = fields.texts_or_none("layer_types", layer_count(fields))
    if kinds is not None and set(kinds) != {FULL}:
        raise unknown_kind(fields, kinds, (FULL,))
    return ((latent_of(fields),),) * layer_count(fields)


def latent_twice(fields: ConfigFields) -> Layers:
    """Each of ``num_layers`` layers has two latent attention blocks (LongCat)."""
    layers = fields.integer("num_layers", high=MAX_LAYERS)
    stated = fields.integer_or_none("num_hidden_layers", high=2 * MAX_LAYERS)
    if stated not in (None, layers, 2 * layers):
        raise fields.unsupported(f"num_hidden_layers {stated} is neither num_layers {layers} nor twice it.")
    return ((latent_of(fields), latent_of(fields)),) * layers


def sparse(fields: ConfigFields) -> Layers:
    """An indexer beside the vector, on all layers or on those that the pattern does not skip."""
    layers = layer_count(fields)
    fields.knows("layer_types", "index_n_heads", "index_share_for_mtp_iteration")
    fields.integer("index_topk")
    pattern = fields.text_or_none("index_topk_pattern")
    every = fields.integer_or_none("index_topk_freq", high=MAX_LAYERS) or 1
    offset = fields.integer_or_none("index_skip_topk_offset", low=0, high=MAX_LAYERS)
    offset = 2 if offset is None else offset
    if pattern is not None:
        owns = [position >= len(pattern) or pattern[position] != "S" for position in range(layers)]
    else:
        owns = [max(position - offset + 1, 0) % every == 0 for position in range(layers)]
    kinds = fields.texts_or_none("indexer_types", layers)
    if kinds is not None and len(set(kinds)) > 1 and all(owns):
        raise fields.unsupported(
            "indexer_types says that layers differ, index_topk_freq and index_topk_pattern do not."
        )
    own, indexed = latent_of(fields, is_sparse=True), _indexer(fields)
    return tuple((indexed, own) if each else (own,) for each in owns)


def next_latent(fields: ConfigFields) -> Layers:
    """Layers for multi-token prediction, of the model's own kind."""
    return ((latent_of(fields),),) * _next_layers(fields)


def next_sparse(fields: ConfigFields) -> Layers:
    """Layers for multi-token prediction; each owns an indexer."""
    return ((_indexer(fields), latent_of(fields, is_sparse=True)),) * _next_layers(fields)


def next_heads(fields: ConfigFields) -> Layers:
    """Layers for multi-token prediction with ordinary attention."""
    return ((heads_of(fields),),) * _next_layers(fields)


def _indexer(fields: ConfigFields) -> Indexer:
    return Indexer(fields.integer("index_head_dim", high=MAX_HEAD_SIZE))


def _next_layers(fields: ConfigFields) -> int:
    return fields.integer_or_none("num_nextn_predict_layers", low=0, high=MAX_LAYERS) or 0
