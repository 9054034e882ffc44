"""How many tokens go into a chunk, and how a chunk becomes documents. Pure.

A chunk must be a multiple of the engine's KV block. Small chunks lose less of a prompt's tail and reuse
more where prompts diverge; large ones need fewer look-ups. With 1 MiB documents their number hardly
depends on the chunk.
"""

from __future__ import annotations

from couchbase_lm_operator.core.quantity import KIB, MIB

DEFAULT_CHUNK_TOKENS = 256
DEFAULT_SHARD_BYTES = MIB
MAX_SHARD_BYTES = 16 * MIB
DOCUMENT_OVERHEAD_BYTES = 3 * KIB // 10
"""Key and metadata of one document in memory, about 0.3 KiB."""

_MAX_TINY_CHUNK_TOKENS = 2048
_HUGE_CHUNK_BYTES = 128 * MIB
_LONG_CHUNK_BYTES = 64 * MIB
_MIN_CHUNK_TOKENS = 64
_MAX_SHARDS_PER_OBJECT = 256
_MAX_LOOKUPS_PER_CONTEXT = 256


def choose_chunk_tokens(block_tokens: int, bytes_per_token: int, context_tokens: int) -> int:
    """Return the chunk size for contexts of ``context_tokens``.

    ``bytes_per_token`` is that of the rank that holds most. Starts at 256 tokens, grows while an object
    stays below one document or a context has very many chunks, shrinks while an object is huge.
    """
    chunk = block_tokens * -(-DEFAULT_CHUNK_TOKENS // block_tokens)
    while (
        chunk * bytes_per_token < DEFAULT_SHARD_BYTES
        and 2 * chunk <= _MAX_TINY_CHUNK_TOKENS
        and 20 * chunk <= context_tokens
    ):
        chunk *= 2
    while (
        chunk * bytes_per_token > _HUGE_CHUNK_BYTES
        and chunk % (2 * block_tokens) == 0
        and chunk // 2 >= max(block_tokens, _MIN_CHUNK_TOKENS)
    ):
        chunk //= 2
    while (
        context_tokens > _MAX_LOOKUPS_PER_CONTEXT * chunk
        and 128 * chunk <= context_tokens
        and 2 * chunk * bytes_per_token <= _LONG_CHUNK_BYTES
    ):
        chunk *= 2
    return chunk


def choose_shard_bytes(object_bytes: int) -> int:
    """Return the document size: 1 MiB, doubled while an object would need more than 256 documents."""
    shard = DEFAULT_SHARD_BYTES
    while object_bytes > _MAX_SHARDS_PER_OBJECT * shard and shard < MAX_SHARD_BYTES:
        shard *= 2
    return shard


def documents_of(object_bytes: int, shard_bytes: int) -> int:
    """Return the documents of one object: its shards and the manifest that is always written."""
    return -(-object_bytes // shard_bytes) + 1
