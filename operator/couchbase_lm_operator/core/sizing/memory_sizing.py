"""Memory beside the engine's own: L1 of the LMCache server, shared memory, staging on the device. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.quantity import GIB, MIB, format_bytes, round_up
from couchbase_lm_operator.core.refusal import RefusedError

if TYPE_CHECKING:
    from couchbase_lm_operator.core.sizing.context_sizing import ContextBytes

L1_WATERMARK_PERCENT = 80
"""LMCache evicts from L1 only above this share, and one context is allocated all or nothing."""
CONCURRENT_RESTORES = 4
L1_MARGIN_PERCENT = 110

_FREE_PERCENT = 100 - L1_WATERMARK_PERCENT
_SHARED_MEMORY_PER_RANK_BYTES = 512 * MIB
_MIN_ENGINE_SHARED_MEMORY_GIB = 2
_STAGED_CHUNKS = 4


def l1_wanted_bytes(contexts: ContextBytes, context_tokens: int, longest_tokens: int) -> int:
    """Return the wanted L1: concurrent restores, or the longest context, or one step's tokens, within what is free.

    Below the watermark nothing is evicted, and a context is allocated all or nothing: what is free is only
    the share above it.
    """
    step_tokens = min(contexts.step_tokens, longest_tokens)
    # one chunk at least, also where a context is never that long
    one_chunk = contexts.needed_bytes(contexts.chunk_tokens)
    needed = max(contexts.loaded_bytes(longest_tokens), contexts.stored_bytes(step_tokens), one_chunk)
    wanted = max(CONCURRENT_RESTORES * contexts.loaded_bytes(context_tokens), -(-needed * 100 // _FREE_PERCENT))
    return max(round_up(-(-wanted * L1_MARGIN_PERCENT // 100), GIB), GIB)


def longest_cacheable_tokens(contexts: ContextBytes, l1_bytes: int, longest_tokens: int, limit_bytes: int) -> int:
    """Return the longest context that L1 can load and store beside what is never evicted.

    Raises:
        RefusedError: not even one chunk fits.
    """
    chunk, free_bytes = contexts.chunk_tokens, l1_bytes * _FREE_PERCENT // L1_MARGIN_PERCENT
    if contexts.needed_bytes(chunk) > free_bytes:
        needed = round_up(-(-contexts.needed_bytes(chunk) * L1_MARGIN_PERCENT // _FREE_PERCENT), MIB)
        raise RefusedError(
            Reason.INVALID_SPEC,
            f"spec.cache.l1Size {format_bytes(l1_bytes)} cannot hold one chunk of {contexts.chunk_bytes} bytes beside "
            f"what is never evicted: it needs {format_bytes(needed)} at least (the operator's own limit is "
            f"{format_bytes(limit_bytes)}), or a smaller spec.cache.chunkSize.",
        )
    fits, too_many = 1, longest_tokens // chunk + 1
    while fits < too_many - 1:
        middle = (fits + too_many) // 2
        if contexts.needed_bytes(middle * chunk) <= free_bytes:
            fits = middle
        else:
            too_many = middle
    return min(fits * chunk, longest_tokens)


def engine_driven_shared_bytes(l1_bytes: int, tensor_parallel_size: int) -> int:
    """Return the size of /dev/shm when engines copy.

    L1 lies there, and a crashed server's segment stays until its successor has looked for room.
    """
    return 2 * l1_bytes + _SHARED_MEMORY_PER_RANK_BYTES * tensor_parallel_size


def lmcache_driven_shared_bytes(handed_over_bytes: int, tensor_parallel_size: int) -> int:
    """Return the size of /dev/shm when LMCache copies.

    It is the engine's own need and ``handed_over_bytes``, the KV memory of all its ranks that lies there: twice, as
    what an engine left that was killed stays until the server notices, and its successor must not wait for that.
    """
    return max(_MIN_ENGINE_SHARED_MEMORY_GIB, tensor_parallel_size) * GIB + 2 * handed_over_bytes


def staging_bytes(rank_chunk_bytes: int) -> int:
    """Return what LMCache allocates on each device outside the engine's budget."""
    return _STAGED_CHUNKS * rank_chunk_bytes
