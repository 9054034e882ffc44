"""Groups the layers of a model as vLLM and LMCache do, rank by rank. Pure.

vLLM gives layers of one kind a block table; layers with smaller pages than the largest get longer blocks.
Sources: vLLM's ``v1/core/kv_cache_utils.py`` and ``distributed/utils.py``, LMCache's ``v1/kv_layer_groups.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine import element_types, engine_block
from couchbase_lm_operator.core.engine.engine_checks import MTP_METHODS
from couchbase_lm_operator.core.model.layer_cache import Heads, Latent, State
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.layout_groups import KernelGroup

if TYPE_CHECKING:
    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
    from couchbase_lm_operator.core.model.layer_cache import Layer, LayerCache
    from couchbase_lm_operator.core.model.model_shape import ModelShape

_STATE_STEP_BYTES = 16
_FA4_HEAD_SIZE = 256
_FA4_TOLD = (
    "Where FlashAttention 4 serves heads of 256 the block, and with it the chunk, is another: compare with the "
    'engine\'s line "Setting attention block size".'
)


@dataclass(frozen=True)
class GroupedLayers:
    """The groups of one rank of each pipeline stage, and what was found on the way."""

    stages: tuple[tuple[KernelGroup, ...], ...]
    copies_per_stage: int
    block_tokens: int
    kv_dtype: str
    has_states: bool
    has_windows: bool
    is_single_transfer_group: bool
    has_padded_states: bool
    warnings: tuple[str, ...]


def group_layers(shape: ModelShape, engine: EngineLayout) -> GroupedLayers:
    """Return the groups.

    Raises:
        RefusedError: an element type, a block or a mix of caches that was never compared with an engine.
    """
    layers = _managed(shape.layers, engine)
    extra = _managed(_speculative(shape, engine), engine)
    caches = tuple(dict.fromkeys(cache for layer in (*layers, *extra) for cache in layer))
    sizes = _Sizes(shape, engine, caches)
    has_states = any(isinstance(cache, State) for cache in caches)
    is_latent_only = not any(isinstance(cache, Heads | State) for cache in caches)
    context = engine.decode_context_parallel_size
    parts = _split(layers, engine.pipeline_parallel_size)
    stages = tuple(
        sizes.groups(first, (*part, *(extra if position == len(parts) - 1 else ())))
        for position, (first, part) in enumerate(parts)
    )
    if not all(stages):
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.engine.pipelineParallelSize {engine.pipeline_parallel_size} leaves a stage whose layers keep no "
            "cache of their own: use a smaller one.",
        )
    return GroupedLayers(
        stages=stages,
        copies_per_stage=context if is_latent_only else engine.tensor_parallel_size,
        block_tokens=engine_block.chunk_step_tokens(set(sizes.blocks.values()), context),
        kv_dtype=sizes.kv_dtype,
        has_states=has_states,
        has_windows=any(isinstance(cache, Heads) and cache.window_tokens is not None for cache in caches),
        is_single_transfer_group=len(caches) == 1 and not has_states,
        has_padded_states=sizes.has_padded_states(),
        warnings=sizes.warnings(),
    )


class _Sizes:
    """Bytes and blocks of every cache that occurs in a model."""

    def __init__(self, shape: ModelShape, engine: EngineLayout, caches: tuple[LayerCache, ...]) -> None:
        self._engine = engine
        self._dtype = element_types.resolved_dtype(engine.dtype, shape.dtype)
        self.kv_dtype = element_types.resolved_kv_dtype(engine.kv_cache_dtype, shape.kv_dtype, self._dtype)
        if shape.ignores_kv_dtype:
            self.kv_dtype = self._dtype
        whole = engine.is_whole_chunk_stored
        self._is_whole_chunk_stored = engine.platform == engine_block.CPU if whole is None else whole
        self._is_sparse = any(isinstance(cache, Latent) and cache.is_sparse for cache in caches)
        self.bytes = {cache: self._bytes_of(cache) for cache in caches}
        self.blocks = self._blocks(shape, caches)

    def groups(self, first_layer: int, layers: tuple[Layer, ...]) -> tuple[KernelGroup, ...]:
        """Return the groups of one rank, in the order of their first layers."""
        counts: dict[LayerCache, tuple[int, int]] = {}
        for position, layer in enumerate(layers, start=first_layer):
            for cache in layer:
                first, count = counts.get(cache, (position, 0))
                counts[cache] = (first, count + 1)
        return tuple(self._group(cache, first, count) for cache, (first, count) in counts.items())

    def has_padded_states(self) -> bool:
        """Say whether a snapshot leaves a part of its page empty."""
        pages = {
            size_bytes if isinstance(cache, State) else size_bytes * self.blocks[cache]
            for cache, size_bytes in self.bytes.items()
        }
        return len(pages) > 1 and any(isinstance(cache, State) for cache in self.bytes)

    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know about these sizes."""
        engine = self._engine
        is_unpinned = engine.attention_backend is None and self.kv_dtype in element_types.FP8
        has_wide_heads = any(isinstance(cache, Heads) and cache.head_size_k == _FA4_HEAD_SIZE for cache in self.bytes)
        has_states = any(isinstance(cache, State) for cache in self.bytes)
        found = (
            (
                self._is_sparse and is_unpinned,
                "An 8-bit cache takes 656 bytes per token and layer with FLASHMLA_SPARSE, else 576: pin the backend.",
            ),
            (
                self._is_sparse and engine.kv_cache_dtype == element_types.AUTO,
                "With --kv-cache-dtype auto vLLM keeps such models in 8 bits on some GPUs: pin bfloat16 or fp8.",
            ),
            (
                engine.platform != engine_block.CPU and has_states and has_wide_heads,
                _FA4_TOLD,
            ),
        )
        return tuple(told for is_true, told in found if is_true)

    def _bytes_of(self, cache: LayerCache) -> int:
        """Return the bytes of a token, or of a snapshot, in one layer of one rank."""
        engine = self._engine
        if isinstance(cache, State):
            # on CPU vLLM keeps recurrent states in float32 whatever the model says
            flag = "float32" if engine.platform == engine_block.CPU else engine.mamba_ssm_cache_dtype
            return element_types.state_bytes(
                cache, self._dtype, engine.tensor_parallel_size, engine.mamba_cache_dtype, flag
            )
        return element_types.token_bytes(
            cache,
            self.kv_dtype,
            engine.tensor_parallel_size,
            engine.attention_backend,
            has_scales=engine.platform != engine_block.CPU,
        )

    def _blocks(self, shape: ModelShape, caches: tuple[LayerCache, ...]) -> dict[LayerCache, int]:
        attention = tuple(cache for cache in caches if not isinstance(cache, State))
        is_latent = any(isinstance(cache, Latent) for cache in attention)
        block = engine_block.engine_block_tokens(self._engine, is_latent=is_latent)
        if len(attention) < len(caches):
            if len(attention) != 1:
                raise RefusedError(
                    Reason.MODEL_NOT_SUPPORTED,
                    f"{shape.model_type}: states beside {len(attention)} kinds of attention were never compared with "
                    "an engine. Set spec.model.override with kvBytesPerToken and blockSize.",
                )
            page = max(self.bytes[cache] for cache in caches if isinstance(cache, State))
            unified = engine_block.unified_block_tokens(
                self._engine, block, page, self.bytes[attention[0]], is_latent=is_latent
            )
            return dict.fromkeys(caches, unified)
        if len({_kind(cache) for cache in attention}) == 1:
            return dict.fromkeys(caches, block)
        largest = max(self.bytes[cache] for cache in caches)
        return {cache: engine_block.stretched_block_tokens(block, self.bytes[cache], largest) for cache in caches}

    def _group(self, cache: LayerCache, first_layer: int, layers: int) -> KernelGroup:
        block, size_bytes = self.blocks[cache], self.bytes[cache]
        is_state = isinstance(cache, State)
        return KernelGroup(
            first_layer=first_layer,
            layers=layers,
            bytes_per_token=0 if is_state else layers * size_bytes,
            state_bytes=layers * size_bytes if is_state else 0,
            stored_state_bytes=layers * _stored_page_bytes(size_bytes, block) if is_state else 0,
            window_tokens=cache.window_tokens if isinstance(cache, Heads) else None,
            block_tokens=block,
            context_parallel=self._engine.decode_context_parallel_size,
            is_whole_chunk_stored=self._is_whole_chunk_stored,
        )


