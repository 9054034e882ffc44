"""From a model's shape to chunk, documents, L1, shared memory and bucket quota."""

from __future__ import annotations

from dataclasses import dataclass


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
