"""How KV blocks get from the engine to LMCache, and what that asks of the engine. Pure.

Engine-driven transfer carries one group of layers that are cached alike and refuses any other engine when it
registers ("engine-driven transfer does not support multiple KV transfer groups",
``lmcache/v1/multiprocess/transfer_context/worker_transfer.py``). A mix of full and sliding-window layers becomes one
group when vLLM keeps the windows in full; recurrent states never do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.kv_layout import layout
from couchbase_lm_operator.core.layer_cache import Heads, State
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.core.kv_layout import EngineLayout
    from couchbase_lm_operator.core.model_shape import ModelShape

ENGINE_DRIVEN = "EngineDriven"
_REASON = "vLLM copies blocks through shared memory: the LMCache server needs no access to the GPU."
_WHOLE_WINDOWS = (
    "This transfer carries one group of layers, so vLLM runs with --disable-hybrid-kv-cache-manager: it keeps sliding "
    "windows in full, which takes more of its KV memory and changes no answer."
)


@dataclass(frozen=True)
class Transfer:
    """The mode with its reason, and the engine's layout with what the mode needs."""

    mode: str
    reason: str
    engine: EngineLayout


def engine_driven(shape: ModelShape, engine: EngineLayout) -> Transfer:
    """Return engine-driven transfer of a model.

    Raises:
        RefusedError: the model's layers are cached in several groups, whatever the engine's flags.
    """
    one_object = replace(engine, separate_object_groups=False, is_whole_chunk_stored=True)
    if layout(shape, one_object).is_single_transfer_group:
        return Transfer(ENGINE_DRIVEN, _REASON, one_object)
    whole_windows = replace(one_object, hybrid_kv_cache=False)
    if not _has_states(shape) and layout(shape, whole_windows).is_single_transfer_group:
        return Transfer(ENGINE_DRIVEN, f"{_REASON} {_WHOLE_WINDOWS}", whole_windows)
    raise RefusedError(
        Reason.TRANSFER_NOT_SUPPORTED,
        f"model_type {shape.model_type}: {_told(shape)}, and LMCache's engine-driven transfer, the only one of this "
        "version, does not support multiple KV transfer groups. Choose a model whose layers are cached alike in "
        "spec.model.id, or run this one with LMCache's own transfer outside this operator.",
    )


def _has_states(shape: ModelShape) -> bool:
    return any(isinstance(cache, State) for layer in shape.layers for cache in layer)


def _told(shape: ModelShape) -> str:
    if _has_states(shape):
        return "it has layers with recurrent states beside attention"
    kinds = {type(cache) for layer in shape.layers for cache in layer}
    if kinds == {Heads}:
        return "its attention layers have heads of different numbers or sizes"
    return "its layers keep caches of different kinds"
