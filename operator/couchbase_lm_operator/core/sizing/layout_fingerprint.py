"""A hash of everything that changes the bytes of cached objects but not their keys. Pure.

LMCache's keys name the model, the rank and the tokens. Under one key real runs found other bytes with another KV
data type (read as its own, so that the model answered nonsense), with a speculative layer more, and with object
groups separated or not. Two layouts therefore never share a fingerprint.

The tensor-parallel size stays out: the world size and the rank are in the key, and where layers are the same on all
ranks (latent attention) engines of different sizes may share their objects. The pipeline-parallel size is in: rank
1 of 2 has other layers there, under the same key.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.engine.element_types import resolved_dtype
from couchbase_lm_operator.core.fingerprint import digest
from couchbase_lm_operator.core.sizing.kv_layout import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
    from couchbase_lm_operator.core.model.model_shape import ModelShape

FINGERPRINT_DIGITS = 16
# how many tokens a step takes decides which objects exist, not what is in them
_HARMLESS = frozenset({"tensor_parallel_size", "max_num_batched_tokens"})
# what config.json says beside its layers: other words for the same bytes
_NOT_LAYOUT = frozenset({"architecture", "attention_heads", "evidence", "max_model_len"})


def layout_fingerprint(shape: ModelShape, engine: EngineLayout, chunk_tokens: int, versions: Mapping[str, str]) -> str:
    """Return the fingerprint as hex digits.

    ``versions`` are those of vLLM and LMCache by name: both decide about layouts in their own ways.

    Raises:
        RefusedError: the engine cannot run the model like that.
    """
    kv = layout(shape, engine)
    # what was left open counts as what it comes to
    resolved = {
        "dtype": resolved_dtype(engine.dtype, shape.dtype),
        "kv_cache_dtype": kv.kv_dtype,
        "separate_object_groups": kv.separate_object_groups,
    }
    return digest(
        {
            "shape": {name: value for name, value in asdict(shape).items() if name not in _NOT_LAYOUT},
            "engine": {name: value for name, value in asdict(engine).items() if name not in _HARMLESS} | resolved,
            "chunkTokens": chunk_tokens,
            "versions": dict(versions),
        }
    )[:FINGERPRINT_DIGITS]
