"""Our own numbers for a case beside those of vLLM and LMCache."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.model.model_shape import read_shape
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.chunking import checked_chunk
from couchbase_lm_operator.core.sizing.kv_layout import KvLayout, layout

if TYPE_CHECKING:
    from collections.abc import Mapping


def predict(config: Mapping[str, Any], engine: Mapping[str, Any]) -> KvLayout | RefusedError:
    """Return our layout of a model, or why there is none. ``engine`` has the fields of ``EngineLayout``."""
    try:
        return layout(read_shape(dict(config), "config.json"), EngineLayout(**engine))
    except RefusedError as refused:
        return refused


def differences(ours: KvLayout, answer: Mapping[str, Any]) -> list[str]:
    """Return where our numbers and the engine's part; nothing when they are equal to the byte."""
    pairs = {
        "block": (ours.block_tokens, answer["block_tokens"]),
        "attention bytes per token": (ours.attention_bytes_per_token_per_rank, answer["attention_bytes_per_token"]),
        "state bytes": (ours.state_bytes_per_rank, answer["state_bytes"]),
        "ranks": (ours.ranks, answer["ranks"]),
    }
    for chunk, objects in answer["objects"].items():
        for way in ("single", "separate"):
            separated = replace(ours, separate_object_groups=way == "separate")
            pairs[f"{way} objects of {chunk} tokens"] = (_objects(separated, int(chunk)), _told(objects[way]))
    return [f"{what}: ours {mine!r}, theirs {theirs!r}" for what, (mine, theirs) in pairs.items() if mine != theirs]


def _objects(ours: KvLayout, chunk_tokens: int) -> list[int] | str:
    try:
        checked_chunk(ours, chunk_tokens)
    except RefusedError:
        return "refused"
    return list(ours.object_bytes(chunk_tokens))


def _told(sizes: list[int] | str) -> list[int] | str:
    return "refused" if isinstance(sizes, str) else sizes