def _stored_page_bytes(state_bytes: int, block_tokens: int) -> int:
    """Return what LMCache stores of a snapshot: it sees the page as so many bytes for each token of a block."""
    row_bytes = -(-state_bytes // block_tokens)
    return block_tokens * _STATE_STEP_BYTES * -(-row_bytes // _STATE_STEP_BYTES)


def _kind(cache: LayerCache) -> tuple[int | None, bool]:
    """Return what decides the block table of an attention layer: its window, or none."""
    return (cache.window_tokens, cache.is_chunked_local) if isinstance(cache, Heads) else (None, False)


def _managed(layers: tuple[Layer, ...], engine: EngineLayout) -> tuple[Layer, ...]:
    """Return the layers as vLLM manages them: without the hybrid manager a mix of windows is kept in full."""
    kinds = {_kind(cache) for layer in layers for cache in layer if not isinstance(cache, State)}
    if engine.hybrid_kv_cache or len(kinds) <= 1:
        return layers
    return tuple(tuple(_unwindowed(cache) for cache in layer) for layer in layers)


def _unwindowed(cache: LayerCache) -> LayerCache:
    return replace(cache, window_tokens=None, is_chunked_local=False) if isinstance(cache, Heads) else cache


def _speculative(shape: ModelShape, engine: EngineLayout) -> tuple[Layer, ...]:
    if engine.speculative_method not in MTP_METHODS:
        return ()
    own = shape.speculative_layers
    return own if not engine.num_speculative_layers else (own[0],) * engine.num_speculative_layers


def _split(layers: tuple[Layer, ...], parts: int) -> list[tuple[int, tuple[Layer, ...]]]:
    """Split as vLLM's ``get_pp_indices`` does: what is left over goes to the later parts, the last one excepted."""
    counts = [len(layers) // parts] * parts
    for position in range(2, len(layers) % parts + 2):
        counts[-position] += 1
    firsts = [sum(counts[:position]) for position in range(parts)]
    return [(first, layers[first : first + count]) for first, count in zip(firsts, counts, strict=True)]
