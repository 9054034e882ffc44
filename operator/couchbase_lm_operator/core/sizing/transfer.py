"""How KV blocks get from the engine to LMCache, and what that asks of the engine. Pure.

Engine-driven transfer carries one group of layers that are cached alike and refuses any other engine when it
registers ("engine-driven transfer does not support multiple KV transfer groups",
``lmcache/v1/multiprocess/transfer_context/worker_transfer.py``). A mix of full and sliding-window layers becomes one
group when vLLM keeps the windows in full; recurrent states never do. LMCache-driven transfer carries all of them, but
needs a device that hands the engine's memory over to the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.device_backend import FIELD as DEVICE_BACKEND_FIELD
from couchbase_lm_operator.core.engine.device_backend import device_backend
from couchbase_lm_operator.core.engine.engine_values import CPU
from couchbase_lm_operator.core.model.layer_cache import Heads, State
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.kv_layout import layout

if TYPE_CHECKING:
    from couchbase_lm_operator.api.v1alpha1 import LMCacheCouchbaseSpec
    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
    from couchbase_lm_operator.core.model.model_shape import ModelShape

ENGINE_DRIVEN = "EngineDriven"
LMCACHE_DRIVEN = "LMCacheDriven"
FIELD = "spec.cache.transfer"
_LMCACHE_NAMES = {ENGINE_DRIVEN: "engine_driven", LMCACHE_DRIVEN: "lmcache_driven"}
_ENGINE_COPIES = "vLLM copies blocks through shared memory: the LMCache server needs no access to the GPU."
_LMCACHE_COPIES = "The LMCache server copies blocks from and to vLLM's KV memory, which lies in shared memory."
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

    @property
    def is_engine_driven(self) -> bool:
        """Say whether the engine copies."""
        return self.mode == ENGINE_DRIVEN

    @property
    def lmcache_name(self) -> str:
        """Return the mode in LMCache's words."""
        return _LMCACHE_NAMES[self.mode]


def choose_transfer(spec: LMCacheCouchbaseSpec, shape: ModelShape, engine: EngineLayout) -> Transfer:
    """Return the transfer that a user asked for, or else the one that carries the model; engine-driven where it does.

    Raises:
        RefusedError: the device does not offer the transfer, or the transfer does not carry the model's layers.
    """
    backend, asked = device_backend(spec), spec.cache.transfer
    can_hand_over = backend is not None and backend.has_handle_transfer
    if asked == LMCACHE_DRIVEN:
        if not can_hand_over:
            raise RefusedError(Reason.TRANSFER_NOT_SUPPORTED, f"{FIELD} {asked}: {_no_handles(spec)}")
        return _lmcache_driven(_LMCACHE_COPIES, engine)
    found = _engine_driven(shape, engine)
    if found is not None:
        return found
    if can_hand_over and asked is None:
        return _lmcache_driven(f"{_LMCACHE_COPIES} Copies by vLLM carry one group of layers: {_told(shape)}.", engine)
    raise RefusedError(
        Reason.TRANSFER_NOT_SUPPORTED,
        f"model_type {shape.model_type}: {_told(shape)}, and LMCache's engine-driven transfer does not support "
        f"multiple KV transfer groups. {_remedy(spec, shape, engine, can_hand_over=can_hand_over)}",
    )


def _engine_driven(shape: ModelShape, engine: EngineLayout) -> Transfer | None:
    """Return engine-driven transfer, or None when the layers are cached in several groups whatever the flags."""
    one_object = replace(engine, separate_object_groups=False, is_whole_chunk_stored=True)
    # a person's numbers do not tell the groups of a model: vLLM is asked for a single one
    are_groups_known = shape.override_bytes_per_token is None
    if are_groups_known and layout(shape, one_object).is_single_transfer_group:
        return Transfer(ENGINE_DRIVEN, _ENGINE_COPIES, one_object)
    whole_windows = replace(one_object, hybrid_kv_cache=False)
    if not _has_states(shape) and layout(shape, whole_windows).is_single_transfer_group:
        return Transfer(ENGINE_DRIVEN, f"{_ENGINE_COPIES} {_WHOLE_WINDOWS}", whole_windows)
    return None


def _lmcache_driven(reason: str, engine: EngineLayout) -> Transfer:
    # the only devices that hand over their memory so far are CPUs, where LMCache cuts no windows
    return Transfer(LMCACHE_DRIVEN, reason, replace(engine, is_whole_chunk_stored=True))


def _no_handles(spec: LMCacheCouchbaseSpec) -> str:
    """Return why the device hands nothing over, and what to do, as the end of a sentence."""
    if spec.accelerator.vendor == CPU:
        return (
            "LMCache's own backend for CPUs leaves an engine's KV memory in /dev/shm when the engine is killed, so "
            f"that the next one has no room. Set {DEVICE_BACKEND_FIELD} to hostcpu, which does not, or remove {FIELD}."
        )
    return (
        f"the LMCache server would need the GPUs of vLLM, and with vendor {spec.accelerator.vendor} this version "
        f"shares them with no other container. Remove {FIELD}, or set it to {ENGINE_DRIVEN}."
    )


def _remedy(spec: LMCacheCouchbaseSpec, shape: ModelShape, engine: EngineLayout, *, can_hand_over: bool) -> str:
    if can_hand_over:
        return f"Remove {FIELD}, or set it to {LMCACHE_DRIVEN}."
    alike = "a model whose layers are cached alike in spec.model.id"
    if spec.accelerator.vendor != CPU:
        return f"Choose {alike}, or run this one with LMCache's own transfer outside this operator."
    if layout(shape, engine).has_padded_states:
        # LMCache takes no states on CPU that leave part of a page empty, whoever copies
        return f"Choose {alike}."
    return f"Set {DEVICE_BACKEND_FIELD} to hostcpu, with which LMCache copies by itself, or choose {alike}."


def _has_states(shape: ModelShape) -> bool:
    return any(isinstance(cache, State) for layer in shape.layers for cache in layer)


def _told(shape: ModelShape) -> str:
    if _has_states(shape):
        return "it has layers with recurrent states beside attention"
    kinds = {type(cache) for layer in shape.layers for cache in layer}
    if kinds == {Heads}:
        return "its attention layers have heads of different numbers or sizes"
    return "its layers keep caches of different kinds"
