"""What a context costs: stored in the bucket, loaded by one request, in objects and in documents. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from couchbase_lm_operator.core.engine.engine_layout import DEFAULT_BATCHED_TOKENS
from couchbase_lm_operator.core.sizing import chunking

if TYPE_CHECKING:
    from collections.abc import Callable

    from couchbase_lm_operator.core.sizing.kv_layout import KvLayout
    from couchbase_lm_operator.core.sizing.layout_groups import ObjectGroup


@dataclass(frozen=True)
class ContextBytes:
    """Counts bytes and documents of contexts of any length, over all ranks, for one chunk size."""

    layout: KvLayout
    chunk_tokens: int
    shard_bytes: int

    @property
    def step_tokens(self) -> int:
        """Return the tokens of one step of the engine; with recurrent states a step ends at a block."""
        batched, block = self.layout.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS, self.layout.block_tokens
        return max(batched // block, 1) * block if self.layout.has_states else batched

    @property
    def chunk_bytes(self) -> int:
        """Return one chunk with all its objects."""
        return self._sum(lambda group: group.object_bytes(self.chunk_tokens))

    @property
    def documents_per_chunk(self) -> int:
        """Return the documents of a chunk that has all its objects."""
        return self._sum(self._documents)

    @property
    def objects_per_chunk(self) -> int:
        """Return the keys that are looked up for each chunk."""
        return self._sum(lambda _: 1)

    def chunks(self, tokens: int) -> int:
        """Return the full chunks of a context; only those are cached."""
        return tokens // self.chunk_tokens

    def stored_bytes(self, tokens: int) -> int:
        """Return what a context takes in the bucket, one copy."""
        return self._sum(lambda group: self._stored(group, tokens) * group.object_bytes(self.chunk_tokens))

    def stored_documents(self, tokens: int) -> int:
        """Return the documents of a context in the bucket, one copy."""
        return self._sum(lambda group: self._stored(group, tokens) * self._documents(group))

    def loaded_bytes(self, tokens: int) -> int:
        """Return what a request with such a prefix loads: all of full attention, only the end of the rest."""
        chunks = self.chunks(tokens)
        return self._sum(
            lambda group: (
                (chunks if group.window_chunks is None else min(chunks, group.window_chunks))
                * group.object_bytes(self.chunk_tokens)
            )
        )

    def needed_bytes(self, tokens: int) -> int:
        """Return what must fit into L1 at once to load such a context, or to store one step of it."""
        return max(self.loaded_bytes(tokens), self.stored_bytes(min(tokens, self.step_tokens)))

    def _sum(self, count: Callable[[ObjectGroup], int]) -> int:
        """Return the sum over the object groups of all ranks."""
        return self.layout.copies_per_stage * sum(map(count, self._groups))

    @cached_property
    def _groups(self) -> tuple[ObjectGroup, ...]:
        """Return the object groups of one rank of each stage."""
        return tuple(group for groups in self.layout.stage_groups(self.chunk_tokens) for group in groups)

    def _stored(self, group: ObjectGroup, tokens: int) -> int:
        """Return the objects of a group: a snapshot is there only for the chunks that end a step of the engine."""
        chunks = self.chunks(tokens)
        return min(chunks, -(-tokens // self.step_tokens)) if group.kind == "recurrent" else chunks

    def _documents(self, group: ObjectGroup) -> int:
        return chunking.documents_of(group.object_bytes(self.chunk_tokens), self.shard_bytes)
