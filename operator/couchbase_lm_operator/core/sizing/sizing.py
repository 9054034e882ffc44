"""From a model's shape to chunk, documents, L1, shared memory and the wish for the bucket. Pure.

What one object holds is in ``core.sizing.kv_layout``; here it becomes what a resource needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.couchbase.bucket_quota import needed_per_node_bytes
from couchbase_lm_operator.core.engine.engine_block import CPU
from couchbase_lm_operator.core.engine.engine_layout import EngineLayout
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing import chunking, memory_sizing
from couchbase_lm_operator.core.sizing.context_sizing import ContextBytes
from couchbase_lm_operator.core.sizing.kv_layout import layout
from couchbase_lm_operator.core.sizing.layout_groups import rank_bytes

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model.model_shape import ModelShape
    from couchbase_lm_operator.core.sizing.kv_layout import KvLayout

DEFAULT_CONTEXTS = 100
DEFAULT_CONTEXT_TOKENS = 8192

_MAX_TOKENS = 100_000_000
_MAX_CONTEXTS = 1_000_000_000
_MAX_BYTES = 1 << 60
_UNLIMITED_BYTES = 1 << 60


@dataclass(frozen=True)
class SizingInputs:
    """What a resource and its engine say; None means "work it out".

    ``max_context_tokens`` None is the model's own limit. ``is_engine_driven`` says who copies between engine
    and LMCache; if it is LMCache, ``handed_over_bytes`` is the KV memory that each rank keeps in shared memory for it
    (0 where devices hand it over by other means). ``bucket_replicas`` and ``data_nodes`` only count for the quota.
    """

    engine: EngineLayout = field(default_factory=EngineLayout)
    max_context_tokens: int | None = None
    context_tokens: int | None = None
    contexts: int = DEFAULT_CONTEXTS
    chunk_tokens: int | None = None
    shard_bytes: int | None = None
    l1_bytes: int | None = None
    max_l1_bytes: int = _UNLIMITED_BYTES
    is_engine_driven: bool = True
    handed_over_bytes: int = 0
    bucket_replicas: int = 0
    data_nodes: int = 1


@dataclass(frozen=True)
class Sizing:
    """What one resource needs, worked out. Sizes are bytes unless the name says tokens or counts.

    ``object_bytes`` has one entry for each object group, in LMCache's order, of the rank that holds most;
    sums such as ``bytes_per_context`` use every rank as it is. ``bytes_per_context`` and
    ``working_set_bytes`` are one copy of the documents in the bucket; replicas and the usable share of a
    bucket are in ``quota_bytes``, that of all data nodes together. ``loaded_bytes_per_context`` is what one
    request reads. ``l1_wanted_bytes`` is what L1 would be without a cap. ``chunk_reason`` and each of the
    ``warnings`` are one sentence.
    """

    evidence: str
    ranks: int
    attention_bytes_per_token_per_rank: int
    attention_bytes_per_token: int
    state_bytes_per_rank: int
    block_size_tokens: int
    chunk_size_tokens: int
    chunk_reason: str
    object_bytes: tuple[int, ...]
    shard_bytes: int
    documents_per_chunk: int
    documents_per_context: int
    context_tokens: int
    max_context_tokens: int
    chunks_per_context: int
    bytes_per_context: int
    loaded_bytes_per_context: int
    lookup_keys_per_request: int
    working_set_contexts: int
    working_set_bytes: int
    quota_bytes: int
    quota_per_node_bytes: int
    l1_bytes: int
    l1_wanted_bytes: int
    contexts_in_l1: int
    longest_cacheable_tokens: int
    shared_memory_bytes: int
    staging_bytes: int
    layout: KvLayout
    warnings: tuple[str, ...]


def size(shape: ModelShape, inputs: SizingInputs) -> Sizing:
    """Return the numbers of one resource.

    Raises:
        RefusedError: parallelism that does not fit the model, a chunk that is no multiple of the block, a
            sliding window that cannot be cut, values out of all bounds, or an L1 that holds not one chunk.
    """
    _check(inputs)
    kv = layout(shape, inputs.engine)
    if inputs.is_engine_driven and not kv.is_single_transfer_group:
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"The layers of {shape.model_type} are cached in more than one way: LMCache's engine-driven transfer does "
            "not support multiple KV transfer groups.",
        )
    longest = inputs.max_context_tokens or shape.max_model_len
    context = inputs.context_tokens or min(DEFAULT_CONTEXT_TOKENS, longest)
    choice = (
        chunking.checked_chunk(kv, inputs.chunk_tokens)
        if inputs.chunk_tokens is not None
        else chunking.choose_chunk(kv, context)
    )
    if inputs.engine.platform == CPU and kv.has_padded_states:
        raise RefusedError(
            Reason.MODEL_NOT_SUPPORTED,
            f"On cpu LMCache cannot take the states of {shape.model_type}: they do not fill the pages of "
            f"{kv.block_tokens} tokens that the engine keeps them in. Choose a model without recurrent layers in "
            "spec.model.id.",
        )
    objects = kv.object_bytes(choice.tokens)
    shard = inputs.shard_bytes or chunking.choose_shard_bytes(max(objects))
    costs = ContextBytes(kv, choice.tokens, shard)
    wanted = memory_sizing.l1_wanted_bytes(costs, context, longest)
    l1 = inputs.l1_bytes or min(wanted, inputs.max_l1_bytes)
    documents = costs.stored_documents(context)
    overhead = documents * chunking.DOCUMENT_OVERHEAD_BYTES
    working_set = inputs.contexts * (costs.stored_bytes(context) + overhead)
    per_node = needed_per_node_bytes(working_set, inputs.bucket_replicas, inputs.data_nodes)
    return Sizing(
        evidence=kv.evidence,
        ranks=kv.ranks,
        attention_bytes_per_token_per_rank=kv.attention_bytes_per_token_per_rank,
        attention_bytes_per_token=kv.attention_bytes_per_token,
        state_bytes_per_rank=kv.state_bytes_per_rank,
        block_size_tokens=kv.block_tokens,
        chunk_size_tokens=choice.tokens,
        chunk_reason=choice.reason,
        object_bytes=objects,
        shard_bytes=shard,
        documents_per_chunk=costs.documents_per_chunk,
        documents_per_context=documents,
        context_tokens=context,
        max_context_tokens=longest,
        chunks_per_context=costs.chunks(context),
        bytes_per_context=costs.stored_bytes(context),
        loaded_bytes_per_context=costs.loaded_bytes(context),
        lookup_keys_per_request=costs.chunks(context) * costs.objects_per_chunk,
        working_set_contexts=inputs.contexts,
        working_set_bytes=working_set,
        quota_bytes=per_node * inputs.data_nodes,
        quota_per_node_bytes=per_node,
        l1_bytes=l1,
        l1_wanted_bytes=wanted,
        contexts_in_l1=l1
        * memory_sizing.L1_WATERMARK_PERCENT
        // 100
        // max(costs.loaded_bytes(context), costs.chunk_bytes),
        longest_cacheable_tokens=memory_sizing.longest_cacheable_tokens(costs, l1, longest, inputs.max_l1_bytes),
        shared_memory_bytes=_shared_memory_bytes(inputs, l1),
        staging_bytes=memory_sizing.staging_bytes(rank_bytes(kv.groups(choice.tokens), choice.tokens)),
        layout=kv,
        warnings=(*kv.warnings, *_warnings(kv, context)),
    )


def _check(inputs: SizingInputs) -> None:
    bounds = {
        "maxModelLen": (inputs.max_context_tokens, 1, _MAX_TOKENS),
        "workingSet.tokensPerContext": (inputs.context_tokens, 1, _MAX_TOKENS),
        "workingSet.contexts": (inputs.contexts, 1, _MAX_CONTEXTS),
        "chunkSize": (inputs.chunk_tokens, 1, _MAX_TOKENS),
        "shardSize": (inputs.shard_bytes, 1, chunking.MAX_SHARD_BYTES),
        "l1Size": (inputs.l1_bytes, 1, _MAX_BYTES),
        "bucket.replicas": (inputs.bucket_replicas, 0, 3),
        "data nodes": (inputs.data_nodes, 1 + inputs.bucket_replicas, 10_000),
    }
    for name, (value, low, high) in bounds.items():
        if value is not None and not low <= value <= high:
            raise RefusedError(Reason.INVALID_SPEC, f"{name} {value} must be from {low} to {high}.")


def _shared_memory_bytes(inputs: SizingInputs, l1_bytes: int) -> int:
    ranks = inputs.engine.tensor_parallel_size
    if inputs.is_engine_driven:
        return memory_sizing.engine_driven_shared_bytes(l1_bytes, ranks)
    handed_over_bytes = inputs.handed_over_bytes * ranks * inputs.engine.pipeline_parallel_size
    return memory_sizing.lmcache_driven_shared_bytes(handed_over_bytes, ranks)


def _warnings(kv: KvLayout, context_tokens: int) -> tuple[str, ...]:
    if kv.has_states and context_tokens < 2 * kv.block_tokens:
        told = f"A context of {context_tokens} tokens is less than two blocks of {kv.block_tokens}: little is reused."
        hint = "A 16-bit type for states (--mamba-ssm-cache-dtype) makes blocks smaller, if the model tolerates it."
        return (f"{told} {hint}",)
    return ()
