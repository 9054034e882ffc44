"""From a model's shape to chunk, documents, L1, shared memory and the wish for the bucket. Pure.

One object of LMCache is one chunk of one rank: all its layers together, without header or padding.
Formulas were compared to the byte with what vLLM 0.32 and LMCache 0.5.6 store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core import chunking
from couchbase_lm_operator.core.quantity import GIB, MIB, format_bytes, round_up
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.core.model_shape import ModelShape

L1_WATERMARK_PERCENT = 80
"""LMCache evicts from L1 only above this share, and one context is allocated all or nothing."""
CONCURRENT_RESTORES = 4
_L1_MARGIN_PERCENT = 110
_SHARED_MEMORY_PER_RANK_BYTES = 512 * MIB
_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclass(frozen=True)
class SizingInputs:
    """What a resource and its engine say; None means "work it out".

    ``is_whole_chunk_stored`` is True on CPU, where a chunk of sliding-window layers is stored whole; on
    CUDA only its last ``window`` tokens are.
    """

    tensor_parallel_size: int
    pipeline_parallel_size: int
    element_type: str
    block_tokens: int
    max_context_tokens: int
    context_tokens: int | None
    contexts: int
    chunk_tokens: int | None
    shard_bytes: int | None
    l1_bytes: int | None
    max_l1_bytes: int
    is_whole_chunk_stored: bool


@dataclass(frozen=True)
class Sizing:
    """What one resource needs, worked out. Sizes are bytes unless the name says tokens or counts.

    ``rank_count`` ranks each store one object per chunk; ``object_bytes`` is that of the rank that holds
    most. ``bytes_per_context`` and ``working_set_bytes`` are one copy of the documents in the bucket:
    replicas and the usable share of a bucket are for the quota arithmetic to add.
    ``l1_wanted_bytes`` is what L1 would be without a cap.
    """

    evidence: str
    rank_count: int
    kv_bytes_per_token_rank: int
    kv_bytes_per_token: int
    block_size_tokens: int
    chunk_size_tokens: int
    object_bytes: int
    shard_bytes: int
    documents_per_chunk: int
    context_tokens: int
    max_context_tokens: int
    chunks_per_context: int
    bytes_per_context: int
    working_set_contexts: int
    working_set_bytes: int
    l1_bytes: int
    l1_wanted_bytes: int
    contexts_in_l1: int
    longest_cacheable_tokens: int
    shared_memory_bytes: int


def size(shape: ModelShape, inputs: SizingInputs) -> Sizing:
    """Return the numbers of one resource.

    Raises:
        RefusedError: parallelism that does not fit the model, a chunk that is no multiple of the block, a
            sliding window that cannot be cut, or an L1 that holds not one chunk.
    """
    rank_bytes = _bytes_per_token_of_ranks(shape, inputs)
    largest = max(rank_bytes)
    context = inputs.context_tokens or min(8192, inputs.max_context_tokens)
    chunk = _chunk_tokens(shape, inputs, largest, context)
    stored_tokens = chunk
    if shape.window_tokens is not None and not inputs.is_whole_chunk_stored:
        stored_tokens = min(chunk, shape.window_tokens)
    objects = [stored_tokens * bytes_per_token for bytes_per_token in rank_bytes]
    shard = inputs.shard_bytes or chunking.choose_shard_bytes(max(objects))
    documents = sum(chunking.documents_of(size_bytes, shard) for size_bytes in objects)
    chunk_bytes = sum(objects)
    chunks = context // chunk
    wanted = _l1_bytes(chunks * chunk_bytes, inputs.max_context_tokens // chunk * chunk_bytes)
    l1 = inputs.l1_bytes or min(wanted, inputs.max_l1_bytes)
    return Sizing(
        evidence=_evidence(shape),
        rank_count=len(rank_bytes),
        kv_bytes_per_token_rank=largest,
        kv_bytes_per_token=sum(rank_bytes),
        block_size_tokens=inputs.block_tokens,
        chunk_size_tokens=chunk,
        object_bytes=max(objects),
        shard_bytes=shard,
        documents_per_chunk=documents,
        context_tokens=context,
        max_context_tokens=inputs.max_context_tokens,
        chunks_per_context=chunks,
        bytes_per_context=chunks * chunk_bytes,
        working_set_contexts=inputs.contexts,
        working_set_bytes=inputs.contexts * chunks * (chunk_bytes + documents * chunking.DOCUMENT_OVERHEAD_BYTES),
        l1_bytes=l1,
        l1_wanted_bytes=wanted,
        contexts_in_l1=l1 * L1_WATERMARK_PERCENT // 100 // max(chunks * chunk_bytes, chunk_bytes),
        longest_cacheable_tokens=_longest_cacheable_tokens(l1, chunk, chunk_bytes, inputs),
        shared_memory_bytes=2 * l1 + _SHARED_MEMORY_PER_RANK_BYTES * inputs.tensor_parallel_size,
    )


def _evidence(shape: ModelShape) -> str:
    return "override" if shape.override_bytes_per_token is not None else f"verified family {shape.model_type}"


def _bytes_per_token_of_ranks(shape: ModelShape, inputs: SizingInputs) -> list[int]:
    """Return the bytes of one token on each rank; ranks differ only when layers are not evenly split."""
    tensor, pipeline = inputs.tensor_parallel_size, inputs.pipeline_parallel_size
    if shape.override_bytes_per_token is not None:
        return [shape.override_bytes_per_token] * (tensor * pipeline)
    if shape.attention_heads % tensor or max(shape.kv_heads, tensor) % min(shape.kv_heads, tensor):
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.engine.tensorParallelSize {tensor} does not fit {shape.attention_heads} attention heads and "
            f"{shape.kv_heads} KV heads: it must divide the attention heads, and divide the KV heads or be a multiple "
            "of them.",
        )
    if pipeline > shape.layers:
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.engine.pipelineParallelSize {pipeline} is more than the model's {shape.layers} layers.",
        )
    # with fewer KV heads than ranks every rank keeps a copy of one head
    heads = max(1, shape.kv_heads // tensor)
    layer_bytes = heads * (shape.head_size_k + shape.head_size_v) * _ELEMENT_BYTES[inputs.element_type]
    return [layers * layer_bytes for layers in _split_layers(shape.layers, pipeline) for _ in range(tensor)]


def _split_layers(layers: int, parts: int) -> list[int]:
    """Split as vLLM's ``get_pp_indices`` does: what is left over goes to the later parts, the last one excepted."""
    split = [layers // parts] * parts
    for position in range(2, layers % parts + 2):
        split[-position] += 1
    return split


def _chunk_tokens(shape: ModelShape, inputs: SizingInputs, bytes_per_token: int, context_tokens: int) -> int:
    block, window = inputs.block_tokens, shape.window_tokens
    chunk = inputs.chunk_tokens or chunking.choose_chunk_tokens(block, bytes_per_token, context_tokens)
    if chunk % block:
        near = sorted({max(chunk // block, 1) * block, (chunk // block + 1) * block})
        raise RefusedError(
            Reason.CHUNK_SIZE_INVALID,
            f"spec.cache.chunkSize {chunk} is not a multiple of the engine's KV block of {block} tokens: use "
            f"{' or '.join(map(str, near))}, or remove the field.",
        )
    if window is None or window >= chunk or window % block == 0:
        return chunk
    # LMCache cuts a sliding window smaller than the chunk only at a block's edge
    if inputs.chunk_tokens or window < block:
        raise RefusedError(
            Reason.CHUNK_SIZE_INVALID,
            f"The model's sliding window of {window} tokens is smaller than the chunk of {chunk} and not a multiple of "
            f"the KV block of {block}: set spec.cache.chunkSize to a multiple of {block} up to {window}, or a smaller "
            "spec.engine.blockSize.",
        )
    return window // block * block


def _l1_bytes(context_bytes: int, longest_bytes: int) -> int:
    """Return the wanted L1: concurrent restores, or the longest context within what never gets evicted.

    Below the watermark nothing is evicted, and a context is allocated all or nothing: what is free is only
    the share above it. A batch of new tokens is never longer than the longest context, so it adds nothing.
    """
    free_percent = 100 - L1_WATERMARK_PERCENT
    wanted = max(CONCURRENT_RESTORES * context_bytes, -(-longest_bytes * 100 // free_percent))
    return max(round_up(-(-wanted * _L1_MARGIN_PERCENT // 100), GIB), GIB)


def _longest_cacheable_tokens(l1: int, chunk: int, chunk_bytes: int, inputs: SizingInputs) -> int:
    free_bytes = l1 * (100 - L1_WATERMARK_PERCENT) // _L1_MARGIN_PERCENT
    chunks = free_bytes // chunk_bytes
    if chunks == 0:
        needed = round_up(-(-chunk_bytes * _L1_MARGIN_PERCENT // (100 - L1_WATERMARK_PERCENT)), MIB)
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.cache.l1Size {format_bytes(l1)} cannot hold one chunk of {chunk_bytes} bytes beside what is never "
            f"evicted: it needs {format_bytes(needed)} at least (the operator's own limit is "
            f"{format_bytes(inputs.max_l1_bytes)}), or a smaller spec.cache.chunkSize.",
        )
    return min(chunks * chunk, inputs.max_context_tokens)
