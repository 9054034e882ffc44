"""Layers that are cached alike, and which of them share an object. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelGroup:
    """Layers of one rank that are cached alike.

    ``bytes_per_token`` counts all ``layers`` of an attention group, ``state_bytes`` one snapshot of all layers
    of a recurrent one, ``stored_state_bytes`` what LMCache makes of it; the others are 0. ``window_tokens``
    is None when nothing is cut. ``is_whole_chunk_stored`` is True on CPU: windows and states of every block are stored.
    """

    first_layer: int
    layers: int
    bytes_per_token: int
    state_bytes: int
    stored_state_bytes: int
    window_tokens: int | None
    block_tokens: int
    context_parallel: int
    is_whole_chunk_stored: bool

    @property
    def is_recurrent(self) -> bool:
        """Say whether it holds snapshots."""
        return self.state_bytes > 0

    def chunk_bytes(self, chunk_tokens: int) -> int:
        """Return the bytes of one chunk on one rank."""
        if self.is_recurrent:
            return self.stored_state_bytes * (chunk_tokens // self.block_tokens if self.is_whole_chunk_stored else 1)
        stored = chunk_tokens
        if self.window_tokens is not None and not self.is_whole_chunk_stored:
            stored = min(chunk_tokens, self.window_tokens)
        return self.bytes_per_token * stored // self.context_parallel

    def window_chunks(self, chunk_tokens: int) -> int | None:
        """Return how many last chunks a reader needs, None for all of them."""
        if self.is_recurrent:
            return -(-self.block_tokens // chunk_tokens)
        return None if self.window_tokens is None else -(-self.window_tokens // chunk_tokens)


@dataclass(frozen=True)
class ObjectGroup:
    """Kernel groups whose bytes of one chunk are one object.

    ``kind`` is ``full``, ``sliding``, ``recurrent``, or ``mixed`` where nothing is separated.
    ``window_chunks`` is how many last chunks a reader needs, None for all.
    """

    kind: str
    kernel_groups: tuple[KernelGroup, ...]
    window_chunks: int | None = None

    def object_bytes(self, chunk_tokens: int) -> int:
        """Return the bytes of one object."""
        return sum(group.chunk_bytes(chunk_tokens) for group in self.kernel_groups)


def rank_bytes(groups: tuple[ObjectGroup, ...], chunk_tokens: int) -> int:
    """Return the bytes of one chunk on one rank."""
    return sum(group.object_bytes(chunk_tokens) for group in groups)


def kind_of(group: KernelGroup) -> str:
    """Return ``recurrent``, ``full`` or ``sliding``."""
    if group.is_recurrent:
        return "recurrent"
    return "full" if group.window_tokens is None else "sliding"
