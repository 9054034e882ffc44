"""How many tokens go into a chunk, and how a chunk becomes documents. Pure.

A chunk must be a multiple of the engine's KV block. Small chunks lose less of a prompt's tail and reuse
more where prompts diverge; large ones need fewer look-ups. With 1 MiB documents their number hardly
depends on the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from couchbase_lm_operator.api.reasons import Reason
from couchbase_lm_operator.core.engine.engine_checks import DEFAULT_CHUNK_TOKENS
from couchbase_lm_operator.core.quantity import KIB, MIB
from couchbase_lm_operator.core.refusal import RefusedError
from couchbase_lm_operator.core.sizing.layout_groups import rank_bytes

if TYPE_CHECKING:
    from couchbase_lm_operator.core.sizing.kv_layout import KvLayout

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


@dataclass(frozen=True)
class ChunkChoice:
    """A chunk in tokens, and in one sentence why."""

    tokens: int
    reason: str


def checked_chunk(layout: KvLayout, chunk_tokens: int) -> ChunkChoice:
    """Return a chunk that a person gave.

    Raises:
        RefusedError: it is no multiple of the block, or longer than a sliding window that cannot be cut.
    """
    block = layout.block_tokens
    if chunk_tokens <= 0 or chunk_tokens % block:
        near = sorted({max(chunk_tokens // block, 1) * block, (max(chunk_tokens, 0) // block + 1) * block})
        raise RefusedError(
            Reason.CHUNK_SIZE_INVALID,
            f"spec.cache.chunkSize {chunk_tokens} is not a multiple of the engine's KV block of {block} tokens: use "
            f"{' or '.join(map(str, near))}, or remove the field.",
        )
    window, window_block = _uncuttable_window(layout, chunk_tokens)
    if window:
        raise _window_refusal(layout, chunk_tokens, window, window_block)
    return ChunkChoice(chunk_tokens, "It was given.")


def choose_chunk(layout: KvLayout, context_tokens: int) -> ChunkChoice:
    """Return the chunk size for contexts of ``context_tokens``.

    Starts at 256 tokens, grows while an object stays below one document or a context has very many chunks,
    shrinks while an object is huge or a sliding window cannot be cut.

    Raises:
        RefusedError: a sliding window shorter than the block cannot be cut.
    """
    block = layout.block_tokens
    chunk = block * -(-DEFAULT_CHUNK_TOKENS // block)
    reason = (
        f"{DEFAULT_CHUNK_TOKENS} tokens is LMCache's default and a multiple of the block of {block}"
        if chunk == DEFAULT_CHUNK_TOKENS
        else f"{chunk} is the first multiple of the engine's block of {block} tokens from {DEFAULT_CHUNK_TOKENS} on"
    )
    start = chunk
    while (
        max(layout.object_bytes(chunk)) < DEFAULT_SHARD_BYTES
        and 2 * chunk <= _MAX_TINY_CHUNK_TOKENS
        and 20 * chunk <= context_tokens
    ):
        chunk *= 2
    if chunk > start:
        reason = f"{start} tokens doubled to {chunk}, as a smaller object would not fill one document"
    start = chunk
    while (
        _rank_bytes(layout, chunk) > _HUGE_CHUNK_BYTES
        and chunk % (2 * block) == 0
        and chunk // 2 >= max(block, _MIN_CHUNK_TOKENS)
    ):
        chunk //= 2
    if chunk < start:
        reason = f"{start} tokens halved to {chunk}, as a chunk of a rank was above {_HUGE_CHUNK_BYTES // MIB} MiB"
    start = chunk
    while (
        context_tokens > _MAX_LOOKUPS_PER_CONTEXT * chunk
        and 128 * chunk <= context_tokens
        and _rank_bytes(layout, 2 * chunk) <= _LONG_CHUNK_BYTES
    ):
        chunk *= 2
    if chunk > start:
        reason = (
            f"{start} tokens doubled to {chunk}, as a context of {context_tokens} tokens had more than "
            f"{_MAX_LOOKUPS_PER_CONTEXT} chunks"
        )
    return _within_windows(layout, ChunkChoice(chunk, f"{reason}."))


def choose_shard_bytes(object_bytes: int) -> int:
    """Return the document size: 1 MiB, doubled while an object would need more than 256 documents."""
    shard = DEFAULT_SHARD_BYTES
    while object_bytes > _MAX_SHARDS_PER_OBJECT * shard and shard < MAX_SHARD_BYTES:
        shard *= 2
    return shard


def documents_of(object_bytes: int, shard_bytes: int) -> int:
    """Return the documents of one object: its shards and the manifest that is always written."""
    return -(-object_bytes // shard_bytes) + 1


def _rank_bytes(layout: KvLayout, chunk_tokens: int) -> int:
    return rank_bytes(layout.groups(chunk_tokens), chunk_tokens)


def _within_windows(layout: KvLayout, choice: ChunkChoice) -> ChunkChoice:
    """Shrink a chunk below a window that LMCache could cut only inside a block."""
    chunk = choice.tokens
    while True:
        window, window_block = _uncuttable_window(layout, chunk)
        if not window:
            break
        if window < layout.block_tokens:
            raise _window_refusal(layout, chunk, window, window_block)
        chunk = window // layout.block_tokens * layout.block_tokens
    if chunk == choice.tokens:
        return choice
    return ChunkChoice(
        chunk,
        f"{chunk} is the largest multiple of the engine's block of {layout.block_tokens} tokens within a sliding "
        "window that is no multiple of its block.",
    )


def _uncuttable_window(layout: KvLayout, chunk_tokens: int) -> tuple[int, int]:
    """Return a window smaller than the chunk that is no multiple of its group's block, and that block; else zeros."""
    return next(
        (
            (group.window_tokens, group.block_tokens)
            for stage in layout.stages
            for group in stage
            if group.window_tokens and group.window_tokens < chunk_tokens and group.window_tokens % group.block_tokens
        ),
        (0, 0),
    )


def _window_refusal(layout: KvLayout, chunk_tokens: int, window_tokens: int, window_block: int) -> RefusedError:
    return RefusedError(
        Reason.CHUNK_SIZE_INVALID,
        f"The model's sliding window of {window_tokens} tokens is smaller than the chunk of {chunk_tokens} and not a "
        f"multiple of the KV block of {window_block}: set spec.cache.chunkSize to a multiple of "
        f"{layout.block_tokens} up to {window_tokens}, or a smaller spec.engine.blockSize.",
    )
