"""How much of a task goes into one call to Couchbase."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from couchbase_lm_cache.settings import CouchbaseLMCacheConfig

GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of one call. Times the number of workers, this bounds what is in flight."""

_FEWEST_PER_BATCH, _MOST_PER_CALL = 16, 512

_Item = TypeVar("_Item")


def grouped(
    items: Sequence[_Item], size_bytes: Callable[[_Item], int], group_bytes: int = GROUP_BYTES
) -> list[list[_Item]]:
    """Put consecutive items together until a group holds ``group_bytes``; a bigger one is alone."""
    groups: list[list[_Item]] = []
    held = 0
    for item in items:
        size = size_bytes(item)
        if not groups or held + size > group_bytes or len(groups[-1]) == _MOST_PER_CALL:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += size
    return groups


def batches(
    objects: Sequence[_Item], size_bytes: Callable[[_Item], int], settings: CouchbaseLMCacheConfig
) -> list[list[_Item]]:
    """Put objects together whose manifests one call reads: many small ones, but few large ones.

    In the format without checksums, what is at the keys may be whole objects of up to a shard's size.
    """
    fewest = _FEWEST_PER_BATCH
    if not settings.verifies_content:
        fewest = max(1, min(fewest, GROUP_BYTES // settings.shard_size_bytes))
    found: list[list[_Item]] = []
    held = 0
    for item in objects:
        size = size_bytes(item)
        is_full = bool(found) and len(found[-1]) >= fewest and held + size > GROUP_BYTES
        if not found or is_full or len(found[-1]) == _MOST_PER_CALL:
            found.append([])
            held = 0
        found[-1].append(item)
        held += size
    return found
