"""From a model's shape and an engine's flags to what LMCache stores: groups, blocks, ranks, bytes. Pure.

One object is one chunk of one rank and one object group: all layers of the group one after the other,
without header or padding. Formulas were compared to the byte with vLLM 0.32 and LMCache 0.5.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.engine import element_types, engine_checks
from couchbase_lm_operator.core.model.model_families import FORMULA
from couchbase_lm_operator.core.sizing import layer_groups
from couchbase_lm_operator.core.sizing.layout_groups import KernelGroup, ObjectGroup, kind_of, rank_bytes

if TYPE_CHECKING:
    from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
    from couchbase_lm_operator.core.model.model_shape import ModelShape


@dataclass(frozen=True)
class KvLayout:
    """What one engine stores.

    ``stages`` are the kernel groups of one rank of each pipeline stage; ``copies_per_stage`` ranks of a
    stage store different objects (1 for purely latent attention: its ranks hold the same bytes).
    ``block_tokens`` is what a chunk must be a multiple of. ``is_single_transfer_group`` says whether
    engine-driven transfer can carry it, ``has_padded_states`` whether snapshots leave part of a page empty.
    ``required_flags`` are what pods must carry, by program.
    """

    evidence: str
    stages: tuple[tuple[KernelGroup, ...], ...]
    copies_per_stage: int
    block_tokens: int
    kv_dtype: str
    separate_object_groups: bool
    is_single_transfer_group: bool
    has_padded_states: bool = False
    max_num_batched_tokens: int | None = None
    required_flags: dict[str, dict[str, str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Return how many ranks store an object of each group for each chunk."""
        return len(self.stages) * self.copies_per_stage

    @property
    def attention_bytes_per_token_per_rank(self) -> int:
        """Return the bytes of one token on the rank that holds most."""
        return max(_attention_bytes(stage) for stage in self.stages)

    @property
    def attention_bytes_per_token(self) -> int:
        """Return the bytes of one token on all ranks together."""
        return self.copies_per_stage * sum(_attention_bytes(stage) for stage in self.stages)

    @property
    def state_bytes_per_rank(self) -> int:
        """Return the bytes of one snapshot on the rank that holds most, as the engine keeps it."""
        return max(sum(group.state_bytes for group in stage) for stage in self.stages)

    @property
    def has_states(self) -> bool:
        """Say whether any layer is recurrent."""
        return any(group.is_recurrent for stage in self.stages for group in stage)

    def stage_groups(self, chunk_tokens: int) -> tuple[tuple[ObjectGroup, ...], ...]:
        """Return the object groups of one rank of every stage, in LMCache's order: by their first layer."""
        return tuple(self._object_groups(stage, chunk_tokens) for stage in self.stages)

    def groups(self, chunk_tokens: int) -> tuple[ObjectGroup, ...]:
        """Return the object groups of the rank that holds most."""
        return max(self.stage_groups(chunk_tokens), key=lambda groups: rank_bytes(groups, chunk_tokens))

    def object_bytes(self, chunk_tokens: int) -> tuple[int, ...]:
        """Return the bytes of each object of one chunk on the rank that holds most."""
        return tuple(group.object_bytes(chunk_tokens) for group in self.groups(chunk_tokens))

    def _object_groups(self, stage: tuple[KernelGroup, ...], chunk_tokens: int) -> tuple[ObjectGroup, ...]:
        if not self.separate_object_groups:
            return (ObjectGroup("mixed" if len(stage) > 1 else kind_of(stage[0]), stage),)
        buckets: dict[tuple[bool, int | None], list[KernelGroup]] = {}
        for group in stage:
            buckets.setdefault((group.is_recurrent, group.window_chunks(chunk_tokens)), []).append(group)
        return tuple(ObjectGroup(kind_of(groups[0]), tuple(groups), window) for (_, window), groups in buckets.items())


def _attention_bytes(stage: tuple[KernelGroup, ...]) -> int:
    return sum(group.bytes_per_token for group in stage)


def layout(shape: ModelShape, engine: EngineLayout) -> KvLayout:
    """Return what an engine with these flags stores of a model.

    Raises:
        RefusedError: flags that do not fit the model or each other, or a combination whose layout was never
            compared with an engine.
    """
    engine_checks.check(shape, engine)
    if shape.override_bytes_per_token is not None:
        return _overridden(shape.override_bytes_per_token, shape, engine)
    grouped = layer_groups.group_layers(shape, engine)
    separate = engine.separate_object_groups
    if separate is None:
        separate = grouped.has_states or grouped.has_windows
    batched = engine_checks.batched_tokens(engine, grouped.block_tokens) if grouped.has_states else None
    return KvLayout(
        evidence=_evidence(shape, engine, grouped.kv_dtype),
        stages=grouped.stages,
        copies_per_stage=grouped.copies_per_stage,
        block_tokens=grouped.block_tokens,
        kv_dtype=grouped.kv_dtype,
        separate_object_groups=separate,
        is_single_transfer_group=grouped.is_single_transfer_group,
        has_padded_states=grouped.has_padded_states,
        max_num_batched_tokens=batched or engine.max_num_batched_tokens,
        required_flags=_required_flags(separate=separate, batched_tokens=batched),
        warnings=grouped.warnings,
    )


def _evidence(shape: ModelShape, engine: EngineLayout, kv_dtype: str) -> str:
    """Return the family's evidence, or that only the formula stands behind flags that were never compared."""
    is_compared = (
        kv_dtype in element_types.WHOLE_ELEMENT_BYTES
        and engine.decode_context_parallel_size == 1
        and engine.mamba_cache_dtype in (None, element_types.AUTO)
    )
    return shape.evidence if is_compared else FORMULA


def _overridden(bytes_per_token: int, shape: ModelShape, engine: EngineLayout) -> KvLayout:
    """Return the layout of numbers that a person gave: every rank holds as much."""
    block = engine.block_size or 1
    group = KernelGroup(
        first_layer=0,
        layers=0,
        bytes_per_token=bytes_per_token,
        state_bytes=0,
        stored_state_bytes=0,
        window_tokens=None,
        block_tokens=block,
        context_parallel=1,
        is_whole_chunk_stored=True,
    )
    return KvLayout(
        evidence=shape.evidence,
        stages=((group,),) * engine.pipeline_parallel_size,
        copies_per_stage=engine.tensor_parallel_size,
        block_tokens=block * engine.decode_context_parallel_size,
        kv_dtype=engine.kv_cache_dtype,
        separate_object_groups=bool(engine.separate_object_groups),
        is_single_transfer_group=True,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        required_flags=_required_flags(separate=bool(engine.separate_object_groups), batched_tokens=None),
    )


def _required_flags(*, separate: bool, batched_tokens: int | None) -> dict[str, dict[str, str]]:
    """Return the flags that the pods must carry for this layout to be the one that is stored."""
    vllm = {}
    if batched_tokens is not None:
        vllm = {"--mamba-cache-mode": "align", "--max-num-batched-tokens": str(batched_tokens)}
    return {"vllm": vllm, "lmcache": {"--separate-object-groups": ""} if separate else {}}
