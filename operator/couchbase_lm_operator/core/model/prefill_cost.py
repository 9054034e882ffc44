"""Floating-point operations that a model needs to compute a prompt, from its config.json. Pure.

A token costs two operations for every weight that it passes (a multiplication and an addition), and in every
attention layer two for each element of keys and values of each token that it looks at: Kaplan et al., "Scaling Laws
for Neural Language Models" (arXiv 2001.08361, table 1), with the causal half of the pairs only, and with windows and
sparse attention cut as the layers cut them. Recurrent layers touch each element of their state about eight times.

Left out, as they are below some per cent of a prompt: embeddings, the output head (one token per prompt passes it),
norms, convolutions, biases, and the encoders of other inputs than text. The result is good for a comparison of times,
not for bytes: where a configuration does not tell, there is no number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.model import mixer_weights
from couchbase_lm_operator.core.model.config_numbers import UnknownNumberError, first_count
from couchbase_lm_operator.core.model.feed_forward import feed_forward_weights
from couchbase_lm_operator.core.model.layer_cache import Heads, Indexer, Latent
from couchbase_lm_operator.core.model.model_shape import text_config

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.layer_cache import Layer, LayerCache
    from couchbase_lm_operator.core.model.model_shape import ModelShape

Config = dict[str, Any]

_STATE_FLOPS_PER_ELEMENT = 8
_HIDDEN = ("hidden_size", "n_embd", "d_model")


@dataclass(frozen=True)
class Pairs:
    """Work for each pair of a token and one that it looks at.

    ``span_tokens`` is how many it looks at, at most, itself included; None is all before it.
    ``is_stretch`` says that the span starts anew at fixed places.
    """

    flops: int
    span_tokens: int | None = None
    is_stretch: bool = False

    def count(self, tokens: int) -> int:
        """Return the pairs in a prompt."""
        if self.span_tokens is None or tokens <= self.span_tokens:
            return _triangle(tokens)
        if self.is_stretch:
            stretches, rest = divmod(tokens, self.span_tokens)
            return stretches * _triangle(self.span_tokens) + _triangle(rest)
        return _triangle(self.span_tokens) + (tokens - self.span_tokens) * self.span_tokens


@dataclass(frozen=True)
class PrefillCost:
    """What all layers of one model cost: ``weights`` passed by each token, elements of states, and pairs."""

    weights: int
    state_elements: int
    pairs: tuple[Pairs, ...]

    def flops(self, tokens: int) -> int:
        """Return the operations for the first ``tokens`` of a prompt, over all ranks."""
        per_token = 2 * self.weights + _STATE_FLOPS_PER_ELEMENT * self.state_elements
        return tokens * per_token + sum(each.flops * each.count(tokens) for each in self.pairs)


def prefill_cost(config: Config, shape: ModelShape) -> PrefillCost | None:
    """Return the cost of a model, or None where its configuration does not tell all parts of it.

    ``shape`` is what ``core.model.model_shape`` read from the same configuration.
    """
    if not shape.layers:
        return None
    text = text_config(config)
    try:
        layers = [_layer_cost(text, shape, position) for position in range(len(shape.layers))]
    except UnknownNumberError:
        return None
    merged: dict[tuple[int | None, bool], int] = {}
    for layer in layers:
        for pairs in layer.pairs:
            key = (pairs.span_tokens, pairs.is_stretch)
            merged[key] = merged.get(key, 0) + pairs.flops
    return PrefillCost(
        weights=sum(layer.weights for layer in layers),
        state_elements=sum(layer.state_elements for layer in layers),
        pairs=tuple(Pairs(flops, span, is_stretch) for (span, is_stretch), flops in merged.items()),
    )


def _layer_cost(text: Config, shape: ModelShape, position: int) -> PrefillCost:
    hidden = first_count(text, _HIDDEN)
    caches, is_shared = _caches(text, shape.layers, position)
    parts = [_mixer_cost(text, hidden, shape.attention_heads, cache, is_shared=is_shared) for cache in caches]
    forward = feed_forward_weights(text, position, hidden) if _has_feed_forward(text, position) else 0
    return PrefillCost(
        weights=forward + sum(part.weights for part in parts),
        state_elements=sum(part.state_elements for part in parts),
        pairs=tuple(pairs for part in parts for pairs in part.pairs),
    )


def _caches(text: Config, layers: tuple[Layer, ...], position: int) -> tuple[Layer, bool]:
    """Return what a layer looks at: its own cache, or that of the last layer of its kind that has one."""
    kinds = text.get("layer_types")
    is_sharing = bool(text.get("num_kv_shared_layers")) and isinstance(kinds, list) and len(kinds) == len(layers)
    if layers[position] or not is_sharing:
        return layers[position], False
    assert isinstance(kinds, list)  # noqa: S101 - for the type checker
    owner = next((at for at in range(position, -1, -1) if layers[at] and kinds[at] == kinds[position]), position)
    return layers[owner], True


def _mixer_cost(text: Config, hidden: int, heads: int, cache: LayerCache, *, is_shared: bool) -> PrefillCost:
    if isinstance(cache, Heads):
        weights = mixer_weights.attention_weights(text, hidden, heads, cache, is_shared=is_shared)
        span = first_count(text, ("attention_chunk_size",)) if cache.is_chunked_local else cache.window_tokens
        pairs = Pairs(2 * heads * (cache.head_size_k + cache.head_size_v), span, cache.is_chunked_local)
        return PrefillCost(weights, 0, (pairs,))
    if isinstance(cache, Latent):
        return PrefillCost(mixer_weights.latent_weights(text, hidden, heads), 0, (_latent_pairs(text, heads, cache),))
    if isinstance(cache, Indexer):
        index_heads = first_count(text, ("index_n_heads",))
        weights = mixer_weights.indexer_weights(text, hidden)
        return PrefillCost(weights, 0, (Pairs(2 * index_heads * cache.head_size),))
    weights, elements = mixer_weights.recurrent_weights(text, hidden)
    return PrefillCost(weights, elements, ())


def _latent_pairs(text: Config, heads: int, cache: Latent) -> Pairs:
    """Sparse attention works on the compressed vectors, dense attention of a prompt on unpacked heads."""
    rope = first_count(text, ("qk_rope_head_dim",))
    if cache.is_sparse:
        latent = first_count(text, ("kv_lora_rank",))
        return Pairs(2 * heads * (2 * latent + rope), first_count(text, ("index_topk",)))
    elements = first_count(text, ("qk_nope_head_dim",)) + rope + first_count(text, ("v_head_dim",))
    return Pairs(2 * heads * elements)


def _has_feed_forward(text: Config, position: int) -> bool:
    """Say whether a layer has a feed-forward part: Nemotron-H's pattern makes it a layer of its own."""
    pattern = text.get("hybrid_override_pattern")
    return not isinstance(pattern, str) or pattern[position : position + 1] in {"-", "E"}


def _triangle(tokens: int) -> int:
    return tokens * (tokens + 1) // 2
