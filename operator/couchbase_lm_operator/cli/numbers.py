"""The numbers of a sizing, named once for tables and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.cli.output import binary_size

if TYPE_CHECKING:
    from couchbase_lm_operator.core.sizing.sizing import Sizing

# name, attribute of Sizing, whether it is a size, what it is
_NUMBERS = (
    ("evidence", "evidence", False, "what says that the numbers are right"),
    ("attentionBytesPerTokenPerRank", "attention_bytes_per_token_per_rank", False, "bytes; largest rank"),
    ("stateBytesPerRank", "state_bytes_per_rank", True, "one snapshot of the recurrent layers"),
    ("attentionBytesPerToken", "attention_bytes_per_token", False, "bytes; all ranks"),
    ("ranks", "ranks", False, "that store an object for each chunk and group"),
    ("blockTokens", "block_size_tokens", False, "a chunk is a multiple of it"),
    ("chunkTokens", "chunk_size_tokens", False, "what is cached as a whole"),
    ("objectBytes", "object_bytes", True, "one chunk on one rank, for each object group"),
    ("shardBytes", "shard_bytes", True, "one document"),
    ("documentsPerChunk", "documents_per_chunk", False, "with manifests, all groups and ranks"),
    ("contextTokens", "context_tokens", False, "a typical context"),
    ("documentsPerContext", "documents_per_context", False, "with manifests, all groups and ranks"),
    ("chunksPerContext", "chunks_per_context", False, "only full chunks are cached"),
    ("bytesPerContext", "bytes_per_context", True, "a typical context in the bucket"),
    ("loadedBytesPerContext", "loaded_bytes_per_context", True, "what is read to continue it"),
    ("lookupKeysPerRequest", "lookup_keys_per_request", False, "existence checks for a typical context"),
    ("l1Bytes", "l1_bytes", True, "memory beside the engine"),
    ("contextsInL1", "contexts_in_l1", False, "typical contexts that stay in L1"),
    ("longestCacheableTokens", "longest_cacheable_tokens", False, "longer contexts are recomputed"),
    ("shmBytes", "shared_memory_bytes", True, "size of /dev/shm"),
    ("stagingBytes", "staging_bytes", True, "memory of each GPU outside vLLM's budget"),
    ("workingSetContexts", "working_set_contexts", False, "contexts the bucket should hold"),
    ("workingSetBytes", "working_set_bytes", True, "one copy of them, with overhead"),
    ("quotaBytes", "quota_bytes", True, "of the bucket, all data nodes together"),
    ("quotaBytesPerNode", "quota_per_node_bytes", True, "as Couchbase counts it"),
)


def numbers(sizing: Sizing) -> dict[str, Any]:
    """Return the numbers for programs; sizes are bytes."""
    found: dict[str, Any] = {name: getattr(sizing, attribute) for name, attribute, _, _ in _NUMBERS}
    return {**found, "objectBytes": list(sizing.object_bytes), "chunkReason": sizing.chunk_reason}


def number_rows(sizing: Sizing) -> list[tuple[str, str, str]]:
    """Return the numbers for people: name, value, what it is."""
    return [
        (name, _shown(getattr(sizing, attribute), is_size=is_size), meaning)
        for name, attribute, is_size, meaning in _NUMBERS
    ]


def _shown(value: Any, *, is_size: bool) -> str:
    if isinstance(value, tuple):
        return " + ".join(_shown(each, is_size=is_size) for each in value)
    return f"{value} ({binary_size(value)})" if is_size else str(value)
