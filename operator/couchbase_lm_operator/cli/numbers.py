"""The numbers of a sizing, named once for tables and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from couchbase_lm_operator.cli.output import binary_size
from couchbase_lm_operator.core.bucket_quota import needed_per_node_bytes

if TYPE_CHECKING:
    from couchbase_lm_operator.core.sizing import Sizing

# name, attribute of Sizing, whether it is a size, what it is
_NUMBERS = (
    ("kvBytesPerToken", "attention_bytes_per_token", False, "bytes per token, all ranks"),
    ("kvBytesPerTokenRank", "attention_bytes_per_token_per_rank", False, "bytes per token, largest rank"),
    ("ranks", "ranks", False, "tensor x pipeline parallel"),
    ("blockSize", "block_size_tokens", False, "tokens of the engine's KV block"),
    ("chunkSize", "chunk_size_tokens", False, "tokens of a chunk"),
    ("shardBytes", "shard_bytes", True, "one document"),
    ("documentsPerChunk", "documents_per_chunk", False, "with manifests, all ranks"),
    ("contextTokens", "context_tokens", False, "a typical context"),
    ("chunksPerContext", "chunks_per_context", False, "only full chunks are cached"),
    ("bytesPerContext", "bytes_per_context", True, "a typical context in the bucket"),
    ("l1Bytes", "l1_bytes", True, "memory beside the engine"),
    ("contextsInL1", "contexts_in_l1", False, "typical contexts that stay in L1"),
    ("longestCacheableTokens", "longest_cacheable_tokens", False, "longer contexts are recomputed"),
    ("sharedMemoryBytes", "shared_memory_bytes", True, "size of /dev/shm"),
    ("workingSetContexts", "working_set_contexts", False, "contexts the bucket should hold"),
    ("workingSetBytes", "working_set_bytes", True, "one copy of them, with overhead"),
)


def numbers(sizing: Sizing) -> dict[str, Any]:
    """Return the numbers for programs; sizes are bytes."""
    found: dict[str, Any] = {name: getattr(sizing, attribute) for name, attribute, _, _ in _NUMBERS}
    found["objectBytes"] = list(sizing.object_bytes)
    return {**found, "evidence": sizing.evidence, "bucketQuotaBytes": quota_bytes(sizing)}


def number_rows(sizing: Sizing) -> list[tuple[str, str, str]]:
    """Return the numbers for people: name, value, what it is."""
    rows = []
    for name, attribute, is_size, meaning in _NUMBERS:
        value = getattr(sizing, attribute)
        rows.append((name, f"{value} ({binary_size(value)})" if is_size else str(value), meaning))
    rows.append(("objectBytes", ", ".join(map(str, sizing.object_bytes)), "one chunk on one rank, each object group"))
    quota = quota_bytes(sizing)
    rows.append(("bucketQuotaBytes", f"{quota} ({binary_size(quota)})", "all data nodes together, no replicas"))
    return rows


def quota_bytes(sizing: Sizing) -> int:
    """Return the quota that the working set asks for, without replicas."""
    return needed_per_node_bytes(sizing.working_set_bytes, 0, 1)
